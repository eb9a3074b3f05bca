"""Attribution: the earliest sufficient cause is blamed, what a policy recovered from is not, and what nobody knows stays unknown."""

import json
from dataclasses import replace
from typing import Any

import pytest

from audit.harness_replay import HarnessFacts
from audit.replaying import Judging, replayed
from audit.results import CheckResult
from ledger.canonical import digest
from ledger.errors import VerifierFailed
from ledger.events import ModelCalled, RewardDerived, RolloutEnded, StateSnapshotted
from tests.audit.recorded import DRAFTS, VERIFIER_ID, WORLD, Recording
from training.verifiers import Condition, Verdict, verifiers
from training.worlds.ticket_desk.scripts import SCRIPTS

TURNS = SCRIPTS["oracle"](DRAFTS[0])
CALLS = [call for turn in TURNS for call in turn.tool_calls]
MAIL = next(n for n, (name, _) in enumerate(CALLS) if name == "send_email")
WRITE = next(n for n, (name, _) in enumerate(CALLS) if name == "update_ticket")


def run(*faults: dict[str, Any], script: Any = "oracle", **more: Any) -> Recording:
    return Recording().run(script, faults, **more)


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"kind": "timeout", "at": [MAIL]}, "tool_timeout"),
        ({"kind": "permission_denied", "at": [MAIL]}, "permission_denied"),
        ({"kind": "dropped_connection", "at": [WRITE], "recovered": True}, "connection_dropped"),
        ({"kind": "duplicate_delivery", "at": [MAIL]}, "call_executed_twice"),
        ({"kind": "corrupted_state", "at": [MAIL], "path": "/owners/O1/email", "value": "x@y"}, "state_corrupted"),
    ],
)
def test_a_fault_without_which_the_same_actions_succeed_is_the_worlds(fault: dict[str, Any], named: str) -> None:
    if "path" in fault:
        fault = {**fault, "path": f"/owners/{sorted(DRAFTS[0].initial_state['owners'])[0]}/email"}
    made = run(fault)
    assert made.verdicts[0].passed is False
    found = made.attributed()
    assert (found.boundary, found.fault, found.policy_evidence) == ("environment", named, False)
    struck = fault["at"][0]
    assert found.evidence_event_ids[0] == made.subject().tools[struck][0]


@pytest.mark.parametrize("script", ["wrong_recipient", "ignores_cooldown"])
def test_a_policy_that_would_have_failed_anyhow_is_to_blame_for_a_later_fault_too(script: str) -> None:
    assert run(script=script).attributed().boundary == "task"
    calls = [call for turn in SCRIPTS[script](DRAFTS[0]) for call in turn.tool_calls]
    found = run({"kind": "timeout", "at": [len(calls) - 1]}, script=script).attributed()
    assert (found.boundary, found.policy_evidence) == ("task", True)


def test_a_time_out_that_the_policy_made_up_for_does_not_count() -> None:
    made = run({"kind": "timeout", "at": [MAIL]}, retries=True)
    assert made.attributed().boundary == "none"
    made.verdict(False)
    found = made.attributed(judge=lambda *args, **more: Verdict((Condition("c", "failed"),)))
    assert found.fault != "tool_timeout"


def test_a_fault_that_the_task_declares_is_evidence_about_the_policy() -> None:
    draft = replace(DRAFTS[0], spec={**DRAFTS[0].spec, "faults": [{"kind": "permission_denied", "at": [MAIL]}]})
    made = Recording(draft)
    made.run("oracle", [{"kind": "permission_denied", "at": [MAIL]}])
    found = made.attributed()
    assert (found.boundary, found.policy_evidence) == ("task", True)


def test_another_first_state_than_the_tasks_is_a_wrong_reset() -> None:
    ticket = json.loads(CALLS[MAIL][1])["ticket_id"]
    made = run({"kind": "wrong_reset", "path": f"/tickets/{ticket}/status", "value": "closed"})
    found = made.attributed()
    assert (found.boundary, found.fault) == ("environment", "wrong_reset")
    first = next(event_id for event_id, body in made.subject().snapshots if isinstance(body, StateSnapshotted))
    assert found.evidence_event_ids[0] == first


class _Moody:
    """The desk, with an answer that changes from call to call."""

    def __init__(self) -> None:
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(WORLD, name)

    def call(self, state: Any, call: Any) -> Any:
        self.asked += 1
        after, answer = WORLD.call(state, call)
        return after, replace(answer, content=f"{answer.content}{self.asked % 2 * ' '}")


def test_what_replays_disagree_on_is_unknown_and_excluded() -> None:
    found = run(script="ignores_cooldown").attributed(world=_Moody())
    assert (found.boundary, found.policy_evidence) == ("unknown", None)


def test_a_world_that_cannot_be_replayed_leaves_a_failure_unknown() -> None:
    class Simulated(_Moody):
        fidelity = "simulated"

    found = run(script="ignores_cooldown").attributed(world=Simulated())
    assert found.boundary == "unknown" and found.policy_evidence is None and "simulated" in found.reason


def test_a1_a_limit_is_typed_and_judged_and_a_broken_verifier_is_no_failure_of_the_task() -> None:
    limit = run(script="ignores_cooldown", ended_by="wall_clock").attributed()
    assert (limit.boundary, limit.fault, limit.policy_evidence) == ("task", "limit_reached", True)
    for error, named in (("Traceback: KeyError", "verifier_crashed"), ("verifier timed out", "verifier_timeout")):
        made = run()
        made.verdict(None, status="error", error=error)
        found = made.attributed()
        assert (found.boundary, found.fault, found.policy_evidence) == ("verifier", named, False)


def test_a3_a_reward_of_zero_without_a_verdict_is_the_verifiers() -> None:
    made = run()
    made.verdicts.clear()
    assert made.attributed().boundary == "unknown"
    made.rewards.append(RewardDerived(
        reward_id="w", rollout_id="r0", rule="binary", rule_id="0" * 64, verdict_ids=[], value=0.0, reason="no verdict",
    ))  # fmt: skip
    found = made.attributed()
    assert (found.boundary, found.fault, found.policy_evidence) == ("verifier", "verdict_missing", False)


@pytest.mark.parametrize(
    ("ended_by", "boundary", "fault"),
    [("world_error", "environment", "world_crashed"), ("harness_error", "harness", "harness_crashed"),
     ("engine_error", "harness", "engine_failed")],
)  # fmt: skip
def test_a11_a_rollout_that_broke_names_the_boundary_at_which_it_did(ended_by: str, boundary: str, fault: str) -> None:
    made = run(ended_by=ended_by)
    made.verdicts.clear()
    found = made.attributed()
    assert (found.boundary, found.fault, found.policy_evidence) == (boundary, fault, False)


def test_a17_a_rollout_that_finished_without_a_model_call_is_the_harnesses() -> None:
    made = run(script=[SCRIPTS["oracle"](DRAFTS[0])[-1]])
    made.own[:] = [body for body in made.own if type(body).__name__ not in ("ModelCallDispatched", "ModelCalled")]
    found = made.attributed()
    assert (found.boundary, found.fault) == ("harness", "no_model_call")


def test_a_verdict_that_the_verifier_does_not_repeat_is_false() -> None:
    made = run(script="ignores_cooldown")
    made.verdict(True)
    assert made.attributed().fault == "false_accept"
    made = run()
    made.verdict(False)
    found = made.attributed()
    assert (found.boundary, found.fault) == ("verifier", "false_reject") and found.evidence_event_ids[-1] == "verdict-v/0"


def test_a_verifier_that_rejects_the_references_own_end_is_wrong() -> None:
    made = run()
    made.verdict(False)
    found = made.attributed(judge=lambda *args, **more: Verdict((Condition("c", "failed"),)))
    assert found.fault == "false_reject" and "reference" in found.reason


def test_a_verifier_with_a_gap_is_found_by_all_others_against_it() -> None:
    made = run(script="ignores_cooldown")
    made.verdict(True)
    subject = made.subject()
    facts = HarnessFacts(None, {}, False)
    gap = replayed(subject, WORLD, Judging(verifiers["desk_without_cooldown"], "desk_without_cooldown"), facts, seeds=(3,))
    assert set(gap.rejudged) == {"passed"} and gap.is_reference_end is False
    assert made.attributed(judge=verifiers["desk_without_cooldown"]).fault in ("false_accept", None)


def test_a_verifier_that_answers_differently_is_named() -> None:
    said = iter([True, False, True, True, True, True])

    def moody(*args: Any, **more: Any) -> Verdict:
        return Verdict((Condition("c", "passed" if next(said) else "failed"),))

    made = run()
    made.verdict(False)
    assert made.attributed(judge=moody).fault == "verifier_nondeterministic"

    def broken(*args: Any, **more: Any) -> Verdict:
        raise VerifierFailed("no")

    assert made.attributed(judge=broken).fault == "verifier_nondeterministic"


def test_a_call_that_was_sampled_and_not_made_was_dropped_by_the_parser() -> None:
    made = run(drop=[MAIL])
    found = made.attributed()
    assert (found.boundary, found.fault, found.policy_evidence) == ("harness", "call_dropped_by_parser", False)
    call = next(call for call in made.subject().calls if call.answered_id in found.evidence_event_ids)
    assert call.call_id == f"call{MAIL}"


def test_a_request_for_fewer_tokens_than_declared_is_a_length_stop_of_the_harness() -> None:
    made = run(script=TURNS[:3], ended_by="token_limit", max_tokens=16)
    made.own[:] = [
        body.model_copy(update={"finish_reason": "length"}) if isinstance(body, ModelCalled) and body.index == 2 else body
        for body in made.own
    ]
    assert made.attributed().fault == "length_stop_as_failure"
    # An answer of 5 tokens was not cut by a limit of 16; one of 16 was.
    assert made.attributed(facts=HarnessFacts(None, {"max_tokens": 16}, False)).fault == "length_stop_as_failure"
    made.own[:] = [
        body.model_copy(update={"usage": {"completion_tokens": 16}}) if isinstance(body, ModelCalled) else body for body in made.own
    ]
    assert made.attributed(facts=HarnessFacts(None, {"max_tokens": 16}, False)).fault == "limit_reached"


def test_messages_that_vanish_without_a_word_were_cut() -> None:
    made = run(script=TURNS[:4])
    for n, body in enumerate(made.own):
        if getattr(body, "index", None) == 3 and hasattr(body, "request"):
            request = {"messages": [{"role": "user", "content": "else"}], "max_tokens": 512}
            made.own[n] = body.model_copy(update={"request": made.ref(request)})
    assert made.attributed().fault == "history_cut"
    assert made.attributed(facts=HarnessFacts(None, {}, True)).fault == "history_cut"
    made.rewritten(3)
    assert made.attributed(facts=HarnessFacts(None, {}, True)).boundary == "task"
    assert made.attributed(facts=HarnessFacts(None, {"context_tokens": 4000}, True)).fault == "history_cut"


def test_a_check_that_names_a_cause_counts_at_the_place_of_its_evidence() -> None:
    made = run(script=TURNS[:3])
    event = made.subject().calls[1].event_ids[0]
    drift = CheckResult("tokens.prefix", "fail", "the template changed", evidence_event_ids=(event,), fault="template_drift")
    found = made.attributed([drift])
    assert (found.boundary, found.fault, found.evidence_event_ids[0]) == ("harness", "template_drift", event)
    assert made.attributed([replace(drift, status="skip")]).boundary == "task"
    assert made.attributed([replace(drift, fault="time_misreported")]).boundary == "task"


def test_a_persons_decision_is_not_doubted() -> None:
    from ledger.events import ReviewDecided

    made = run()
    made.verdict(False)
    made.reviews.append(ReviewDecided(
        review_id="x", rollout_id="r0", verdict_ids=["v"], reviewer_id="p", decision="passed", right_verdict_id=None, reason=made.ref("ok"),
    ))  # fmt: skip
    assert made.attributed().boundary == "none"


def test_a_rollout_that_runs_or_was_called_off_says_nothing() -> None:
    made = run()
    made.own[:] = [body for body in made.own if not isinstance(body, RolloutEnded)]
    assert made.attributed().boundary == "unknown"
    assert run(ended_by="cancelled").attributed().policy_evidence is None


def test_the_same_rollout_is_attributed_alike() -> None:
    assert digest(run({"kind": "timeout", "at": [MAIL]}).attributed().as_json()) == digest(
        run({"kind": "timeout", "at": [MAIL]}).attributed().as_json()
    )
    assert len(VERIFIER_ID) == 64
