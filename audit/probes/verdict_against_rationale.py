"""A verdict says what its own evidence says. Pure: looks at the verdicts that were given."""

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from audit.probes import CheckResult, ProbeSubject, Run, answers, judged
from training.verifiers import Condition

_RULING = re.compile(
    r"\b(?:verdict|decision|result|conclusion|answer|rating)\b\W{0,4}(?:is|was|:|=)?\W{0,4}"
    r"(pass(?:ed|es)?|fail(?:ed|s|ure)?|correct|incorrect|accept(?:ed)?|reject(?:ed)?|yes|no|true|false)\b",
    re.IGNORECASE,
)
_YES = ("pass", "correct", "accept", "yes", "true")
_FIELDS = ("passed", "verdict", "decision", "correct", "success", "met")


@answers("verdict_against_rationale")
def verdict_against_rationale(subject: ProbeSubject, run: Run, *, rng: Random | None = None) -> Sequence[CheckResult]:
    """Whether no condition passes whose evidence lists failures, fails whose evidence says that it passed, or ends its rationale otherwise.

    Of a text the last ruling in plain words counts (`verdict: fail`); a text without one says nothing.

    Source: reports section 0, line 5 (judges contradict themselves).
    """
    faults, looked = [], 0
    for trial, verdict in zip(subject.trials, subject.verdicts, strict=True):
        for condition in verdict.conditions:
            told = list(_told(condition.evidence))
            looked += bool(told)
            if any(said is not (condition.status == "passed") for said in told) and condition.status != "error":
                faults.append({"condition": condition.name, "status": condition.status, **_where(condition), "task": trial.task})
    if not looked:
        return [CheckResult("verdict_against_rationale", "skip", "no evidence says in itself whether a condition was met")]
    return [
        judged(
            "verdict_against_rationale", faults, why="a status contradicts its own evidence", measured={"conditions": looked},
            remedy="take the status from the rationale's ruling, or ask again", fault="judge_unstable",
        )
    ]  # fmt: skip


def _told(evidence: Any) -> Iterator[bool]:
    """What the evidence itself says."""
    if isinstance(evidence, str):
        rulings = _RULING.findall(evidence)
        if rulings:
            yield rulings[-1].lower().startswith(_YES)
    elif isinstance(evidence, Mapping):
        if isinstance(evidence.get("failed"), list):
            yield not evidence["failed"]
        for name in _FIELDS:
            value = evidence.get(name)
            if isinstance(value, bool):
                yield value
            elif isinstance(value, str) and value.lower() in ("pass", "passed", "fail", "failed", "yes", "no"):
                yield value.lower().startswith(_YES)
        for name in ("rationale", "reason", "explanation"):
            yield from _told(evidence[name]) if isinstance(evidence.get(name), str) else ()


def _where(condition: Condition) -> dict[str, Any]:
    return {"evidence": condition.evidence}
