"""A trainer that was killed anywhere goes on to what one that was not killed gives: the same groups, the same chain, nothing twice or lost."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ledger.attempts import attempts, dispatched
from ledger.errors import UnknownId
from ledger.events import BatchAssembled, DatasetSealed, EngineRefreshed, ModelVersionPublished, SplitRead, UpdateApplied
from ledger.ledger import open_ledger
from ledger.settings import Settings
from tests.conftest import Cluster
from tests.training.optimise.dying import KILLED, Death, parts_in_child, train_in_child
from tests.training.optimise.lab_files import config, opened
from training.lab import Lab
from training.optimise.checkpoints import STATES
from training.optimise.command import update
from training.optimise.opened import Training

# A loss that rewards do not enter: what a new policy does is all worth the same, and then nothing would be learnt.
# Engine and trainer agree, and a round is sampled by the version that is trained, so these filters drop nothing.
CONFIG = config(
    rounds=2, terms=[{"objective": {"name": "supervised"}}], filters=[{"name": "stale"}, {"name": "ratio", "params": {"low": 0.99, "high": 1.01}}]
)  # fmt: skip
ROUNDS = (3, 4)


@dataclass(frozen=True)
class Whole:
    """A run that was not killed, and how many appends it made after its imitation."""

    url: str
    folder: Path
    told: "Told"
    appends: int

    def settings(self) -> Settings:
        """Its deployment."""
        return Settings(data_dir=self.folder, database_url=self.url, project="test")


@dataclass(frozen=True)
class Told:
    """What a run comes to: its chain, the groups of each round, and the files that are left."""

    chain: tuple[tuple[str, str, str], ...]
    groups: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...]


@pytest.fixture(scope="module")
def imitated(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A database and a folder with everything before the first round."""
    url, folder = cluster.migrated_database(), tmp_path_factory.mktemp("imitated")
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        opened(ledger, folder, CONFIG)
    assert train_in_child(url, folder, CONFIG, until="sft")[0] == 0
    yield url, folder
    cluster.drop(url)


@pytest.fixture(scope="module")
def copied(
    cluster: Cluster, imitated: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], tuple[str, Path]]]:
    """Copies of both, under the same ledger id, so that ids can be compared."""
    made: list[str] = []

    def copy() -> tuple[str, Path]:
        made.append(cluster.migrated_database(imitated[0]))
        folder = tmp_path_factory.mktemp("copied") / "data"
        shutil.copytree(imitated[1], folder)
        return made[-1], folder

    yield copy
    for url in made:
        cluster.drop(url)


@pytest.fixture(scope="module")
def whole(copied: Callable[[], tuple[str, Path]]) -> Whole:
    """What a run that is not killed comes to."""
    url, folder = copied()
    code, appends = train_in_child(url, folder, CONFIG, death=Death(at=0))
    assert code == 0
    return Whole(url, folder, told(url, folder), appends)


def told(url: str, folder: Path) -> Told:
    """What the ledger and the folder hold, with what must hold of them checked."""
    with open_ledger(url, project="test", actor_id="tester") as ledger, Lab(CONFIG, ledger, Settings(data_dir=folder)) as lab:
        training = Training(lab)
        chain = training.chain()
        assert len(chain) == len(training.places)
        groups = []
        trained: Counter[str] = Counter()
        for number in ROUNDS:
            found = dispatched(ledger, training.run_id, number)
            groups.append(tuple(group.group_id for group in found))
            update = chain[number - 1]
            parts = [event.body for event in ledger.read_stream(f"batch-{update.batch_id}") if isinstance(event.body, BatchAssembled)]
            named = [row.rollout_id for part in parts for row in part.rows]
            named += [name for part in parts for names in part.exclusions.values() for name in names]
            counted = [attempt for attempt in attempts(ledger, groups[-1]) if attempt.counts]
            # G1 and G3 of the reported cases: each dispatched slot is consumed exactly once or explicitly dropped.
            assert sorted(named) == sorted(attempt.rollout_id for attempt in counted)
            assert Counter(attempt.group_id for attempt in counted) == {group.group_id: group.size for group in found}
            bodies = [event.body for event in ledger.read_stream(f"update-{update.update_id}")]
            trained.update(weight.rollout_id for body in bodies if isinstance(body, UpdateApplied) for weight in body.weights)
        assert trained and max(trained.values()) == 1
        root = training.checkpoints.root
        folders = sorted(path.name for path in root.iterdir()) + sorted(path.name for path in (root / STATES).iterdir())
        return Told(tuple((update.place.label, update.before, update.after) for update in chain), tuple(groups), tuple(folders))


def killed(copied: Callable[[], tuple[str, Path]], *deaths: Death) -> Told:
    """What a run comes to that dies of each of these in turn before it is left to end."""
    url, folder = copied()
    for death in deaths:
        assert train_in_child(url, folder, CONFIG, death=death)[0] == KILLED
    assert train_in_child(url, folder, CONFIG)[0] == 0
    return told(url, folder)


def test_the_weights_change_in_each_round(whole: Whole) -> None:
    assert all(before != after for _, before, after in whole.told.chain)


def test_training_again_adds_nothing(whole: Whole) -> None:
    with open_ledger(whole.url, project="test", actor_id="tester") as ledger:
        before = ledger.barrier()
        assert train_in_child(whole.url, whole.folder, CONFIG)[0] == 0
        assert ledger.barrier() == before


def test_a_round_begins_behind_a_probe_and_every_version_names_its_parent(whole: Whole) -> None:
    with open_ledger(whole.url, project="test", actor_id="tester") as ledger:
        bodies = [event.body for event in ledger.read(limit=100_000)]
    refreshed = [body for body in bodies if isinstance(body, EngineRefreshed)]
    assert [body.model_version for body in refreshed] == [before for label, before, _ in whole.told.chain if label.startswith("rl/")]
    assert all(body.cache_reset and body.probe_gap is not None and body.probe_gap < 1e-3 for body in refreshed)
    published = {body.model_version: body for body in bodies if isinstance(body, ModelVersionPublished) and not body.scripted}
    assert all(published[after].parent == before for _, before, after in whole.told.chain)
    assert [body.stage for body in published.values()] == ["init", "copy", "sft", "rl", "rl"]
    (data,) = [body for body in bodies if isinstance(body, DatasetSealed)]
    assert (data.rows, data.text_only, data.left_out) == (4, 4, {})
    assert {body.split for body in bodies if isinstance(body, SplitRead)} == {"train"}


def test_update_show_prints_who_got_how_much_gradient(whole: Whole) -> None:
    label, _, version = whole.told.chain[-1]
    shown = CliRunner().invoke(update, ["show", version], obj=whole.settings())
    assert shown.exit_code == 0 and label == "rl/2"
    assert "6 rollouts vote, 6 train, 0 neither" in shown.output and "share" in shown.output and "optimiser_steps" in shown.output
    found = json.loads(CliRunner().invoke(update, ["show", version, "--json"], obj=whole.settings()).output)
    assert found["after"] == version and len(found["rollouts"]) == 6
    assert [found["batch_counters"][f"filter:{name}"] for name in ("stale", "ratio", "stale:largest_lag_kept", "ratio:unknown")] == [0] * 4
    assert sum(row["weight"] for row in found["rollouts"]) == pytest.approx(1.0)
    listed = CliRunner().invoke(update, ["list", "--json"], obj=whole.settings()).output.splitlines()
    assert [json.loads(line)["after"] for line in listed] == [after for _, _, after in whole.told.chain]


def test_an_update_that_is_not_there_is_named(whole: Whole) -> None:
    first = CliRunner().invoke(update, ["show", whole.told.chain[0][1]], obj=whole.settings())
    assert isinstance(first.exception, UnknownId) and "was made by no update: it was published without one" in str(first.exception)


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(
            (Death(2, kind="ModelCalled"), Death(1, kind="UpdateApplied")),
            id="in the rollouts, then between the checkpoint's files and the event",
        ),
        pytest.param(
            (Death(1, kind="UpdateApplied"), Death(1, kind="UpdateApplied")),
            id="twice between the checkpoint's files and the event",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            (Death(1, before=False, kind="UpdateApplied"),), id="after the event, before the sweep of states", marks=pytest.mark.slow
        ),
        pytest.param((Death(1, before=False, kind="BatchAssembled"),), id="after the batch, before its update", marks=pytest.mark.slow),
        pytest.param((Death(1, before=False, kind="RewardDerived"),), id="in the rewards", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_comes_to_the_same(whole: Whole, copied: Callable[[], tuple[str, Path]], deaths: tuple[Death, ...]) -> None:
    assert killed(copied, *deaths) == whole.told


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_a_run_killed_at_a_random_append_comes_to_the_same(whole: Whole, copied: Callable[[], tuple[str, Path]], number: int) -> None:
    drawn = random.Random(number)
    deaths: list[Any] = [Death(drawn.randint(1, whole.appends), before=drawn.random() < 0.5)]
    assert killed(copied, *deaths) == whole.told


def test_rounds_made_in_parts_come_to_the_same(whole: Whole, copied: Callable[[], tuple[str, Path]]) -> None:
    url, folder = copied()
    assert parts_in_child(url, folder, CONFIG, ["rl/1", "rl/2"]) == 0
    assert told(url, folder) == whole.told


def test_orphans_are_discarded_and_counted(copied: Callable[[], tuple[str, Path]]) -> None:
    url, folder = copied()
    assert train_in_child(url, folder, CONFIG, death=Death(1, kind="UpdateApplied"))[0] == KILLED
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        said: list[str] = []
        with Lab(CONFIG, ledger, Settings(data_dir=folder), say=said.append) as lab, Training(lab).alone() as swept:
            assert swept == {"orphan_versions": 1, "orphan_states": 1, "unfinished_folders": 0}
            assert said == ["swept what an interrupted process left: 1 orphan_versions, 1 orphan_states"]
