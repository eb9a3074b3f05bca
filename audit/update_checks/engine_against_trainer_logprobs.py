"""Do the engine that sampled and the trainer agree on what was sampled?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._gaps import recorded_gaps
from audit.update_checks._said import evidence, parts_of, said, skipped


@answers("engine_against_trainer_logprobs", explains=("mismatch_kl_step",))
def engine_against_trainer_logprobs(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Probe gap and cache reset when the engine took the version, recorded columns against captured log-probabilities, and none missing.

    A prefix cache that survives new weights, or weights that never arrived, show as a gap of nats. Log-probabilities that were filled with
    0 are those of certainty.

    Source: cases E3 and E4, C9 and C11 for filled and missing ones; survey AUD-15.
    """
    if not subject.judged:
        return skipped("engine_against_trainer_logprobs", "no reward shapes this update")
    gaps = recorded_gaps(subject)
    tolerance = subject.declared.tolerance_nats or policy["probe_gap_most"]
    faults: list[dict[str, Any]] = []
    events: list[str] = []
    for event_id, body in subject.refreshes:
        if (body.probe_gap is not None and body.probe_gap > tolerance) or not body.cache_reset:
            faults.append({"engine": body.engine_id, "probe_gap": body.probe_gap, "most": tolerance, "cache_reset": body.cache_reset})
            events.append(event_id)
    measured: dict[str, Any] = {"refreshes": len(subject.refreshes)}
    if gaps is not None and len(gaps.gap_N):
        mean, apart = float(np.mean(np.abs(gaps.gap_N))), float(np.mean(np.abs(gaps.gap_N) > policy["gap_token_nats"]))
        measured |= {"tokens": len(gaps.gap_N), "gap_mean": mean, "gap_max": float(np.max(np.abs(gaps.gap_N))), "share_apart": apart}
        if mean > policy["gap_mean_most"] or apart > policy["gap_share_most"]:
            faults.append({"column": gaps.column, "gap_mean": mean, "most": policy["gap_mean_most"], "share_apart": apart})
            events += evidence(subject, gaps.rollouts[:3])
    steps, mean_told = subject.counters.get("optimiser_steps"), subject.counters.get("gap_mean")
    # With one step the gap that the update measured is that of engine and trainer; with more it holds the update's own movement too.
    most = policy["gap_mean_most"] if steps == 1 else policy["gap_mean_most_of_steps"]
    if mean_told is not None:
        measured |= {"update_gap_mean": mean_told}
        if mean_told > most:
            faults.append({"update_gap_mean": mean_told, "most": most, "optimiser_steps": steps})
    filled = _filled(subject)
    if not measured["refreshes"] and gaps is None and mean_told is None and not filled:
        return skipped("engine_against_trainer_logprobs", "no probe, no counter and no column tells the trainer's log-probabilities")
    return said(
        "engine_against_trainer_logprobs",
        [*filled, *faults],
        why="engine and trainer disagree about sampled tokens",
        remedy="reset the cache and synchronise weights before sampling; keep log-probabilities as they were captured",
        fault="logprobs_filled" if filled else "stale_cache",
        events=[*events, *evidence(subject, [one["rollout"] for one in filled]), *parts_of(subject)],
        **measured,
    )


def _filled(subject: UpdateSubject) -> list[dict[str, Any]]:
    """Rows whose recorded engine log-probabilities are not the captured ones, and those that have none."""
    found: list[dict[str, Any]] = []
    for row in subject.rows:
        if "behaviour" not in row.logprobs or row.row is None or not row.fits:
            continue
        captured, told = row.row.logprob_T[row.row.mask_T], row.logprobs["behaviour"][row.row.mask_T]
        apart = ~(np.abs(captured - told) <= 1e-4) & ~(np.isnan(captured) & np.isnan(told))
        if apart.any():
            found.append({
                "rollout": row.rollout_id, "row": row.told.index, "tokens_not_as_captured": int(apart.sum()),
                "of_them_0": int(np.sum(told[apart] == 0)),
            })  # fmt: skip
    return found
