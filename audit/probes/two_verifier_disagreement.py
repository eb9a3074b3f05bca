"""Where another verifier of the same tasks says otherwise, and whether the reference itself can be judged. Runs the other verifiers."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from audit.probes import CheckResult, ProbeSubject, Run, answers, judged
from audit.probes._verdicts import shown

_IDS = ("two_verifier_disagreement", "gold_unparseable")
_SHOWN = 3


@answers(*_IDS)
def two_verifier_disagreement(subject: ProbeSubject, run: Run, *, rng: Random | None = None, most: float = 0.0) -> Sequence[CheckResult]:
    """Whether the other verifiers pass what this one passes, on right and wrong ends; and whether no reference is undecidable.

    A disagreement says that one of the two is wrong, not which: what both are measured against is the label of the end.

    Args:
        most: share of ends on which another verifier may differ.

    Source: reports I7; https://github.com/verl-project/verl/pull/545, https://github.com/huggingface/open-r1/issues/420.
    """
    tried = subject.told("reference", "equivalent", "mutant", "no_op")
    rates: dict[str, float] = {}
    faults: list[dict[str, Any]] = []
    for name, other in subject.others.items():
        kinds: Counter[str] = Counter()
        for trial, said in tried:
            theirs = other(trial.artefact)
            if said.passed is not None and theirs.passed is not None and said.passed is not theirs.passed:
                kinds[trial.kind] += 1
                if kinds[trial.kind] == 1 and kinds.total() <= _SHOWN:
                    faults.append({"other": name, "other_says": theirs.passed, **shown(trial, said)})
        rates[name] = round(kinds.total() / len(tried), 4) if tried else 0.0
    undecided = [shown(trial, said) for trial, said in subject.told("reference") if said.passed is None]
    differs = any(rate > most for rate in rates.values())
    second = judged(
        "two_verifier_disagreement", faults if differs else [], why="another verifier says otherwise", measured={"rates": rates},
        remedy="settle the ends that are shown; they are the queue",
    )  # fmt: skip
    return [
        second if rates else CheckResult(_IDS[0], "skip", "no other verifier judges these tasks"),
        judged("gold_unparseable", undecided, why="a reference cannot be judged", fault="verifier_crashed",
               measured={"references": len(subject.told("reference"))}, remedy="repair the verifier or leave the task out"),
    ]  # fmt: skip
