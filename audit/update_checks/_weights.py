"""Weights of a batch's tokens by the weightings that its stage declares, over the real mask. Pure."""

import numpy as np

from audit.update_subject import UpdateSubject
from training.view import Bools, Floats, Ints, RolloutView


def without_weights(subject: UpdateSubject) -> str:
    """Why weights cannot be recomputed; empty where they can."""
    if not subject.judged:
        return "weights are sums over the draws of a stage without rewards"
    if not subject.declared.terms:
        return f"the weighting is not known: {subject.declared.unreadable or 'the stage declares none'}"
    if subject.view is None:
        return f"the rows cannot be rebuilt: {subject.unread or 'no captured tokens'}"
    return ""


def trained_R(subject: UpdateSubject, view: RolloutView) -> Bools:
    """Which rollouts of the view the batch trains on."""
    mine = set(subject.trained)
    return np.array([name in mine for name in view.rollout_id_R], dtype=np.bool_)


def steps_R(subject: UpdateSubject, view: RolloutView) -> Ints:
    """The optimiser step of each rollout, groups in turn; -1 where it does not train."""
    stage = subject.declared.reinforce
    updates = 1 if stage is None else stage.updates
    trains_R = trained_R(subject, view)
    numbers: dict[str, int] = {}
    step_R = np.full(view.rollouts, -1, dtype=np.int64)
    for r in np.flatnonzero(trains_R):
        step_R[r] = numbers.setdefault(view.group_id_R[r], len(numbers)) % updates
    return step_R


def declared_weights(subject: UpdateSubject, view: RolloutView, step_R: Ints) -> Floats:
    """Weight of each token over all terms, each optimiser step weighed by itself."""
    weight_T = np.zeros(len(view.row_T))
    for step in np.unique(step_R[step_R >= 0]):
        trains_R = step_R == step
        mask_T = view.mask_T & trains_R[view.rollout_T]
        for term in subject.declared.terms:
            weight_T += abs(term.coefficient) * np.asarray(term.weighting.call(view, trains_R, mask_T), dtype=np.float64)
    return weight_T
