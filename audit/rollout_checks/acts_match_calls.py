"""Every tool call that an answer asks for is carried out or refused, and none that nobody asked for. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._answers import asked_calls, message
from audit.rollout_checks._calls import completed
from audit.rollout_checks._faults import Fault, found, skipped
from audit.rollout_subject import SeenCall
from ledger.events import ModelCalled

_DROPPED, _ADDED = "call_without_act", "act_without_call"


@answers(_DROPPED, _ADDED)
def acts_match_calls(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether as many tool calls were recorded for each answer as it asks for.

    In the native format the upstream lists them. In compact lines the leading lines that begin with the name of a tool are calls; there
    only what is missing can be told. The last answer of a rollout that broke or was cut, and one that a limit cut, need not be acted on.

    Source: cases C7, A20.
    """
    acts = Counter(body.model_call_id for _, body in subject.tools)
    native = subject.harness is None or subject.harness.tool_format == "native"
    known = _tools(subject)
    last = subject.calls[-1].call_id if subject.calls else None
    cut = subject.ended is None or subject.ended[1].ended_by != "finished"
    dropped, added, looked = [], [], 0
    for call, answered in completed(subject):
        asked = len(asked_calls(subject, call)) if native else _lines(subject, call, known)
        looked += 1
        seen = {"call": answered.index, "asked": asked, "acts": acts[call.call_id]}
        if acts[call.call_id] < asked and answered.finish_reason != "length" and not (cut and call.call_id == last):
            dropped.append(Fault(seen, (call.answered_id,)))
        if native and acts[call.call_id] > asked and not _in_text(subject, call, answered):
            mine = (event_id for event_id, body in subject.tools if body.model_call_id == call.call_id)
            added.append(Fault(seen, (call.answered_id, *mine)))
    if not looked:
        return [*skipped(_DROPPED, "no answer is complete"), *skipped(_ADDED, "no answer is complete")]
    results = [
        found(
            _DROPPED, dropped, why="an answer asks for more tool calls than were made", kind="call_dropped_by_parser",
            remedy="carry out or refuse every call of an answer", measured={"answers": looked},
        )
    ]  # fmt: skip
    if not native:
        return [*results, *skipped(_ADDED, "calls are read from the text by rules of the harness")]
    return [
        *results,
        found(
            _ADDED, added, why="more tool calls were made than an answer asks for", kind="call_executed_twice",
            remedy="make each call once", measured={"answers": looked},
        ),
    ]  # fmt: skip


def _tools(subject: RolloutSubject) -> set[str]:
    """Names of tools that the rollout called, or the reference calls."""
    names = {subject.text(body.name) for _, body in subject.tools if body.error_class != "unknown_tool"}
    reference = None if subject.bundle is None else subject.bundle.draft.reference
    return names | {str(call.get("name")) for turn in (reference or {}).get("turns", ()) for call in turn}


def _lines(subject: RolloutSubject, call: SeenCall, known: set[str]) -> int:
    text = str(message(subject, call).get("content") or "")
    count = 0
    for line in (line.split() for line in text.splitlines() if line.strip()):
        if line[0] not in known:
            break
        count += 1
    return count


def _in_text(subject: RolloutSubject, call: SeenCall, answered: ModelCalled) -> bool:
    """Whether a harness that is not known here may have read calls from the text, or the answer is not there to look at."""
    return answered.response is None or (subject.harness is None and not asked_calls(subject, call))
