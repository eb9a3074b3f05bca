"""Workers that crash, hang, leave children behind or answer nonsense are typed failures, and are replaced."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.errors import WorldFailed
from training.worlds.process_host import WorkerPool, WorkerProgram

ADAPTER = Path(__file__).parent / "tiny_adapter.py"


def program(**changes: float | dict[str, bool]) -> WorkerProgram:
    return WorkerProgram(Path(sys.executable), ADAPTER, **{"call_s": 10.0, **changes})  # type: ignore[arg-type]


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(program(), count=2)
    yield made
    made.close()


def ask(pool: WorkerPool, name: str, **arguments: int) -> str:
    with pool.lent() as lease:
        content: str = lease.worker.ask("call", name=name, arguments=arguments)["content"]
        return content


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(pid)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("divide", "ZeroDivisionError: cannot divide"),
        ("die", "exit status 7; its last words: .*the end is near"),
        ("quit", "failed in the worker with SystemExit"),
    ],
)
def test_a_failing_call_is_typed_and_the_next_request_gets_another_worker(pool: WorkerPool, name: str, says: str) -> None:
    ask(pool, "add", by=1)
    (before,) = pool.pids
    with pytest.raises(WorldFailed, match=f"(?s){says}"):
        ask(pool, name)
    assert wait_until_gone(before)
    assert ask(pool, "add", by=2) == "at 2"
    assert pool.pids != [before]


def test_a_hung_worker_is_ended_at_its_time_limit() -> None:
    pool = WorkerPool(program(call_s=1.0), count=1)
    ask(pool, "add", by=1)
    (hung,) = pool.pids
    with pytest.raises(WorldFailed, match=r"did not answer 'call' within 1 s"):
        ask(pool, "hang")
    assert wait_until_gone(hung)
    assert pool.pids == []
    pool.close()


def test_an_adapter_that_cannot_start_says_why() -> None:
    pool = WorkerPool(program(options={"broken": True}))
    with pytest.raises(WorldFailed, match="ImportError: no module named counter"):
        ask(pool, "add", by=1)
    assert pool.pids == []
    missing = WorkerPool(WorkerProgram(Path("/nowhere/python"), ADAPTER))
    with pytest.raises(WorldFailed, match="no worker could be started with /nowhere/python"):
        ask(missing, "add", by=1)


def test_children_of_a_worker_go_with_it(pool: WorkerPool) -> None:
    child = int(ask(pool, "leave_a_child"))
    assert not gone(child)
    pool.close()
    assert wait_until_gone(child)
    with pytest.raises(WorldFailed, match="closed"):
        ask(pool, "add", by=1)


def test_closing_ends_a_request_under_way(pool: WorkerPool) -> None:
    failed: list[str] = []

    def hang() -> None:
        try:
            ask(pool, "hang")
        except WorldFailed as error:
            failed.append(str(error))

    waiting = threading.Thread(target=hang)
    waiting.start()
    while not pool.pids:
        time.sleep(0.01)
    pool.close()
    waiting.join(5)
    assert failed
    assert not waiting.is_alive()


def test_nothing_of_our_environment_or_packages_reaches_a_worker_and_its_folder_goes_with_it(pool: WorkerPool) -> None:
    with pool.lent() as lease:
        seen = lease.worker.ask("surroundings")
    assert set(seen["environment"]) <= {"PYTHONHASHSEED", "TZ", "LC_ALL", "HOME", "TMPDIR", "PATH"}
    bare = subprocess.run(
        [sys.executable, "-s", "-P", "-B", "-c", "import sys, json; print(json.dumps(sys.path))"], env={}, capture_output=True, check=True
    )
    assert [place for place in seen["path"] if place not in json.loads(bare.stdout)] == []
    assert os.path.isdir(seen["folder"])
    pool.close()
    assert not os.path.exists(seen["folder"])


def test_a_worker_left_at_a_position_is_lent_to_who_comes_from_there(pool: WorkerPool) -> None:
    for place in ("a", "b"):
        with pool.lent() as lease:
            lease.worker.ask("reset", task={"start": 0 if place == "a" else 500}, seed=1)
            lease.position = place
    assert len(pool.pids) == 2
    with pool.lent(["root", "a", "a2"]) as lease:
        assert (lease.reached, lease.worker.ask("view")["count"] < 500) == (2, True)
        lease.position = "a"
    with pool.lent(["elsewhere"]) as lease:
        assert lease.reached == 0
        assert lease.worker.ask("view")["count"] >= 500, "the one that was idle longest is taken"


def test_more_requests_than_workers_wait_for_each_other(pool: WorkerPool) -> None:
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(pool, "add", by=0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(answers) == 8
    assert len(pool.pids) == 2
