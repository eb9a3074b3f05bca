"""The age of rollouts: updates between the oldest version that sampled a trained token and the trained one. Pure."""

import numpy as np

from audit.update_subject import UpdateSubject


def lags_of(subject: UpdateSubject) -> dict[str, float]:
    """Rollout id to its lag in updates, infinite where it is unknown; rollouts without trained tokens or named versions are left out."""
    view = subject.view
    if view is None or len(view.lag_S) != len(view.rollout_S):
        return {}
    steps = np.unique(view.step_T[view.mask_T & (view.step_T >= 0)])
    found: dict[str, float] = {}
    for step in steps:
        r = int(view.rollout_S[step])
        if view.model_version_R[r]:
            lag = float(view.lag_S[step])
            name = view.rollout_id_R[r]
            found[name] = max(found.get(name, 0.0), np.inf if np.isnan(lag) else lag)
    return found
