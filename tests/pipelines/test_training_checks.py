"""The checks that stop training fail on what they are for: a rollout that was lost, a task held out, nothing to learn, a broken chain."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg
import pytest

from ledger.canonical import digest
from ledger.events import BatchAssembled, BatchRow, EngineRefreshed, EventBody, GroupDispatched, ModelVersionPublished, UpdateApplied
from ledger.events.training import TrainingRow
from ledger.settings import Settings
from tests.pipelines.conftest import Site
from tests.pipelines.training_site import TRAINS
from training.lab import Lab
from training.optimise.schedule import schedule
from training.run_config import read_run_config

DIGEST = "0" * 64
TEST_TASK = """\
[[tasks]]
world = "ticket_desk"
count = 1
seed = 5
options = { families = true, level = 0, split = "test", slice = "instances", rows = "drawn" }
[train]
"""


@dataclass(frozen=True)
class Fabricated:
    """Round 3 of an experiment of which nothing was run."""

    site: Site
    name: str
    run_id: str
    experiment_id: str
    update_ids: tuple[str, ...]
    bundles: dict[str, str]

    def append(self, events: Sequence[EventBody]) -> None:
        with self.site.connect() as ledger:
            ledger.append([ledger.new(body) for body in events])

    def group(self, *, split: str = "train", size: int = 2) -> GroupDispatched:
        return GroupDispatched(
            group_id=f"group-{self.name}-{split}", bundle_id=self.bundles[split], size=size, experiment_id=self.experiment_id,
            run_id=self.run_id, round=3, policy=self.name, rollout_kind="ordinary",
        )  # fmt: skip

    def batch(self, rollout_ids: Sequence[str], *, trained: int = 5) -> BatchAssembled:
        piece = TrainingRow(index=0, open_reason="first", tokens=9, trained=trained, weight=1.0, credit=0.0)
        rows = [BatchRow(rollout_id=name, reward_id=None, votes=False, trains=True, rows=[piece]) for name in rollout_ids]
        return BatchAssembled(batch_id=f"batch-{self.name}", run_id=self.run_id, round=3, rows=rows, stage="rl")

    def chain(self, *, parent: str = "v2") -> list[EventBody]:
        """Three updates from v0 to v3; v3 says of which version it comes."""
        updates = [
            UpdateApplied(
                update_id=update_id, batch_id=f"b{step}", run_id=self.run_id, step=step, model_version_before=f"{self.name}-v{step}",
                model_version_after=f"{self.name}-v{step + 1}", weights=[],
            )
            for step, update_id in enumerate(self.update_ids[:3])
        ]  # fmt: skip
        version = ModelVersionPublished(
            model_version=f"{self.name}-v3", name=self.name, weights_digest=DIGEST, tokenizer_digest=DIGEST, template_digest=DIGEST,
            scripted=False, parent=f"{self.name}-{parent}",
        )  # fmt: skip
        return [*updates, version]

    def probe(self, gap: float | None) -> EngineRefreshed:
        return EngineRefreshed(
            engine_id=f"engine-{self.name}", model_version=f"{self.name}-v2", cache_reset=True, probe_gap=gap, refresh=0
        )  # fmt: skip

    def checked(self, asset: str, name: str) -> dg.AssetCheckEvaluation:
        key = dg.AssetCheckKey(dg.AssetKey(asset), name)
        result = self.site.run(f"{self.name}.r3", dg.AssetSelection.assets("worlds") | dg.AssetSelection.checks(key))
        (evaluation,) = result.get_asset_check_evaluations()
        return evaluation

    def batch_check(self) -> dg.AssetCheckEvaluation:
        return self.checked("training_batch", "everybody_dispatched_is_in_the_batch")

    def version_check(self) -> dg.AssetCheckEvaluation:
        return self.checked("model_version", "the_version_continues_the_one_before")


@pytest.fixture
def round_three(site: Site, request: pytest.FixtureRequest) -> Fabricated:
    """An experiment of its own for each test."""
    name = f"made-{digest(request.node.name)[:8]}"
    site.folder.mkdir(exist_ok=True)
    path = site.folder / f"{name}.toml"
    path.write_text(TRAINS.format(name=name).replace("[train]\n", TEST_TASK, 1))
    config = read_run_config(path)
    settings: Settings = site.settings
    with site.connect() as ledger, Lab(config, ledger, settings) as lab:
        run = lab.run()
        assert config.train is not None
        ids = tuple(place.update_id(run.run_id) for place in schedule(config.train))
        bundles = {bundle.draft.split: bundle.bundle_id for bundle in lab.bundles}
        return Fabricated(site, name, run.run_id, run.experiment_id, ids, bundles)


def test_a_batch_that_lost_a_rollout_is_stopped(round_three: Fabricated) -> None:
    round_three.append([round_three.group(size=2), round_three.batch(["one"])])
    found = round_three.batch_check()
    assert not found.passed and found.blocking
    assert "2 dispatched, 1 in the batch, 0 left out" in str(found.description)
    assert "1 of the dispatched have no part in it" in str(found.description)


def test_a_rollout_of_no_slot_of_the_round_is_named(round_three: Fabricated) -> None:
    round_three.append([round_three.group(size=1), round_three.batch(["stranger"])])
    found = round_three.batch_check()
    assert not found.passed
    assert "1 fill no slot of the round, the first ['stranger']" in str(found.description)
    assert "no part in it" not in str(found.description)


def test_a_task_of_the_test_split_stops_training(round_three: Fabricated) -> None:
    round_three.append([round_three.group(split="test", size=1), round_three.group(size=1), round_three.batch(["one", "two"])])
    found = round_three.batch_check()
    assert not found.passed
    assert f"1 tasks of the test split or of no split, the first ['{round_three.bundles['test']}']" in str(found.description)


def test_a_batch_without_trained_tokens_stops_training(round_three: Fabricated) -> None:
    round_three.append([round_three.group(size=1), round_three.batch(["one"], trained=0)])
    found = round_three.batch_check()
    assert not found.passed and "no token is trained on" in str(found.description)


def test_a_sound_version_passes_with_its_gap(round_three: Fabricated) -> None:
    round_three.append([*round_three.chain(), round_three.probe(0.0005)])
    found = round_three.version_check()
    assert found.passed and found.metadata["probe gap"].value == 0.0005


def test_a_version_with_another_parent_is_stopped(round_three: Fabricated) -> None:
    round_three.append([*round_three.chain(parent="v1"), round_three.probe(0.0)])
    found = round_three.version_check()
    assert not found.passed and found.blocking
    assert f"the parent of {round_three.name}-v3 is {round_three.name}-v1; allowed: {round_three.name}-v2" in str(found.description)


@pytest.mark.parametrize(
    ("gaps", "said"),
    [([], "0 of 0 times"), ([None], "1 of 1 times"), ([0.5], "engine and trainer differ by 0.5 nats")],
    ids=["never-served", "not-probed", "too-far-apart"],
)
def test_rollouts_of_an_engine_that_nobody_compared_are_stopped(round_three: Fabricated, gaps: list[float | None], said: str) -> None:
    round_three.append([*round_three.chain(), *map(round_three.probe, gaps)])
    found = round_three.version_check()
    assert not found.passed and said in str(found.description)


def test_an_update_that_was_not_applied_is_named(round_three: Fabricated) -> None:
    found = round_three.version_check()
    assert not found.passed and "the update was not applied: the run has 0" in str(found.description)
