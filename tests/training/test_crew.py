"""Processes that share a collection: what comes of it is what one process gives, and they end with the one that they work for."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.attempts import counted
from ledger.errors import TallyError
from ledger.ledger import LedgerHandle, open_ledger
from ledger.settings import Settings
from tests.conftest import Cluster
from tests.training.optimise.lab_files import config, opened
from tests.training.process_ids import process_id
from training.crew import crew_of
from training.lab import Lab
from training.optimise import trainer
from training.optimise.opened import Training
from training.optimise.samplers import open_sampler

# Enough slots that two processes share a round.
CONFIG = config(rounds=2, groups=4, group_size=24, terms=[{"objective": {"name": "supervised"}}])
Copy = Callable[[int], Settings]


@pytest.fixture(scope="module")
def copies(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """Deployments with everything before the first round, under one ledger id, so that seeds and ids are the same."""
    url, folder = cluster.migrated_database(), tmp_path_factory.mktemp("shared") / "data"
    with open_ledger(url, project="test", actor_id="tester") as ledger, opened(ledger, folder, CONFIG) as lab:
        last = next(place for place in reversed(Training(lab).places) if place.stage.stage == "supervised")
        trainer.train(lab, open_sampler, until=last)
    made: list[str] = []

    def copy(processes: int) -> Settings:
        made.append(cluster.migrated_database(url))
        there = tmp_path_factory.mktemp("copied") / "data"
        shutil.copytree(folder, there)
        return Settings(data_dir=there, database_url=made[-1], project="test", actor="tester", processes=processes)

    yield copy
    for name in (*made, url):
        cluster.drop(name)


def trained(settings: Settings) -> tuple[tuple[str, str], ...]:
    """The chain of updates of a deployment's run, once it is trained to its end."""
    with open_ledger(str(settings.database_url), project="test", actor_id="tester") as ledger, Lab(CONFIG, ledger, settings) as lab:
        trainer.train(lab, open_sampler)
        assert (lab.crew is None) == (settings.processes == 1)
        known = counted(ledger, Training(lab).run_id, Training(lab).places[-1].round)
        assert [len(rollout.verdict_ids) for rollout in known] == [1] * 96
        return tuple((update.batch_id or "", update.after) for update in Training(lab).chain())


def test_two_processes_give_the_versions_that_one_gives(copies: Copy) -> None:
    alone, shared = copies(1), copies(2)
    assert trained(alone) == trained(shared)


@pytest.mark.slow
def test_a_process_that_dies_fails_the_round_and_the_next_try_gives_the_same(copies: Copy) -> None:
    alone, shared = copies(1), copies(2)
    with open_ledger(str(shared.database_url), project="test", actor_id="tester") as ledger, Lab(CONFIG, ledger, shared) as lab:
        crew = crew_of(lab, 96)
        assert crew is not None
        victim = crew.each(process_id, [1, 2])[0]

        def progress(what: str, done: int, total: int) -> None:
            if what.startswith("rollouts"):
                os.kill(victim, signal.SIGKILL)

        with pytest.raises(TallyError, match="ended early"):
            trainer.train(lab, open_sampler, progress=progress)
    assert trained(alone) == trained(shared)


def test_few_slots_are_not_shared(ledger: LedgerHandle, tmp_path: Path) -> None:
    with Lab(CONFIG, ledger, Settings(data_dir=tmp_path, processes=2)) as lab:
        assert crew_of(lab, 95) is None


def test_the_processes_end_with_the_one_that_they_work_for(ledger_url: str, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from ledger.settings import Settings\n"
        "from tests.training.optimise.lab_files import config\n"
        "from tests.training.process_ids import process_id\n"
        "from training.crew import Crew\n"
        "if __name__ == '__main__':\n"
        "    made = Settings(data_dir=sys.argv[1], database_url=sys.argv[2], project='test', actor='tester')\n"
        "    print(*Crew(config(), made, 2).each(process_id, [1, 2]), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    script = tmp_path / "crew.py"
    script.write_text(program)
    command = [sys.executable, str(script), str(tmp_path / "data"), ledger_url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}
    ) as running:
        assert running.stdout is not None
        pids = [int(word) for word in running.stdout.readline().split()]
        assert pids and all(_alive(pid) for pid in pids)
        running.kill()
    deadline = time.monotonic() + 20
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
