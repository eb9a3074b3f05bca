"""A verifier for any world from conditions that a task brings along: each points at the place in the state that decides it."""

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.errors import VerifierFailed
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict
from training.worlds.difference import differences, is_within

NOTHING_ELSE = "nothing_else"


def pointed_conditions(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict on the task's own conditions, each with the place that it cites, and on whether anything else changed.

    A condition holds when the material state has its value at its place; null is a place that is empty or not there. Everything that
    differs from the request and lies outside the conditions' places is a side effect.

    Args:
        s0: the world's view at the request.
        s_end: the world's view at the end.
        trace: not used.
        task: its spec holds `conditions`, a list of objects with name, place (an RFC 6901 pointer into the material state) and value.
        ask: not used.
    Raises:
        VerifierFailed: there are no conditions, one cites no place, or two share a name.
    Source: WorkRover (arXiv 2610.18067), every criterion cites an artefact; audit rule AUD-05.
    """
    wanted = _conditions(task)
    before, after = task.material(s0), task.material(s_end)
    judged = []
    for item in wanted:
        seen = value_at(after, item["place"])
        changed = differences(item["value"], seen).changes
        evidence = {"place": item["place"], "expected": item["value"], "seen": seen}
        judged.append(Condition(item["name"], "failed" if changed else "passed", evidence))
    places = [item["place"] for item in wanted]
    strays = [
        {"path": change.path, "before": change.before, "after": change.after}
        for change in differences(before, after).changes
        if not any(is_within(change.path, place) or is_within(place, change.path) for place in places)
    ]
    judged.append(Condition(NOTHING_ELSE, "failed" if strays else "passed", {"outside": places, "changed": strays}))
    return Verdict(tuple(judged), tuple(strays))


def value_at(value: Any, pointer: str) -> Any:
    """What stands at an RFC 6901 pointer, or None where nothing does."""
    for key in (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list | tuple) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def _conditions(task: JudgeTask) -> list[Mapping[str, Any]]:
    found = task.draft.spec.get("conditions")
    if not isinstance(found, list | tuple) or not found:
        raise VerifierFailed(f"spec of bundle {task.draft.name!r} needs conditions; seen {found!r}")
    for item in found:
        if not isinstance(item, Mapping) or not str(item.get("place", "")).startswith("/") or not item.get("name") or "value" not in item:
            raise VerifierFailed(f"a condition of bundle {task.draft.name!r} needs name, place and value; seen {item!r}")
    names = [item["name"] for item in found]
    if len({*names, NOTHING_ELSE}) != len(names) + 1:
        raise VerifierFailed(f"conditions of bundle {task.draft.name!r} are named {names}; allowed: different names, none {NOTHING_ELSE!r}")
    return list(found)
