"""Doing nothing and saying nothing do not pass. Pure: looks at verdicts given."""

from collections.abc import Sequence
from random import Random

from audit.probes import CheckResult, ProbeSubject, Run, answers, judged
from audit.probes._verdicts import shown

_IDS = ("no_op_rejected", "empty_answer_rejected")


@answers(*_IDS)
def no_op_and_empty_answer(subject: ProbeSubject, run: Run, *, rng: Random | None = None) -> Sequence[CheckResult]:
    """Whether no call at all passes only where nothing was to be done, and an empty answer never passes.

    Source: reports I11; https://github.com/huggingface/OpenEnv/issues/778 and RFC 008, semantic.canary_floor.
    """
    results = []
    for name, sort, what in zip(_IDS, ("no_op", "empty"), ("no call at all", "an empty answer"), strict=True):
        tried = [(trial, said) for trial, said in subject.told(sort) if not trial.right]  # type: ignore[arg-type]
        faults = [shown(trial, said) for trial, said in tried if said.passed is True]
        results.append(
            judged(name, faults, why=f"{what} passes", remedy="ask for what an untouched state lacks", measured={"tasks": len(tried)},
                   fault="false_accept")
            if tried
            else CheckResult(name, "skip", "no task is undone at its start")
        )  # fmt: skip
    return results
