"""Nothing that a policy can see holds the solution: neither the request and the tools, nor the states and observations. Runs worlds."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.bundle_batch import words_of
from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.paths import Step

_IDS = ("semantic.no_solution_leakage", "runtime.oracle_containment")
_LEAST_WORDS = 4


@answers(*_IDS)
def solution_leak(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a state-changing call of the reference stands, name and arguments in their order, in a text that a policy reads.

    The request and the tools' descriptions are told (`semantic.no_solution_leakage`); the initial state and the answers of reading calls
    can be looked up (`runtime.oracle_containment`). A call of fewer than four words proves nothing and is not looked for.

    Source: OpenEnv RFC 008, semantic.no_solution_leakage and runtime.oracle_containment.
    """
    reference = subject.reference
    if reference is None:
        return [CheckResult(name, "skip", "there is no reference that could leak", depends_on="semantic.oracle_max") for name in _IDS]
    draft = subject.draft
    calls = [
        (step, words) for step in (reference.walk.steps[index] for index in subject.writes) if len(words := _words(step)) >= _LEAST_WORDS
    ]
    told = [("request", draft.request)] + [(f"tool {name}", tool) for name, tool in sorted(subject.tools.items())]
    found: list[tuple[str, Any]] = [("initial state", subject.start_view)]
    first_write = min(subject.writes, default=len(reference.walk.trace))
    found += [(f"answer of {step.call.name}", step.observation.content) for step in reference.walk.trace[:first_write]]
    measured = {"calls": len(calls)}
    remedy = "take the solution out of what a policy can read"
    return [
        judged(name, list(_leaks(calls, texts)), why="the solution is readable", remedy=remedy, measured={**measured, "texts": len(texts)})
        for name, texts in zip(_IDS, (told, found), strict=True)
    ]


def _leaks(calls: Sequence[tuple[Step, list[str]]], texts: Sequence[tuple[str, Any]]) -> Iterator[Any]:
    for place, value in texts:
        text = f" {' '.join(words_of(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))} "
        for step, words in calls:
            if f" {' '.join(words)} " in text:
                yield {"place": place, "call": step.as_json()}


def _words(step: Step) -> list[str]:
    return words_of(f"{step.name} {json.dumps(dict(step.arguments), ensure_ascii=False)}")
