"""A verifier for any world: the end state must equal the reference's end state in all that the world calls material."""

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.canonical import digest
from ledger.errors import VerifierFailed
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict
from training.worlds import Change
from training.worlds.difference import differences, is_within, pointer

_EVIDENCE_ROWS = 50


def end_state(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict of a state difference: one condition for each top-level part of the material state, or one named `state`.

    Evidence lists path, expected and seen of at most 50 differing places and their number. Side effects are those of them which the
    reference leaves as they were at the request. Numbers that are equal are equal (1 and 1.0); true is not 1.

    Args:
        s0: the world's view at the request.
        s_end: the world's view at the end.
        trace: not used.
        task: its reference holds `end_state`, the material JSON after the reference, or only `end_state_digest`, its canonical SHA-256.
        ask: not used.
    Raises:
        VerifierFailed: the bundle has no reference end state.
    """
    reference = task.draft.reference or {}
    seen = task.material(s_end)
    if reference.get("end_state") is None:
        return _by_digest(seen, reference.get("end_state_digest"), task)
    expected = reference["end_state"]
    changes = differences(expected, seen).changes
    moved = [change.path for change in differences(task.material(s0), expected).changes]
    side_effects = tuple(
        {"path": change.path, "before": change.before, "after": change.after}
        for change in changes
        if not any(is_within(change.path, place) or is_within(place, change.path) for place in moved)
    )
    if not (isinstance(expected, Mapping) and isinstance(seen, Mapping) and (expected or seen)):
        return Verdict((_condition("state", changes),), side_effects)
    parts = sorted(expected.keys() | seen.keys())
    per_part = {part: [change for change in changes if is_within(change.path, pointer(part))] for part in parts}
    return Verdict(tuple(_condition(part, found) for part, found in per_part.items()), side_effects)


def _condition(name: str, changes: Sequence[Change]) -> Condition:
    rows = [{"path": change.path, "expected": change.before, "seen": change.after} for change in changes[:_EVIDENCE_ROWS]]
    return Condition(name, "failed" if changes else "passed", {"differences": rows, "count": len(changes)})


def _by_digest(seen: Any, expected: Any, task: JudgeTask) -> Verdict:
    if not isinstance(expected, str):
        raise VerifierFailed(f"bundle {task.draft.name!r} has no reference end state; it needs reference.end_state or end_state_digest")
    found = digest(seen, allow_nul=True)
    return Verdict((Condition("state", "passed" if found == expected else "failed", {"expected_digest": expected, "seen_digest": found}),))
