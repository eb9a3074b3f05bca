"""Whose fault a rollout's failure is: the earliest sufficient cause in causal order, or that nobody knows. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from audit.counting_verdict import CountingVerdict, counting_verdict
from audit.replays import REPEATS, Cause, Replays
from audit.results import CheckResult
from audit.rollout_subject import RolloutSubject
from audit.taxonomy import CAUSAL, TIES, boundary_of
from ledger.events import Boundary, RolloutEnded
from ledger.outcome import LIMITS


@dataclass(frozen=True)
class Attribution:
    """Whose fault a rollout's failure is.

    Attributes:
        rollout_id: which rollout.
        boundary: `none` where it succeeded and nothing failed, `unknown` where nobody can say.
        fault: kind of fault, from `audit.taxonomy`; None where there is no boundary.
        reason: in our own words.
        evidence_event_ids: events that show it, in the order in which they happened.
        policy_evidence: whether the reward may be evidence about the policy; None: unknown, so excluded.
    """

    rollout_id: str
    boundary: Boundary | Literal["none", "unknown"]
    fault: str | None
    reason: str
    evidence_event_ids: tuple[str, ...]
    policy_evidence: bool | None

    def as_json(self) -> dict[str, Any]:
        """The attribution as a JSON object."""
        return {
            "rollout_id": self.rollout_id, "boundary": self.boundary, "fault": self.fault, "reason": self.reason,
            "evidence_event_ids": list(self.evidence_event_ids), "policy_evidence": self.policy_evidence,
        }  # fmt: skip


def attribute(subject: RolloutSubject, results: Sequence[CheckResult], replays: Replays) -> Attribution:
    """Whose fault it is that a rollout failed.

    Faults from which the policy recovered do not count; of two causes at one place environment comes before harness, verifier and task;
    the task is to blame only where there is a valid verdict.

    Args:
        subject: the rollout.
        results: of the checks of rollouts; what fails with a kind of fault is a cause.
        replays: what running its world and its verifier again showed.
    """
    if subject.ended is None:
        return _unknown(subject, "it has not ended", ())
    ended_id, ended = subject.ended
    if ended.superseded or ended.ended_by == "cancelled":
        return _unknown(subject, "it was called off or superseded", (ended_id,))
    if (broken := _broken(subject, ended_id, ended, results)) is not None:
        return broken
    verdict = counting_verdict(subject)
    judged = _verdict_fault(subject, verdict, results, replays)
    if judged is not None:
        return judged
    assert verdict is not None
    if verdict.passed:
        return _succeeded(subject, verdict, replays)
    return _failed(subject, verdict, (ended_id, ended), results, replays)


def _broken(subject: RolloutSubject, ended_id: str, ended: RolloutEnded, results: Sequence[CheckResult]) -> Attribution | None:
    """The boundary at which the rollout broke off, before anybody could judge it."""
    evidence = (*_last_acts(subject), ended_id)
    detail = "" if ended.detail is None else subject.text(ended.detail)
    if ended.ended_by == "world_error":
        fault = "reset_failed" if not subject.snapshots else "connection_dropped" if "connection" in detail.lower() else "world_crashed"
        return _blamed(subject, fault, f"the world broke: {ended.reason}", evidence)
    if ended.ended_by == "harness_error":
        fault = "reset_failed" if not subject.snapshots and not subject.calls else "harness_crashed"
        return _blamed(subject, fault, f"the harness broke: {ended.reason}", evidence)
    if ended.ended_by == "engine_error":
        missing = next((one for one in results if one.status == "fail" and one.fault == "credentials_missing"), None)
        fault = "engine_failed" if missing is None else "credentials_missing"
        return _blamed(subject, fault, f"the engine gave no answer: {ended.reason}", evidence)
    return None


def _verdict_fault(
    subject: RolloutSubject, verdict: CountingVerdict | None, results: Sequence[CheckResult], replays: Replays
) -> Attribution | None:
    """What is wrong with the verdict itself; None where it is valid."""
    if verdict is None:
        valued = [(event_id, body) for event_id, body in subject.rewarded if body.value is not None]
        if valued:
            fault = "verdict_missing" if not valued[-1][1].verdict_ids else "reward_without_verdict"
            return _blamed(subject, fault, f"a reward of {valued[-1][1].value:g} and no verdict that counts", (valued[-1][0],))
        missing = next((one for one in results if one.status == "fail" and one.fault == "verdict_missing"), None)
        if missing is not None and missing.evidence_event_ids:
            return _blamed(subject, "verdict_missing", missing.reason, missing.evidence_event_ids)
        return _unknown(subject, "nobody has judged it", () if subject.ended is None else (subject.ended[0],))
    if verdict.status == "error":
        late = any(word in verdict.error.lower() for word in ("timeout", "timed out"))
        fault, told = ("verifier_timeout", "the verifier took too long") if late else ("verifier_crashed", "the verifier broke")
        return _blamed(subject, fault, told, (verdict.event_id,))
    if verdict.passed is None:
        return _blamed(subject, "verifier_crashed", "the verifier could not decide a condition that success requires", (verdict.event_id,))
    if verdict.by_person:
        return None
    said = "passed" if verdict.passed else "failed"
    other = "failed" if verdict.passed else "passed"
    wrong = "false_accept" if verdict.passed else "false_reject"
    again = set(replays.rejudged)
    if len(again) > 1 or again == {"error"}:
        told = f"the verifier said {said}; of the same end it says {', '.join(replays.rejudged)}"
        return _blamed(subject, "verifier_nondeterministic", told, _end_ids(subject, verdict))
    if again == {other}:
        return _blamed(
            subject, wrong, f"the verifier said {said}; of the recorded end it says {other} each time", _end_ids(subject, verdict)
        )
    if not verdict.passed and replays.is_reference_end:
        told = "the verifier said failed; the end is the reference's in all that the world calls material"
        return _blamed(subject, wrong, told, _end_ids(subject, verdict))
    against = [name for name, passed in replays.opinions.items() if passed is False]
    if verdict.passed and replays.is_reference_end is False and len(against) >= 2 and len(against) == len(replays.opinions):
        told = f"the verifier said passed; the end is not the reference's, and {', '.join(against)} all say failed"
        return _blamed(subject, wrong, told, _end_ids(subject, verdict))
    return None


def _succeeded(subject: RolloutSubject, verdict: CountingVerdict, replays: Replays) -> Attribution:
    open_causes = [cause for cause in replays.causes if not cause.recovered and cause.reproduced < REPEATS]
    evidence = tuple(dict.fromkeys([*(event for cause in open_causes for event in cause.evidence_event_ids), verdict.event_id]))
    if open_causes and replays.repaired is False:
        told = f"it succeeded, and would not have in a healthy world: {open_causes[0].reason}"
        return Attribution(subject.rollout_id, "none", None, told, evidence, None)
    return Attribution(subject.rollout_id, "none", None, "it succeeded", (verdict.event_id,), True)


def _failed(
    subject: RolloutSubject, verdict: CountingVerdict, ended: tuple[str, RolloutEnded], results: Sequence[CheckResult], replays: Replays
) -> Attribution:
    """The earliest cause that suffices for a failed verdict that is valid."""
    undecided: Cause | None = None
    for cause in _in_order([*replays.causes, *_of_checks(subject, results, replays)]):
        if cause.recovered or cause.reproduced == REPEATS:
            continue
        if replays.repaired is not True and replays.doomed is not None and replays.doomed <= cause.call:
            break
        if not cause.certain:
            undecided = undecided or cause
        elif replays.repaired is not False or cause.related is not False:
            if undecided is not None:
                break
            return _blamed(subject, cause.fault, cause.reason, (*cause.evidence_event_ids, verdict.event_id))
    if undecided is not None:
        told = f"replays disagree about what was seen: {undecided.reason}"
        return _unknown(subject, told, (*undecided.evidence_event_ids, verdict.event_id))
    if replays.unreplayable:
        told = f"whether a healthy world does the same is not known: {replays.unreplayable}"
        return _unknown(subject, told, (ended[0], verdict.event_id))
    fault, told = _task_fault(subject, verdict, ended[1])
    return Attribution(subject.rollout_id, "task", fault, told, (*_last_acts(subject), ended[0], verdict.event_id), True)


def _task_fault(subject: RolloutSubject, verdict: CountingVerdict, ended: RolloutEnded) -> tuple[str, str]:
    same = "and a healthy world does the same with its actions"
    if ended.ended_by in LIMITS:
        return "limit_reached", f"it reached its {ended.ended_by.replace('_', ' ')}: {ended.reason}; {same}"
    if not subject.tools:
        return "no_action", "it called no tool"
    if verdict.side_effects:
        return "side_effect", f"its verdict names {verdict.side_effects} side effects, {same}"
    return "wrong_end_state", f"its verdict is failed, {same}"


def _of_checks(subject: RolloutSubject, results: Sequence[CheckResult], replays: Replays) -> list[Cause]:
    """Causes that checks name, as far as replays have not found them themselves."""
    known = {cause.fault for cause in replays.causes}
    found = []
    for one in results:
        if one.status == "fail" and one.fault in CAUSAL and one.fault not in known and one.evidence_event_ids:
            if boundary_of(one.fault) == "environment" and not replays.unreplayable:
                # A replay has looked at everything that the world did.
                continue
            found.append(Cause(one.fault, one.reason, one.evidence_event_ids, _call_at(subject, one.evidence_event_ids)))
    return found


def _call_at(subject: RolloutSubject, event_ids: Sequence[str]) -> int:
    """Number of tool calls before the earliest of the events in the rollout's stream; all of them for events elsewhere."""
    version = {event.event_id: event.version for event in subject.own}
    at = min((version[event_id] for event_id in event_ids if event_id in version), default=None)
    return len(subject.tools) if at is None else sum(version[event_id] < at for event_id, _ in subject.tools)


def _in_order(causes: Sequence[Cause]) -> list[Cause]:
    return sorted(causes, key=lambda cause: (cause.call, TIES.index(boundary_of(cause.fault))))


def _end_ids(subject: RolloutSubject, verdict: CountingVerdict) -> tuple[str, ...]:
    return (*(event_id for event_id, _ in subject.snapshots[-1:]), verdict.event_id)


def _last_acts(subject: RolloutSubject) -> tuple[str, ...]:
    return tuple(event_id for event_id, _ in subject.tools[-1:])


def _blamed(subject: RolloutSubject, fault: str, reason: str, evidence: tuple[str, ...]) -> Attribution:
    return Attribution(subject.rollout_id, boundary_of(fault), fault, reason, tuple(dict.fromkeys(evidence)), False)


def _unknown(subject: RolloutSubject, reason: str, evidence: tuple[str, ...]) -> Attribution:
    return Attribution(subject.rollout_id, "unknown", None, reason, evidence, None)
