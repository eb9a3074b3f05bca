"""Is the loss divided by what its mask holds?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import by_rollout, close, evidence, parts_of, said, skipped
from audit.update_checks._weights import declared_weights, steps_R, without_weights


@answers("denominator_eq_mask_sum", explains=("weight_mode_declared",))
def denominator_eq_mask_sum(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Each optimiser step's weights add up to what the declared weighting gives over the final mask; the tokens counted are its sum.

    Source: case B13: the denominator ignores masks of truncation and of tools.
    """
    why = without_weights(subject)
    view = subject.view
    if why or view is None:
        return skipped("denominator_eq_mask_sum", why)
    step_R = steps_R(subject, view)
    weight_T = declared_weights(subject, view, step_R)
    told = by_rollout((weight.rollout_id, weight.weight) for _, weight in subject.weights)
    faults: list[dict[str, Any]] = []
    for step in np.unique(step_R[step_R >= 0]):
        mine = [view.rollout_id_R[r] for r in np.flatnonzero(step_R == step)]
        needed = float(weight_T[(step_R == step)[view.rollout_T]].sum())
        seen = sum(told.get(name, 0.0) for name in mine)
        if not close(seen, needed, policy["weight_relative"]):
            faults.append({"step": int(step), "weights_sum": seen, "needed": needed, "rollouts": mine})
    mask = int(np.sum(view.mask_T & (step_R >= 0)[view.rollout_T] & (weight_T > 0)))
    stage, tokens = subject.declared.reinforce, subject.counters.get("tokens")
    epochs = 1 if stage is None else stage.epochs
    if tokens is not None and tokens != mask * epochs:
        faults.append({"tokens_in_the_loss": tokens, "mask_sum": mask, "epochs": epochs, "rollouts": list(subject.trained)})
    names = [name for fault in faults for name in fault["rollouts"]]
    return said(
        "denominator_eq_mask_sum",
        faults,
        why="the loss is not divided by the sum of its mask",
        remedy="divide by the sum of the final mask",
        fault="wrong_denominator",
        events=evidence(subject, names) if names else parts_of(subject),
        mask_sum=mask,
        tokens=tokens,
    )
