"""The verifier says the same of one and the same end, ten times over. Runs the verifier."""

from collections.abc import Sequence
from random import Random

from audit.probes import CheckResult, ProbeSubject, Run, answers, judged
from audit.probes._verdicts import chosen, shown, statuses, verdict_digest

_ENDS = 6


@answers("verifier_determinism", explains=("judge_self_agreement", "order_flips"))
def verifier_determinism(subject: ProbeSubject, run: Run, *, rng: Random | None = None, runs: int = 10) -> Sequence[CheckResult]:
    """Whether `runs` verdicts on each of some right and wrong ends agree in every status, in their evidence and in their side effects.

    Args:
        runs: verdicts on one end.

    Source: reports I10; https://github.com/inclusionAI/AReno/issues/223.
    """
    tried = chosen(subject.told("reference", "equivalent", "mutant", "no_op"), _ENDS, rng)
    faults = []
    for trial, _ in tried:
        said = [run(trial.artefact) for _ in range(runs)]
        if len({verdict_digest(verdict) for verdict in said}) > 1:
            other = next(verdict for verdict in said if verdict_digest(verdict) != verdict_digest(said[0]))
            passed = [verdict.passed for verdict in said]
            faults.append(shown(trial, said[0], passed=passed, also=statuses(other)))
    measured = {"ends": len(tried), "runs": runs}
    return [
        judged(
            "verifier_determinism", faults, why="verdicts on one and the same end differ", measured=measured,
            remedy="take clocks, order and chance out of the verifier", fault="verifier_nondeterministic",
        )
    ]  # fmt: skip
