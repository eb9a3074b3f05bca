"""Were samples of a truncated distribution recorded as if nothing had been cut off?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._gaps import recorded_gaps
from audit.update_checks._said import evidence, said, skipped


@answers("kept_mass_ratio", explains=("engine_against_trainer_logprobs", "mismatch_kl_step"))
def kept_mass_ratio(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Trainer less engine is never above 0 and the same log S at nearly all tokens: the kept mass S of top-p, top-k or min-p.

    A stale cache moves tokens both ways; this moves all of them down, whatever the versions.

    Source: fixture F9: exp(trainer - engine) = S for every token with the same weights; survey on processed log-probabilities.
    """
    gaps = recorded_gaps(subject)
    if gaps is None or not len(gaps.gap_N):
        return skipped("kept_mass_ratio", "no column tells the trainer's log-probabilities")
    ratio_N = np.exp(gaps.gap_N)
    middle = float(np.median(ratio_N))
    below = float(np.mean(ratio_N < 1 - policy["kept_mass_least_gap"]))
    above = float(np.mean(ratio_N > 1 + policy["kept_mass_least_gap"]))
    alike = float(np.mean(np.abs(ratio_N - middle) <= policy["kept_mass_spread"]))
    cut = below >= policy["kept_mass_share"] and above == 0 and alike >= policy["kept_mass_share"]
    return said(
        "kept_mass_ratio",
        [{"kept_mass": middle, "log": float(np.log(middle)), "tokens_below_1": below}] if cut else [],
        why="the engine's log-probabilities are of a distribution that the trainer does not have",
        fault="truncated_sampling_recorded_raw",
        remedy="sample from the plain distribution, or reproduce the truncation in the trainer",
        events=evidence(subject, gaps.rollouts[:3]),
        tokens=len(ratio_N),
        median=middle,
        below_1=below,
        above_1=above,
    )
