"""The assets of training: each round goes on from what the ledger holds of the one before, and a second run adds nothing."""

import base64
from collections import Counter
from typing import Any

import dagster as dg
import pytest

from ledger.events import BatchAssembled, EventBody, UpdateApplied
from pipelines.automation import training_round, training_start
from pipelines.definitions import ASSETS, defs
from tests.pipelines.conftest import Site
from tests.pipelines.training_site import TRAINS

START, FIRST, SECOND = "learns.r0", "learns.r3", "learns.r4"
TRAINED = ("supervised_traces", "sft_model", "rollouts", "verdicts", "rewards", "training_batch", "model_version", "evaluation")


@pytest.fixture(scope="module")
def trained(site: Site) -> dict[str, dg.ExecuteInProcessResult]:
    """One training by its jobs, by partition: all before the first rollouts, then two rounds."""
    site.folder.mkdir(exist_ok=True)
    (site.folder / "learns.toml").write_text(TRAINS.format(name="learns"))
    return {key: site.run(key, job.selection) for key, job in ((START, training_start), (FIRST, training_round), (SECOND, training_round))}


def shown(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    (event,) = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}


def bodies(site: Site, kind: str) -> list[EventBody]:
    with site.connect() as ledger:
        return [event.body for event in ledger.read(limit=100_000, kinds=[kind])]


def applied(site: Site) -> list[UpdateApplied]:
    return [body for body in bodies(site, "UpdateApplied") if isinstance(body, UpdateApplied)]


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    (failure, *_) = [event for event in result.all_events if event.is_step_failure]
    return str(failure.step_failure_data.error)


def test_every_round_goes_on_from_the_version_of_the_one_before(trained: dict[str, dg.ExecuteInProcessResult], site: Site) -> None:
    assert [(key, result.success) for key, result in trained.items()] == [(START, True), (FIRST, True), (SECOND, True)]
    updates = applied(site)
    assert [(body.stage, body.round) for body in updates] == [("copy", 1), ("sft", 2), ("rl", 3), ("rl", 4)]
    assert [body.model_version_before for body in updates[1:]] == [body.model_version_after for body in updates[:-1]]
    assert len({body.model_version_after for body in updates}) == 4


def test_all_checks_pass_and_look_at_the_groups_of_the_round(trained: dict[str, dg.ExecuteInProcessResult]) -> None:
    found = {item.check_name: item for item in trained[FIRST].get_asset_check_evaluations()}
    assert all(item.passed for result in trained.values() for item in result.get_asset_check_evaluations())
    assert found["every_slot_is_filled"].description == "8 of 8 expected slots have a counted attempt"
    batch = found["everybody_dispatched_is_in_the_batch"]
    assert (batch.metadata["dispatched"].value, batch.metadata["rows"].value) == (8, 8)
    assert 0 <= found["the_version_continues_the_one_before"].metadata["probe gap"].value <= 1e-3
    assert batch.blocking and found["the_version_continues_the_one_before"].blocking


def test_counts_and_log_ranges_say_what_each_step_added(trained: dict[str, dg.ExecuteInProcessResult], site: Site) -> None:
    start, first = trained[START], trained[FIRST]
    assert shown(start, "supervised_traces")["traces of noisy_teacher"] == 12
    assert (shown(start, "sft_model")["updates"], shown(start, "sft_model")["new"]) == (2, 2)
    assert (shown(first, "rollouts")["expected"], shown(first, "rollouts")["new"]) == (8, 8)
    said = shown(first, "training_batch")
    assert said["rollouts"] == said["vote"] == said["train"] == 8
    assert "| UpdateApplied | 1 |" in shown(first, "model_version")["events in the range"]
    assert shown(first, "model_version")["model version"] == applied(site)[2].model_version_after


def test_the_batch_says_who_got_how_much_gradient(trained: dict[str, dg.ExecuteInProcessResult], site: Site) -> None:
    said = shown(trained[FIRST], "training_batch")
    batch = next(body for body in bodies(site, "BatchAssembled") if isinstance(body, BatchAssembled) and body.round == 3)
    assert said["batch"] == batch.batch_id
    shares = [float(line.split("|")[-2].strip().rstrip("%")) for line in said["who got how much gradient"].splitlines()[2:]]
    assert len(shares) == 8 and sum(shares) == pytest.approx(100, abs=0.1) and shares == sorted(shares, reverse=True)


def test_the_evaluation_has_curves_and_fixed_rules_on_the_same_tasks(trained: dict[str, dg.ExecuteInProcessResult], site: Site) -> None:
    start, last = shown(trained[START], "evaluation"), shown(trained[SECOND], "evaluation")
    for said in (start, last):
        picture = base64.b64decode(said["curves"].partition("data:image/png;base64,")[2].rstrip(")"))
        assert picture.startswith(b"\x89PNG\r\n")
        assert said["success"].count("| mails_everyone |") == 1
    # The ends of copying and of imitation at two temperatures, with the rule; then the end of the rounds.
    assert (start["versions"], start["expected"], last["versions"], last["expected"]) == (2, 2 * 12 + 6, 1, 12)
    assert 0.0 <= last["newest success"] <= 1.0
    reads = Counter((body.split, body.purpose) for body in bodies(site, "SplitRead"))  # type: ignore[attr-defined]
    assert reads["validation", "selection"] == 2 and not any(split == "test" for split, _ in reads)


def test_materializing_again_adds_nothing_and_shows_the_same(trained: dict[str, dg.ExecuteInProcessResult], site: Site) -> None:
    with site.connect() as ledger:
        before = ledger.barrier()
        again = {key: site.run(key, dg.AssetSelection.assets(*TRAINED).without_checks()) for key in trained}
        assert all(result.success for result in again.values())
        assert ledger.barrier() == before
    assert shown(again[FIRST], "model_version")["model version"] == shown(trained[FIRST], "model_version")["model version"]
    assert shown(again[START], "sft_model")["chain"] == shown(trained[START], "sft_model")["chain"]
    names = "batch", "who got how much gradient"
    assert [shown(again[FIRST], "training_batch")[n] for n in names] == [shown(trained[FIRST], "training_batch")[n] for n in names]


def test_a_round_of_imitation_and_one_after_the_last_have_no_rollouts(trained: dict[str, dg.ExecuteInProcessResult], site: Site) -> None:
    sampling = dg.AssetSelection.assets("rollouts", "training_batch", "model_version").without_checks()
    early = site.run("learns.r2", sampling)
    assert early.success
    assert shown(early, "rollouts") == shown(early, "model_version") == {"nothing to do": "round 2 has no such step"}
    assert "the experiment has rounds up to r4" in failure_of(site.run("learns.r5", sampling))


def test_a_round_without_the_one_before_fails_and_makes_no_policy(site: Site) -> None:
    (site.folder / "early.toml").write_text(TRAINS.format(name="early"))
    assert site.run("early.r0", ["worlds", "task_bundles"]).success
    with site.connect() as ledger:
        before = ledger.barrier()
        result = site.run("early.r3", dg.AssetSelection.assets("rollouts").without_checks())
        assert "update rl/1 cannot be made before copy/1" in failure_of(result)
        assert ledger.barrier() == before


def test_an_experiment_that_trains_nothing_has_nothing_to_do(site: Site) -> None:
    key = site.one_task("still")
    result = site.run(key, ["supervised_traces", "sft_model", "training_batch", "model_version", "evaluation"])
    assert result.success
    for asset in ("supervised_traces", "sft_model", "training_batch", "model_version", "evaluation"):
        assert shown(result, asset) == {"nothing to do": "the experiment trains nothing"}


def test_the_start_of_training_evaluates_after_it_made_the_policy() -> None:
    evaluation = next(asset for asset in ASSETS if asset.key == dg.AssetKey("evaluation"))
    assert {key.to_user_string() for key in evaluation.dependency_keys} == {"model_version", "sft_model"}
    assert dg.AssetKey("sft_model") in defs.resolve_job_def("training_start").asset_layer.executable_asset_keys
