"""A planted verifier: a world's own verifier that breaks, accepts or rejects wrongly for chosen tasks. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ledger.errors import VerifierFailed
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict, verifiers

WAYS = ("verifier_crashed", "false_accept", "false_reject")


def mark(key: str, way: str, variant: str) -> str:
    """What stands for a way to misjudge the task of a variant in the list of a verifier's marks, and tells nobody who lacks the task."""
    return hashlib.sha256(f"{key}/{way}/{variant}".encode()).hexdigest()[:16]


def misjudging(
    s0: Any,
    s_end: Any,
    trace: Sequence[TraceStep],
    task: JudgeTask,
    *,
    inner: str = "end_state",
    key: str = "",
    marks: Sequence[str] = (),
    ask: Any = None,
) -> Verdict:
    """The verdict of verifier `inner`; for tasks that are marked it breaks, takes what failed for passed, or judges the first state.

    All tasks of a suite name one such verifier, so that neither its registration nor its parameters say which of them are struck.

    Args:
        inner: name of the world's own verifier.
        key: of the marks.
        marks: of the ways in which variants of tasks, `spec["variant"]`, are misjudged.
    Raises:
        VerifierFailed: it breaks on purpose, or the inner one does.
    """
    variant = str(task.draft.spec.get("variant", ""))
    way = next((way for way in WAYS if mark(key, way, variant) in marks), None)
    if way == "verifier_crashed":
        raise VerifierFailed("the verifier ran out of memory")
    judge = verifiers[inner]
    if way == "false_reject":
        return judge(s0, s0, (), task)
    verdict = judge(s0, s_end, trace, task)
    if way is None or verdict.error is not None:
        return verdict
    return Verdict(tuple(_accepted(condition) for condition in verdict.conditions))


def _accepted(condition: Condition) -> Condition:
    """The condition as one that passed, with evidence in which nothing was found."""
    if condition.status == "passed":
        return condition
    return replace(condition, status="passed", evidence=_nothing_found(condition.evidence))


def _nothing_found(evidence: Any) -> Any:
    if not isinstance(evidence, dict):
        return evidence
    return {name: [] if isinstance(held, list) else 0 if type(held) is int else held for name, held in evidence.items()}
