"""Arguments of a tool call are what was sampled, to the last blank. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._answers import calls_in, sampled_text
from audit.rollout_checks._faults import Fault, found, skipped
from audit.rollout_subject import SeenCall
from ledger.canonical import parse
from ledger.errors import CanonicalError
from ledger.events import ToolCalled


@answers("args_roundtrip")
def args_roundtrip(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the parsed arguments of each tool call equal the argument text, and the call as the sampled tokens spell it.

    Other spellings of the same JSON are equal. A call that the sampled text does not spell in a known markup, such as a compact line, is
    compared with its argument text alone: each text among the arguments stands in it as it is.

    Source: case C7.
    """
    calls = {call.call_id: call for call in subject.calls}
    spelled = {call_id: _spelled(subject, calls.get(call_id)) for call_id in {body.model_call_id for _, body in subject.tools} if call_id}
    place: dict[str, int] = {}
    faults, looked = [], 0
    for event_id, body in subject.tools:
        mine = spelled.get(body.model_call_id or "", [])
        at = place.get(body.model_call_id or "", 0)
        place[body.model_call_id or ""] = at + 1
        if body.arguments_parsed is None:
            continue
        looked += 1
        parsed = subject.json(body.arguments_parsed)
        difference = _difference(parsed, subject.text(body.arguments_sampled), mine[at] if at < len(mine) else None)
        if difference is not None:
            held = None if body.model_call_id is None or body.model_call_id not in calls else calls[body.model_call_id].answered_id
            faults.append(Fault({"tool_call": body.index, "tool": _name(subject, body), **difference}, (held, event_id)))
    if not looked:
        return skipped("args_roundtrip", "no tool call of the rollout has parsed arguments")
    return [
        found(
            "args_roundtrip", faults, why="arguments are not what was sampled", kind="arguments_changed", measured={"tool_calls": looked},
            remedy="parse the sampled text without stripping or rewriting values",
        )
    ]  # fmt: skip


def _spelled(subject: RolloutSubject, call: SeenCall | None) -> list[dict[str, Any]]:
    text = None if call is None else sampled_text(subject, call)
    return [] if text is None or ("<" not in text and "{" not in text) else [arguments for _, arguments in calls_in(text)]


def _difference(parsed: Any, sampled: str, spelled: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The first argument that differs, with both values."""
    if spelled is not None and isinstance(parsed, Mapping):
        for name in sorted(spelled.keys() | parsed.keys()):
            if not _same(parsed.get(name), spelled.get(name)):
                return {"argument": name, "parsed": repr(parsed.get(name)), "sampled": repr(spelled.get(name))}
    # Some harnesses encode the arguments twice.
    told = _again(sampled)
    told = _again(told) if isinstance(told, str) and told != sampled else told
    if not isinstance(told, Mapping):
        lost = next((leaf for leaf in _texts(parsed) if leaf not in sampled and json.dumps(leaf)[1:-1] not in sampled), None)
        return None if lost is None else {"parsed": repr(lost), "sampled": repr(sampled)}
    return None if told == parsed else {"parsed": repr(parsed), "sampled": repr(sampled)}


def _same(parsed: Any, spelled: Any) -> bool:
    return bool(parsed == spelled) or (isinstance(spelled, str) and not isinstance(parsed, str) and _again(spelled) == parsed)


def _again(text: str) -> Any:
    try:
        return parse(text)
    except CanonicalError:
        return text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item)


def _name(subject: RolloutSubject, body: ToolCalled) -> str:
    return subject.text(body.name)
