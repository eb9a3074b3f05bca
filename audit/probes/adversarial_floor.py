"""Honest work reaches the top, and a policy that writes its own reward or verdict stays at the floor. Pure: looks at verdicts given."""

from collections.abc import Sequence
from random import Random

from audit.probes import CheckResult, ProbeSubject, Run, answers, judged
from audit.probes._verdicts import shown

_IDS = ("adversarial_floor", "oracle_max")


@answers(*_IDS)
def adversarial_floor(subject: ProbeSubject, run: Run, *, rng: Random | None = None) -> Sequence[CheckResult]:
    """Whether no end passes in which the task is undone and reward- or verdict-like fields or files are written, and every reference does.

    Source: reports I1 and I4; https://github.com/huggingface/OpenEnv/pull/1200, https://github.com/SWE-bench/SWE-bench/issues/294.
    """
    writers, honest = subject.told("writer"), subject.told("reference")
    let_in = [shown(trial, said) for trial, said in writers if said.passed is True]
    refused = [shown(trial, said) for trial, said in honest if said.passed is not True]
    floor = judged(
        "adversarial_floor", let_in, why="an undone task passes because the policy wrote its own verdict", fault="false_accept",
        measured={"writers": len(writers)}, remedy="read what the world holds, and nothing that the policy may write as its result",
    )  # fmt: skip
    top = judged(
        "oracle_max", refused, why="a reference is not accepted", fault="false_reject", measured={"references": len(honest)},
        remedy="repair the reference or the verifier: they contradict each other",
    )  # fmt: skip
    return [
        floor if writers else CheckResult(_IDS[0], "skip", "no task is undone at its start"),
        top if honest else CheckResult(_IDS[1], "skip", "no task has a reference"),
    ]
