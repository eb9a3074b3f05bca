"""The tasks that come with the package pass the gates that it applies to others'."""

from typing import Any

import pytest

from audit.bundle_batch import BundleBatch
from audit.bundle_gate import Gates
from audit.severity import load_policy
from audit.world_gate import check_world
from ledger.bundle import Bundle
from ledger.settings import Settings
from training.rollout.harness import tool_loop
from training.verifiers import verifiers
from training.worlds.source import TaskQuery, source_of


@pytest.mark.parametrize(
    ("name", "count", "options"),
    [("sqlite", 7, {"name": "shop"}), ("sqlite", 6, {"name": "hospital"}), ("python_class", 9, {}), ("ticket_desk", 16, {})],
    ids=["shop", "hospital", "classes", "desk"],
)
def test_every_task_of_a_shipped_world_is_admitted(name: str, count: int, options: dict[str, Any]) -> None:
    source, settings = source_of(name), Settings()
    world = source.open(settings, options)
    try:
        bound, harness = verifiers.bind(source.verifiers[0][0]), tool_loop()
        gates = Gates(world, bound, harness, load_policy())
        drafts = source.tasks(world, TaskQuery(count, 7, options), settings)
        bundles = [Bundle(draft, world.version, bound.ref.method_id, harness.harness_id) for draft in drafts]
        checked, batch = check_world(world, drafts, gates.policy), BundleBatch(tuple(bundles))
        decisions = [gates.decide(bundle, checked, batch=batch) for bundle in bundles]
    finally:
        getattr(world, "close", lambda: None)()
    assert len(decisions) == count
    assert checked.blocking == ()
    assert {d.bundle.draft.name: {n: d.results[n].reason for n in d.blocking} for d in decisions if not d.admitted} == {}
