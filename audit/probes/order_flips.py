"""A verdict does not depend on the order in which a JSON lists its keys, and a judge repeats itself. Runs the verifier."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

from audit.probes import CheckResult, ProbeSubject, Run, answers, judged
from audit.probes._verdicts import chosen, shown, statuses

_ENDS, _ORDERS = 6, 4
_IDS = ("order_flips", "judge_self_agreement")


@answers(*_IDS)
def order_flips(
    subject: ProbeSubject, run: Run, *, rng: Random | None = None, judgements: int = 5, agreement: float = 1.0
) -> Sequence[CheckResult]:
    """Whether ends whose objects list their keys in another order get the same statuses; and of a judge, how often two of several
    judgements of one and the same end agree, averaged over ends.

    Args:
        judgements: of one end, at least 2.
        agreement: share of agreeing pairs that is asked for, in [0, 1].

    Source: reports J3; https://github.com/UiPath/coder_eval/pull/53.
    """
    drawn = Random(0) if rng is None else rng
    tried = chosen(subject.told("reference", "equivalent", "mutant", "no_op"), _ENDS, drawn)
    flips = []
    for trial, said in tried:
        for _ in range(_ORDERS):
            at = trial.artefact
            other = run(replace(at, s0=_shuffled(at.s0, drawn), s_end=_shuffled(at.s_end, drawn)))
            if statuses(other) != statuses(said):
                flips.append(shown(trial, said, in_another_order=statuses(other)))
                break
    flipped = judged(
        "order_flips", flips, why="the order of keys changes the verdict", measured={"ends": len(tried), "orders": _ORDERS},
        remedy="sort what is shown to the verifier", fault="judge_unstable" if subject.kind == "judge" else "verifier_nondeterministic",
    )  # fmt: skip
    return [flipped, _agreeing(subject, run, tried, judgements, agreement)]


def _agreeing(subject: ProbeSubject, run: Run, tried: Sequence[Any], judgements: int, agreement: float) -> CheckResult:
    if subject.kind != "judge":
        return CheckResult("judge_self_agreement", "skip", f"a {subject.kind} is no judge; verifier_determinism asks more of it")
    shares, faults = [], []
    for trial, _ in tried:
        passed = [run(trial.artefact).passed for _ in range(judgements)]
        pairs = list(combinations(passed, 2))
        shares.append(sum(one is other for one, other in pairs) / len(pairs))
        if shares[-1] < 1:
            faults.append({"kind": trial.kind, "task": trial.task, "said": passed, "agreement": shares[-1]})
    if not shares:
        return CheckResult("judge_self_agreement", "skip", "there is no end to judge")
    mean = sum(shares) / len(shares)
    measured = {"agreement": round(mean, 4), "ends": len(shares), "judgements": judgements}
    return judged(
        "judge_self_agreement", faults if mean < agreement else [], measured=measured, fault="judge_unstable",
        why=f"{mean:.3f} of the pairs of judgements agree, needed {agreement}", remedy="take a majority, or a judge that repeats itself",
    )  # fmt: skip


def _shuffled(value: Any, rng: Random) -> Any:
    if isinstance(value, Mapping):
        keys = list(value)
        rng.shuffle(keys)
        return {key: _shuffled(value[key], rng) for key in keys}
    # Rows of a list have an order that may mean something.
    return [_shuffled(item, rng) for item in value] if isinstance(value, list) else value
