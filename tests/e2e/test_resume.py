"""Killed at any moment, the demo goes on: nothing counted is lost or doubled, and what is left over is accounted for."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ledger import queries
from ledger.events import RolloutEnded
from ledger.ledger import open_ledger
from ledger.verify import verify
from tests.conftest import Cluster

EXPERIMENT = """
name = "resume"
seed = 5
concurrency = 4

[[tasks]]
world = "ticket_desk"
count = 8
seed = 5

[[collect]]
policy = "oracle"
rollout_kind = "expert"
size = 2

[[collect]]
policy = "ignores_cooldown"
rollout_kind = "probe"

[[collect]]
policy = "gives_up"
rollout_kind = "probe"
"""


def demo(folder: Path, url: str) -> "subprocess.Popen[bytes]":
    """The demo of the experiment on a database, started as its user does."""
    path = folder / "resume.toml"
    path.write_text(EXPERIMENT)
    environment = {
        **os.environ,
        "TALLY_DATABASE_URL": url,
        "TALLY_DATA_DIR": str(folder / f"data-{url.rpartition('/')[2]}"),
        "COLUMNS": "160",
    }
    command = [sys.executable, "-m", "ledger.cli", "demo", "--experiment", str(path), "--without-model"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def finish(process: "subprocess.Popen[bytes]") -> str:
    """What a demo printed that ran to its end."""
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output.decode()[-2000:]
    return output.decode()


def counted(url: str) -> dict[str, Any]:
    """Keys and counts of what counts, without ids that belong to one ledger."""
    with open_ledger(url, project="default", actor_id="tester") as ledger:
        queries.fresh(ledger)
        rollouts = queries.rollouts(ledger, queries.Filter(counted=True), limit=1000).lines
        verdicts = queries.verdicts(ledger, [line.rollout_id for line in rollouts])
        rewards = queries.rewards(ledger, limit=1000).lines
        return {
            "rollouts": sorted((line.bundle, line.policy, line.slot, line.outcome, line.ended_by, line.model_calls) for line in rollouts),
            "verdicts": sorted((verdict.verifier, verdict.passed) for given in verdicts.values() for verdict in given),
            "rewards": sorted((reward.rollout.bundle, reward.rollout.policy, reward.rollout.slot, reward.value) for reward in rewards),
        }


def leftovers(url: str) -> tuple[int, int]:
    """Attempts beyond the counted ones, and ends that say superseded."""
    with open_ledger(url, project="default", actor_id="tester") as ledger:
        ledger.barrier()
        kinds = queries.event_counts(ledger)
        ends = [event.body for event in ledger.read(kinds=["RolloutEnded"], limit=10_000)]
        superseded = sum(isinstance(body, RolloutEnded) and body.superseded for body in ends)
        assert kinds["RolloutStarted"] == kinds["RolloutEnded"] == len(ends)
        assert verify(ledger).intact
        return kinds["RolloutStarted"] - 32, superseded


def disturbed(cluster: Cluster, folder: Path, moments: list[float], number: int) -> str:
    """URL of a ledger on which the demo was ended by a signal after each of `moments` seconds, then ran to its end."""
    url = cluster.migrated_database()
    for seconds in moments:
        process = demo(folder, url)
        time.sleep(seconds)
        os.killpg(process.pid, number)
        process.communicate(timeout=60)
    finish(demo(folder, url))
    return url


def test_a_killed_and_an_interrupted_demo_end_as_an_undisturbed_one(cluster: Cluster, tmp_path: Path) -> None:
    undisturbed = cluster.migrated_database()
    began = time.monotonic()
    finish(demo(tmp_path, undisturbed))
    took = time.monotonic() - began
    expected = counted(undisturbed)
    assert [len(expected[name]) for name in ("rollouts", "verdicts", "rewards")] == [32, 160, 32]
    assert leftovers(undisturbed) == (0, 0)

    with open_ledger(undisturbed, project="default", actor_id="tester") as ledger:
        position = ledger.barrier()
    output = finish(demo(tmp_path, undisturbed))
    assert "32 already, 0 new" in output
    with open_ledger(undisturbed, project="default", actor_id="tester") as ledger:
        assert ledger.barrier() == position

    for number, shares in ((signal.SIGKILL, [0.55, 0.8]), (signal.SIGINT, [0.65])):
        url = disturbed(cluster, tmp_path, [took * share for share in shares], number)
        assert counted(url) == expected
        extra, superseded = leftovers(url)
        assert extra == superseded


@pytest.mark.slow
def test_ten_kills_at_random_moments_change_nothing_that_counts(cluster: Cluster, tmp_path: Path) -> None:
    rng = random.Random(20261129)
    undisturbed = cluster.migrated_database()
    began = time.monotonic()
    finish(demo(tmp_path, undisturbed))
    took = time.monotonic() - began
    expected = counted(undisturbed)
    for round_number in range(10):
        url = disturbed(cluster, tmp_path, [took * rng.uniform(0.2, 1.0)], rng.choice([signal.SIGKILL, signal.SIGINT]))
        assert counted(url) == expected, f"round {round_number}"
        extra, superseded = leftovers(url)
        assert extra == superseded
        cluster.drop(url)
