"""Is nothing trained that is older than the recipe allows, by the oldest version that sampled a token of it?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._lags import lags_of
from audit.update_checks._said import evidence, said, skipped


@answers("lag_max", explains=("engine_against_trainer_logprobs", "mismatch_kl_step", "version_spread_in_group"))
def lag_max(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Updates from the oldest version that sampled a trained token to the trained one, against the stage's filter or the policy.

    A version that the trained one does not descend from is of unknown age, which is older than any.

    Source: cases F1 and F2.
    """
    if not subject.judged or subject.view is None:
        return skipped("lag_max", "no reward shapes this update" if not subject.judged else subject.unread or "no captured tokens")
    stage = subject.declared.reinforce
    allowed = next((use.params.get("max_lag", 0) for use in stage.filters if use.name == "stale"), None) if stage is not None else None
    most = policy["lag_most"] if allowed is None else allowed
    lags = {name: lag for name, lag in lags_of(subject).items() if name in set(subject.trained)}
    if not lags:
        return skipped("lag_max", "no trained token names the version that sampled it")
    old = {name: lag for name, lag in lags.items() if not lag <= most}
    version = dict(zip(subject.view.rollout_id_R, subject.view.model_version_R, strict=True))
    known = [lag for lag in lags.values() if np.isfinite(lag)]
    return said(
        "lag_max",
        [
            {"rollout": name, "lag": "unknown" if np.isinf(lag) else lag, "most": most, "sampled_by": version[name]}
            for name, lag in old.items()
        ],
        why="a rollout is older than allowed",
        remedy="drop what is stale, or declare a filter that allows it",
        fault="stale_weights",
        events=evidence(subject, old),
        rollouts=len(lags),
        largest=max(known, default=None),
        most=most,
    )
