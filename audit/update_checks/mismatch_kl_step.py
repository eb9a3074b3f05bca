"""Is the mismatch of engine and trainer of this update like that of the ones before?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._gaps import recorded_gaps
from audit.update_checks._said import parts_of, said, skipped


@answers("mismatch_kl_step")
def mismatch_kl_step(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """The mean gap that the update measured, against a ceiling and against the median of earlier updates of its stage; k3 from columns.

    Source: case E4: after a resume the mismatch is very high for a few steps, because weights were not synchronised.
    """
    if not subject.judged:
        return skipped("mismatch_kl_step", "no reward shapes this update")
    measured: dict[str, Any] = {}
    faults: list[dict[str, Any]] = []
    gaps = recorded_gaps(subject)
    if gaps is not None and len(gaps.gap_N):
        d_N = np.clip(gaps.gap_N, -50, 50)
        measured["k3"] = float(np.mean(np.expm1(d_N) - d_N))
        if measured["k3"] > policy["mismatch_k3_most"]:
            faults.append({"k3": measured["k3"], "most": policy["mismatch_k3_most"]})
    mean = subject.counters.get("gap_mean")
    before = [body.counters["gap_mean"] for body in subject.past if "gap_mean" in body.counters]
    if mean is not None:
        measured |= {"gap_mean": mean, "updates_before": len(before)}
        usual = float(np.median(before)) if len(before) >= policy["mismatch_history_least"] else None
        if mean > policy["gap_mean_most_of_steps"]:
            faults.append({"gap_mean": mean, "most": policy["gap_mean_most_of_steps"]})
        elif usual is not None and mean > policy["mismatch_floor"] and mean > policy["mismatch_times"] * usual:
            faults.append({"gap_mean": mean, "median_before": usual, "times": mean / max(usual, 1e-12)})
    if not measured:
        return skipped("mismatch_kl_step", "neither a counter nor a column tells the trainer's log-probabilities")
    return said(
        "mismatch_kl_step", faults, why="the mismatch of engine and trainer jumped", remedy="synchronise weights before the first rollout",
        fault="stale_weights", events=parts_of(subject), **measured,
    )  # fmt: skip
