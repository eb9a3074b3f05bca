"""Does cutting the same rollouts into other rows leave the weights as they are, where the weighting says so?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import parts_of, said, skipped
from audit.update_checks._weights import steps_R, without_weights
from training.view import Floats, Ints, RolloutView


@answers("slice_invariance", explains=("weight_mode_declared",))
def slice_invariance(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """The rows are cut so that each model call has a row of its own, behind its real prefix; what each call weighs must not change.

    Weightings that do not declare `slice_invariant` are not asked.

    Source: survey AUD-12: total gradient mass changes when the same rollouts are re-sliced; case B4.
    """
    why = without_weights(subject)
    view = subject.view
    if why or view is None:
        return skipped("slice_invariance", why)
    asked = [term.weighting for term in subject.declared.terms if _declares(term.weighting.call)]
    if not asked:
        names = ", ".join(dict.fromkeys(term.weighting.ref.name for term in subject.declared.terms))
        return skipped("slice_invariance", f"no weighting declares it: {names}")
    step_R, cut = steps_R(subject, view), resliced(view)
    faults, worst = [], 0.0
    for bound in asked:
        for step in np.unique(step_R[step_R >= 0]):
            trains_R = step_R == step
            before, after = (
                _by_call(one, np.asarray(bound.call(one, trains_R, one.mask_T & trains_R[one.rollout_T]), dtype=np.float64))
                for one in (view, cut)
            )
            gap = float(np.max(np.abs(before - after) / np.maximum(np.abs(before), 1e-12), initial=0.0))
            worst = max(worst, gap)
            if gap > policy["slice_relative"]:
                faults.append(
                    {"weighting": bound.ref.name, "step": int(step), "relative": gap, "needed": f"at most {policy['slice_relative']}"}
                )
    return said(
        "slice_invariance",
        faults,
        why="re-cutting the same rollouts changes their weights",
        remedy="weigh by rollout, or do not declare it",
        fault="wrong_weight",
        events=parts_of(subject),
        relative=worst,
        rows=len(view.rollout_Q),
        rows_when_cut=len(cut.rollout_Q),
    )


def resliced(view: RolloutView) -> RolloutView:
    """The view with a row for each model call, which holds all that stood before its samples, and only them in the mask."""
    pieces: list[tuple[int, Ints]] = []
    step_T: list[Ints] = []
    edges = np.searchsorted(view.row_T, np.arange(len(view.rollout_Q) + 1))
    for q, r in enumerate(view.rollout_Q):
        span = np.arange(edges[q], edges[q + 1])
        steps = view.step_T[span]
        for step in dict.fromkeys(int(one) for one in steps if one >= 0):
            own = span[: int(np.flatnonzero(steps == step)[-1]) + 1]
            pieces.append((int(r), own))
            step_T.append(np.where(view.step_T[own] == step, step, -1))
    taken = np.concatenate([np.zeros(0, np.int64), *(own for _, own in pieces)])
    steps = np.concatenate([np.zeros(0, np.int64), *step_T])
    return replace(
        view,
        rollout_Q=np.array([r for r, _ in pieces], dtype=np.int64),
        row_T=np.repeat(np.arange(len(pieces), dtype=np.int64), [len(own) for _, own in pieces]),
        step_T=steps,
        id_T=view.id_T[taken],
        mask_T=view.mask_T[taken] & (steps >= 0),
        behaviour_logprob_T=view.behaviour_logprob_T[taken],
        text_only_Q=np.zeros(len(pieces), dtype=np.bool_),
        trainer_logprob_T=np.zeros(0),
    )


def _by_call(view: RolloutView, weight_T: Floats) -> Floats:
    own = view.mask_T & (view.step_T >= 0)
    return np.bincount(view.step_T[own], weights=weight_T[own], minlength=len(view.rollout_S)).astype(np.float64)


def _declares(call: Any) -> bool:
    return bool(getattr(getattr(call, "func", call), "slice_invariant", False))
