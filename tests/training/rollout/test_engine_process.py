"""A server outlives its starter, is known again by more than its pid, and is ended with everything that it started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from training.rollout.engine import EngineSpec, start, status, stop
from training.rollout.engine_process import Identity, end, is_alive, launch, members, read_birth

REPOSITORY = Path(__file__).parents[3]
PARENT_OF_A_SLEEPER = "import subprocess, time; subprocess.Popen(['sleep', '300']); time.sleep(300)"


def until(condition: Callable[[], object], limit_s: float = 30.0) -> bool:
    """True when the condition holds within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Identity]:
    """A process that has a child of its own, in a session of its own."""
    birth = tmp_path / "birth"
    launch([sys.executable, "-c", PARENT_OF_A_SLEEPER], environment=dict(os.environ), log=tmp_path / "log", birth=birth)
    assert until(lambda: read_birth(birth) is not None)
    identity = read_birth(birth)
    assert identity is not None
    assert until(lambda: len(members(identity)) == 2)
    yield identity
    end(identity, patience_s=1.0)


def test_a_launched_process_leads_its_own_session_and_ends_with_its_children(launched: Identity) -> None:
    assert is_alive(launched)
    assert os.getsid(launched.pid) == launched.pid
    assert end(launched, patience_s=5.0) is True
    assert members(launched) == []
    assert end(launched) is False


def test_children_of_a_killed_leader_are_still_found_and_ended(launched: Identity) -> None:
    os.kill(launched.pid, signal.SIGKILL)
    # The leader stays a zombie of this process until it is reaped: a zombie is not alive.
    assert until(lambda: not is_alive(launched))
    assert len(members(launched)) == 1
    assert end(launched, patience_s=5.0) is True
    assert members(launched) == []


def test_another_process_of_the_same_pid_is_neither_alive_nor_touched(launched: Identity) -> None:
    for other in (replace(launched, start_ticks=launched.start_ticks + 1), replace(launched, boot_id="another boot")):
        assert not is_alive(other)
        assert members(other) == []
        assert end(other) is False
    assert is_alive(launched)


def test_a_process_outlives_a_starter_that_is_killed_at_once(tmp_path: Path) -> None:
    birth = tmp_path / "birth"
    code = (
        "import os, signal; from pathlib import Path; from training.rollout.engine_process import launch\n"
        f"launch(['sleep', '300'], environment=dict(os.environ), log=Path({str(tmp_path / 'log')!r}), birth=Path({str(birth)!r}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert until(lambda: read_birth(birth) is not None)
    identity = read_birth(birth)
    assert identity is not None
    assert is_alive(identity)
    assert end(identity, patience_s=5.0) is True


def test_a_stale_note_of_a_foreign_pid_counts_as_stopped_and_is_left_alone(tmp_path: Path) -> None:
    foreign = subprocess.Popen(["sleep", "300"])
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text()
        fields = Path(f"/proc/{foreign.pid}/stat").read_text().split()
        fields[21] = str(int(fields[21]) - 1)
        (tmp_path / "engine.birth").write_text(" ".join(fields) + "\n" + boot_id)
        (tmp_path / "engine.json").write_text('{"port": 1, "digest": "x", "spec": {}, "ready": true}')
        assert status(tmp_path).state == "stopped"
        assert stop(tmp_path) is False
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_damaged_notes_count_as_stopped(tmp_path: Path) -> None:
    (tmp_path / "engine.birth").write_text("nonsense")
    (tmp_path / "engine.json").write_text("{")
    assert status(tmp_path).state == "stopped"
    assert stop(tmp_path) is False
    assert stop(tmp_path / "absent") is False


def test_a_folder_without_a_model_is_refused_by_name(tmp_path: Path) -> None:
    from ledger.errors import EngineFailed

    with pytest.raises(EngineFailed, match=r"no config\.json"):
        start(EngineSpec(model=tmp_path, served_name="x"), tmp_path / "home", say=print)


def test_the_digest_follows_settings_and_tokenizer_but_not_weights_or_version(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    spec = EngineSpec(model=tmp_path, served_name="x")
    (tmp_path / "model.safetensors").write_bytes(b"1")
    assert replace(spec, version="later").digest() == spec.digest()
    assert replace(spec, dtype="bfloat16").digest() != spec.digest()
    before = spec.digest()
    (tmp_path / "tokenizer.json").write_text("{}")
    assert spec.digest() != before
