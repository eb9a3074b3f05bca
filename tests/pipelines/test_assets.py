"""Each asset is one call of a stage: what it appends, what its page shows, and that a second run adds nothing."""

import base64
import xml.etree.ElementTree as ET
from collections import Counter
from typing import Any

import dagster as dg
import pytest

from tests.pipelines.conftest import Site

SLOTS = 4 + 2 + 1
ASSET_NAMES = ("worlds", "world_checks", "task_bundles", "bundle_checks", "admitted_bundles", "rollouts", "verdicts", "rewards")


@pytest.fixture(scope="module")
def smoke(site: Site) -> dg.ExecuteInProcessResult:
    """The first run of the smoke experiment."""
    return site.run("smoke.r0")


def shown(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    (event,) = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}


def test_a_run_takes_the_experiment_from_tasks_to_rewards(smoke: dg.ExecuteInProcessResult, site: Site) -> None:
    assert smoke.success
    with site.connect() as ledger:
        kinds = Counter(event.body.kind for event in ledger.read(limit=100_000))
    assert (kinds["BundleSealed"], kinds["RolloutEnded"], kinds["RewardDerived"]) == (4, SLOTS, SLOTS)


def test_counts_stand_beside_what_they_are_counted_against(smoke: dg.ExecuteInProcessResult) -> None:
    assert shown(smoke, "task_bundles")["bundles"] == 4
    assert (shown(smoke, "rollouts")["expected"], shown(smoke, "rollouts")["new"]) == (SLOTS, SLOTS)
    rewards = shown(smoke, "rewards")
    assert (rewards["succeeded"], rewards["judged"], rewards["rollouts"]) == (4, SLOTS, SLOTS)
    assert "| 4 / 4 | 1.000 of 4 |" in rewards["outcomes"]


def test_the_log_range_holds_exactly_what_the_step_appended(smoke: dg.ExecuteInProcessResult, site: Site) -> None:
    with site.connect() as ledger:
        events = ledger.read(limit=100_000)
    since, until = shown(smoke, "rollouts")["since"], shown(smoke, "rollouts")["until"]
    ended = [event.position for event in events if event.body.kind == "RolloutEnded"]
    assert len(ended) == SLOTS
    assert all(since < position <= until for position in ended)
    assert shown(smoke, "verdicts")["since"] == until
    assert f"| RolloutEnded | {SLOTS} |" in shown(smoke, "rollouts")["events in the range"]


def test_every_asset_names_its_experiment_and_its_run(smoke: dg.ExecuteInProcessResult) -> None:
    for name in ("experiment_id", "run_id"):
        assert len({shown(smoke, asset)[name] for asset in ASSET_NAMES}) == 1
    assert shown(smoke, "rewards")["experiment"] == "smoke"


def test_the_chart_is_an_image_with_a_bar_a_policy(smoke: dg.ExecuteInProcessResult) -> None:
    chart = shown(smoke, "rewards")["chart"]
    svg = base64.b64decode(chart.partition("base64,")[2].rstrip(")"))
    texts = [element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]
    assert {"oracle · ticket_desk (4)", "wrong_recipient · ticket_desk (2)", "loops · ticket_desk (1)"} <= set(texts)


def test_a_second_run_adds_no_event(smoke: dg.ExecuteInProcessResult, site: Site) -> None:
    with site.connect() as ledger:
        before = ledger.barrier()
        again = site.run("smoke.r0")
        assert again.success
        assert ledger.barrier() == before
    assert [shown(again, asset).get("new", 0) for asset in ASSET_NAMES] == [0] * len(ASSET_NAMES)


def test_another_round_has_rollouts_of_its_own_over_the_same_bundles(smoke: dg.ExecuteInProcessResult, site: Site) -> None:
    key = site.one_task("rounds")
    assert site.run(key).success
    second = site.run("rounds.r1")
    assert second.success
    assert (shown(second, "task_bundles")["new"], shown(second, "rollouts")["new"], shown(second, "rewards")["new"]) == (0, 1, 1)


def test_a_partition_of_an_unknown_experiment_fails_and_names_those_there_are(site: Site) -> None:
    result = site.run("absent.r0")
    assert not result.success
    (failure, *_) = [event for event in result.all_events if event.is_step_failure]
    assert "no experiment 'absent'; there are class_worlds, demo" in str(failure.step_failure_data.error)
