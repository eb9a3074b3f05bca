from ledger.evaluated import Called, attempted_bundles, of_kind, provenances, published, runs, runs_of, slots, tool_calls
from ledger.events import Participant, RolloutEnded, RolloutStarted
from ledger.ledger import LedgerHandle
from ledger.lineage import calls_digest
from ledger.queries import fresh
from tests.evaluation_histories import CONFIG, Attempt, EvaluatedRun


def test_every_expected_slot_has_one_line_whether_attempted_or_not(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    policy = run.version("tiny-a")
    ids = run.group(1, "tiny", policy, [Attempt(True, calls=[("list_tickets", {})]), None, Attempt(ended_by=None)])
    run.group(2, "tiny", policy, [Attempt(True)])
    fresh(ledger)
    bundle = run.bundles[1]
    found = slots(ledger, [run.run_id], [bundle.bundle_id])
    assert [(line.slot, line.rollout_id, line.outcome) for line in found] == [
        (0, ids[0], "succeeded"),
        (1, None, None),
        (2, ids[2], "running"),
    ]
    first, omitted, running = found
    assert (first.bundle, first.split, first.sampling, first.seed, first.wall_s) == (
        bundle.draft.name,
        "validation",
        {"temperature": 1.0},
        7,
        2.0,
    )
    assert (first.reward, first.tokens_in, first.tokens_out, first.tool_calls, first.side_effects) == (1.0, 30, 5, 1, 0)
    assert [condition["name"] for condition in first.conditions] == ["mailed", "matching"]
    assert (omitted.reward, omitted.tokens_in, omitted.conditions, omitted.sampling) == (None, None, (), {})
    assert running.wall_s is None and slots(ledger, ["other"], [bundle.bundle_id]) == []


def test_a_slot_is_spoken_for_by_the_attempt_that_was_not_superseded(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    policy = run.version("tiny-a")
    ids = run.group(0, "tiny", policy, [Attempt(True)])
    fresh(ledger)
    line = slots(ledger, [run.run_id], [run.bundles[0].bundle_id])[0]
    agent = Participant(name="agent", role="agent", model_version=policy, endpoint="test", sampling={"temperature": 0.5}, trainable=True)
    judge = Participant(
        name="judge", role="judge", model_version="judge-1", endpoint="test", sampling={"temperature": 0.0}, trainable=False
    )
    run.append(RolloutStarted(
        rollout_id="late", group_id=line.group_id, bundle_id=line.bundle_id, slot=0, attempt=2, rollout_kind="ordinary",
        participants=[judge, agent], seed=9,
    ))  # fmt: skip
    fresh(ledger)
    assert [(one.rollout_id, one.sampling, one.seed, one.model_version) for one in slots(ledger, [run.run_id], [line.bundle_id])] == [
        ("late", {"temperature": 0.5}, 9, policy)
    ]
    run.append(RolloutEnded(rollout_id="late", ended_by="cancelled", boundary="operator", reason="late", model_calls=0, tool_calls=0,
                            calls_digest=calls_digest([]), wall_s=None, sampling_s=None, tool_s=None, superseded=True))  # fmt: skip
    fresh(ledger)
    assert [one.rollout_id for one in slots(ledger, [run.run_id], [line.bundle_id])] == ids


def test_tool_calls_come_in_order_with_their_names_and_arguments(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    ids = run.group(
        0,
        "tiny",
        run.version("tiny-a"),
        [Attempt(calls=[("mail", {"to": "a", "ticket": "T1"}), ("mail", {"to": "a", "ticket": "T1"})]), Attempt()],
    )
    fresh(ledger)
    call = Called("mail", {"to": "a", "ticket": "T1"}, None)
    assert tool_calls(ledger, [str(ids[0]), str(ids[1])]) == {ids[0]: (call, call), ids[1]: ()}


def test_runs_versions_and_bundles_are_told_with_what_they_say(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    policy, other = run.version("tiny-a", stage="rl", step=3), run.version("tiny-b")
    run.group(3, "tiny", policy, [Attempt()])
    fresh(ledger)
    assert [(line.run_id, line.name, line.root_seed, line.config) for line in runs(ledger)] == [(run.run_id, "desk", 7, CONFIG)]
    assert [(name, body.stage, body.step) for name, body in published(ledger).items()] == [(policy, "rl", 3), (other, None, None)]
    bundle_id = run.bundles[3].bundle_id
    assert attempted_bundles(ledger, [run.run_id]) == {bundle_id: ("validation", "ticket_desk")}
    assert provenances(ledger, [bundle_id])[bundle_id]["slice"] == "instances"
    assert (runs_of(ledger, [policy]), runs_of(ledger, [other])) == ([run.run_id], [])
    assert len(of_kind(ledger, "BundleSealed")) == 4
