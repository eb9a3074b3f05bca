"""Each asset is one call of a stage: what it appends, what its page shows, and what a second run does."""

import dagster as dg

from ledger.ledger import LedgerHandle
from pipelines.definitions import ASSETS

SLOTS = 4 + 2 + 1


def shown(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, object]:
    events = result.asset_materializations_for_node(asset)
    assert len(events) == 1
    return {name: value.value for name, value in events[0].metadata.items()}


def test_a_run_takes_the_smoke_experiment_from_tasks_to_rewards(materialize, opened: LedgerHandle) -> None:
    result = materialize("smoke.r0")
    assert result.success
    assert shown(result, "task_bundles")["bundles"] == 4
    assert shown(result, "rollouts")["expected"] == SLOTS == shown(result, "rollouts")["new"]
    assert shown(result, "verdicts")["rollouts counted"] == SLOTS
    assert shown(result, "rewards")["rollouts succeeded"] == 4
    assert "| oracle | ticket_desk | 4 |" in str(shown(result, "rewards")["outcomes"])
    assert len(opened.read(kinds=["RewardDerived"])) == SLOTS
