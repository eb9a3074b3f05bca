"""Is what is trained as long as what was dispatched?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped


@answers("length_bias")
def length_bias(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Sampled tokens of trained rollouts against those of the dispatched ones that are not trained: Kolmogorov-Smirnov, and the means.

    Source: case F3 of the reports on staleness: what is stale or late is dropped, and slow problems are never trained.
    """
    view = subject.view
    if not subject.judged or view is None:
        return skipped("length_bias", "no reward shapes this update" if not subject.judged else subject.unread or "no captured tokens")
    length_R = np.bincount(view.rollout_T[view.mask_T], minlength=view.rollouts)
    mine = set(subject.trained)
    trained = np.array([name in mine for name in view.rollout_id_R], dtype=np.bool_)
    kept, dropped = length_R[trained & (length_R > 0)], length_R[~trained & (length_R > 0)]
    measured: dict[str, Any] = {"trained": len(kept), "dropped": len(dropped)}
    if not len(kept) or len(dropped) < policy["length_dropped_least"]:
        return said("length_bias", [], why="", remedy="", fault=None, **measured)
    found = ks_2samp(kept, dropped)
    ratio = float(kept.mean() / np.concatenate([kept, dropped]).mean())
    measured |= {"ratio": ratio, "distance": float(found.statistic), "p": float(found.pvalue)}
    biased = found.pvalue < policy["length_p"] and abs(ratio - 1) > policy["length_ratio_off"]
    names = [view.rollout_id_R[r] for r in np.flatnonzero(~trained & (length_R > 0))]
    return said(
        "length_bias",
        [{"trained_over_dispatched": ratio, "p": float(found.pvalue), "dropped_mean": float(dropped.mean())}] if biased else [],
        why="trained rollouts are not as long as dispatched ones",
        remedy="wait for slow rollouts, or count what is dropped by length",
        fault="length_biased",
        events=evidence(subject, names),
        **measured,
    )
