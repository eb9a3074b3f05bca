"""An experiment trained by two processes that torchrun started: one chain of versions, that of one process but for rounding."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ledger.ledger import open_ledger
from tests.conftest import Cluster
from tests.training.optimise.lab_files import opened
from training.run_config import read_run_config

ROOT = Path(__file__).resolve().parents[3]
# With an eps far above the gradient AdamW's step is linear in it: otherwise a component near 0 steps by its sign alone.
OPTIMISER = "optimiser = { learning_rate = 0.5, eps = 1.0, weight_decay = 0.0 }"
EXPERIMENT = f"""
name = "pair"
seed = 1
reward = "partial_conditions"

[harness]
tool_format = "compact"
tools_in_prompt = false
results = "values"
calls = 3
calls_per_turn = 3
max_tokens = 8

[[tasks]]
world = "ticket_desk"
count = 4
seed = 3
options = {{ families = true, level = 0, split = "train" }}

[train]
policy = {{ source = "tiny", preset = "0.2M" }}

[[train.stages]]
stage = "copy"
steps = 2
batch_tokens = 300
{OPTIMISER}

[[train.stages]]
stage = "supervised"
traces = [{{ policy = "oracle", rollouts = 4 }}]
steps = 2
batch_tokens = 800
{OPTIMISER}

[[train.stages]]
stage = "reinforce"
rounds = 1
groups = 2
group_size = 3
# A loss that rewards do not enter: a new policy has none, and then there would be no gradient.
terms = [{{ objective = {{ name = "supervised" }} }}]
{OPTIMISER}
"""


@dataclass(frozen=True)
class Site:
    """A deployment of its own: database, folder and the experiment's file."""

    url: str
    folder: Path
    experiment: Path

    def start(self, processes: int, *more: str, **env: str) -> "subprocess.Popen[str]":
        """`tally train` in so many processes, by torchrun where there are several."""
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
        settings = {"TALLY_DATABASE_URL": self.url, "TALLY_DATA_DIR": str(self.folder), "TALLY_PROJECT": "test", "TALLY_ACTOR": "tester"}
        return subprocess.Popen(
            [sys.executable, *torchrun, "-m", "ledger.cli", "train", str(self.experiment), "--json", *more],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **settings, **env},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def train(self, processes: int, *more: str) -> list[dict[str, Any]]:
        """What it says of each update."""
        output, errors = (running := self.start(processes, *more)).communicate(timeout=300)
        assert running.returncode == 0, errors[-3000:]
        return [json.loads(line) for line in output.splitlines()]

    def weights(self, versions: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """All weights of each version in one line, in float64."""
        folders = [next(self.folder.glob(f"models/*/{version}")) for version in versions]
        kept = [load_file(folder / "model.safetensors") for folder in folders]
        return [np.concatenate([part[name].ravel() for name in sorted(part)]).astype(np.float64) for part in kept]


Copy = Callable[..., Site]


@pytest.fixture(scope="module")
def copied(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """Copies of a deployment, by default of one with the experiment's bundles admitted: one ledger id, so that ids can be compared."""
    home = tmp_path_factory.mktemp("pair")
    (home / "pair.toml").write_text(EXPERIMENT)
    first = Site(cluster.migrated_database(), home / "first", home / "pair.toml")
    with open_ledger(first.url, project="test", actor_id="tester") as ledger:
        opened(ledger, first.folder, read_run_config(first.experiment))
    made = [first.url]

    def copy(of: Site = first) -> Site:
        made.append(cluster.migrated_database(of.url))
        folder = home / f"copy_{len(made)}"
        if of.folder.is_dir():
            shutil.copytree(of.folder, folder)
        return Site(made[-1], folder, of.experiment)

    yield copy
    for url in made:
        cluster.drop(url)


@pytest.fixture(scope="module")
def imitated(copied: Copy) -> tuple[Site, list[dict[str, Any]]]:
    """A deployment that one process trained up to its first round, and what it said."""
    site = copied()
    return site, site.train(1, "--until", "sft")


def agree(alone: tuple[Site, list[dict[str, Any]]], shared: tuple[Site, list[dict[str, Any]]]) -> None:
    """Nothing, when the updates of one process are those of two: ids, counts, losses and norms, and the change of the weights."""
    (one, those), (two, these) = alone, shared
    assert [update["update_id"] for update in those] == [update["update_id"] for update in these] and len(those)
    assert those[0]["before"] == these[0]["before"]
    for a, b in zip(those, these, strict=True):
        assert a["sampled"] == b["sampled"]
        for name in set(a["counters"]) - {"micro_batches", "padding", "micro_batches_over_budget"}:
            assert b["counters"][name] == pytest.approx(a["counters"][name], rel=1e-5, abs=1e-6), (a["place"], name)
    start, *wanted = one.weights([those[0]["before"], *(update["after"] for update in those)])
    for a, b in zip(wanted, two.weights([update["after"] for update in these]), strict=True):
        # Steps are linear in the gradient here, so this is the relative distance of all gradients since the start.
        assert np.linalg.norm(b - a) <= 1e-5 * np.linalg.norm(a - start)


@pytest.mark.slow
def test_two_processes_copy_and_imitate_as_one(copied: Copy, imitated: tuple[Site, list[dict[str, Any]]]) -> None:
    site = copied()
    shared = site.train(2, "--until", "sft")
    assert [update["place"] for update in shared] == ["copy/1", "sft/1"]
    agree(imitated, (site, shared))


@pytest.mark.slow
def test_what_one_process_began_two_go_on_with(copied: Copy, imitated: tuple[Site, list[dict[str, Any]]]) -> None:
    one, two = copied(imitated[0]), copied(imitated[0])
    alone, shared = one.train(1), two.train(2)
    assert [update["place"] for update in shared] == ["rl/1"] and shared[0]["sampled"] == 6
    agree((one, alone), (two, shared))
    assert two.train(2) == []


@pytest.mark.slow
def test_a_process_that_dies_ends_all_and_the_run_goes_on_later(copied: Copy) -> None:
    site = copied()
    running = site.start(2)
    assert running.stdout is not None
    first = json.loads(running.stdout.readline())
    os.kill(_process(site, rank=1), signal.SIGKILL)
    _, errors = running.communicate(timeout=300)
    assert running.returncode != 0 and "Signal 9" in errors and "rank      : 1" in errors
    rest = site.train(2)
    assert [first["place"], *(update["place"] for update in rest)][-1] == "rl/1" and first["place"] not in [u["place"] for u in rest]


@pytest.mark.slow
def test_what_the_leader_refuses_ends_all(copied: Copy) -> None:
    _, errors = (running := copied().start(2, "--until", "nowhere")).communicate(timeout=300)
    assert running.returncode != 0 and "nowhere" in errors and "ProcessLost" not in errors


def _process(site: Site, *, rank: int) -> int:
    """Id of the process of a rank that torchrun started for a deployment."""
    wanted = {f"RANK={rank}", f"TALLY_DATA_DIR={site.folder}"}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted <= set(path.read_text(errors="replace").split("\0")):
                return int(path.parent.name)
        except OSError:
            continue
    raise AssertionError(f"no process has {wanted}")
