"""What was tried again says so. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import started_id
from audit.rollout_checks._faults import Fault, found
from ledger.lineage import calls_digest


@answers("hidden_retry")
def hidden_retry(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each attempt has those before it, each call that repeats a failed one names it, and the end binds the calls that are there.

    Several samples of one request are no retry: none of them failed.

    Source: formats.md 0.2.
    """
    faults = []
    mine = subject.started
    known = {one.attempt for one in subject.siblings if one.slot == mine.slot}
    if missing := [number for number in range(1, mine.attempt) if number not in known]:
        faults.append(Fault({"attempt": mine.attempt, "missing_attempts": missing}, (started_id(subject),)))
    failed: dict[str, str | None] = {}
    for call in subject.calls:
        if call.sent is None:
            continue
        asked = call.sent.request_digest
        if asked in failed and call.sent.retry_of is None:
            faults.append(Fault({"call": call.sent.index, "repeats": "a failed call"}, (failed[asked], call.sent_id)))
        if call.answered is not None and call.answered.status != "completed":
            failed[asked] = call.answered_id
    if subject.ended is not None:
        end_id, end = subject.ended
        # An answer of a call may come after the end, so the end binds the first of them.
        bound = [call.call_id for call in subject.calls][: end.model_calls]
        if len(bound) != end.model_calls or calls_digest(bound) != end.calls_digest:
            faults.append(Fault({"calls_bound": end.model_calls, "calls_there": len(subject.calls)}, (end_id,)))
    return [
        found(
            "hidden_retry", faults, why="something was tried again and does not say so", kind="hidden_retry",
            remedy="record every attempt, and name the call that a retry repeats",
            measured={"attempt": mine.attempt, "calls": len(subject.calls)},
        )
    ]  # fmt: skip
