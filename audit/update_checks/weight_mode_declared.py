"""Is the weighting declared, and are the weights as declared?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import by_rollout, close, evidence, said, skipped
from audit.update_checks._weights import declared_weights, steps_R, without_weights


@answers("weight_mode_declared")
def weight_mode_declared(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Every rollout weighs in the update what the declared weighting gives it over the real mask of its optimiser step.

    Source: survey AUD-12.
    """
    why = without_weights(subject)
    view = subject.view
    if why or view is None:
        return skipped("weight_mode_declared", why)
    step_R = steps_R(subject, view)
    needed_R = np.bincount(view.rollout_T, weights=declared_weights(subject, view, step_R), minlength=view.rollouts)
    needed = {name: float(needed_R[r]) for r, name in enumerate(view.rollout_id_R)}
    told = by_rollout((weight.rollout_id, weight.weight) for _, weight in subject.weights)
    wrong = [name for name, value in told.items() if not close(value, needed.get(name, 0.0), policy["weight_relative"])]
    wrong += [view.rollout_id_R[r] for r in np.flatnonzero(step_R >= 0) if view.rollout_id_R[r] not in told]
    changed = "; its source has changed since" if "weightings" in subject.declared.changed else ""
    return said(
        "weight_mode_declared", [{"rollout": name, "weight": told.get(name), "needed": needed.get(name)} for name in wrong],
        why=f"weights are not those of the declared weighting{changed}", remedy="fix explicit weights over the whole update",
        fault="wrong_weight", events=evidence(subject, wrong), rollouts=len(told),
        weightings=[term.weighting.ref.name for term in subject.declared.terms], steps=len(set(step_R[step_R >= 0].tolist())),
    )  # fmt: skip
