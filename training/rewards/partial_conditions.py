"""Shaped outcome reward: half for the share of the conditions that passed, half for all of them."""

from collections.abc import Sequence

from ledger.errors import MethodError
from training.rewards import JudgedRollout, Scored
from training.rewards._judged import NO_EVIDENCE


def partial_conditions(view_R: Sequence[JudgedRollout], *, success: float = 0.5) -> Scored:
    """(1 - success) × share of the basis that passed + success × whether all of it passed; None where nothing was decided.

    A policy that seldom succeeds is told apart from one that does nothing. Doing nothing can pass most conditions, so success is to be
    reported beside this reward, never this reward alone.

    Args:
        view_R: judged rollouts, axis R.
        success: weight of the whole, in [0, 1].
    Returns:
        Rewards along R in [0, 1] or None, with `passed_share` and `succeeded` as terms.
    Raises:
        MethodError: `success` is out of its range.

    Source: measured in this project: a desk policy learns from the share where the binary reward is almost always 0.
    """
    if not 0 <= success <= 1:
        raise MethodError(f"success is {success}; allowed: 0 to 1")
    value: list[float | None] = []
    reason: list[str] = []
    terms: dict[str, list[float | None]] = {"passed_share": [], "succeeded": []}
    for rollout in view_R:
        decided = [passed for passed in rollout.conditions.values() if passed is not None]
        share = sum(decided) / len(decided) if decided and len(decided) == len(rollout.conditions) else None
        whole = None if rollout.passed is None else float(rollout.passed)
        terms["passed_share"].append(share)
        terms["succeeded"].append(whole)
        if rollout.ended_by in NO_EVIDENCE or share is None or whole is None:
            value.append(None)
            broken = rollout.ended_by in NO_EVIDENCE
            reason.append(f"no evidence about the policy: {rollout.ended_by}" if broken else "not every condition was decided")
        else:
            value.append((1 - success) * share + success * whole)
            reason.append("every condition passed" if rollout.passed else f"{sum(decided)} of {len(decided)} conditions passed")
    return Scored(tuple(value), tuple(reason), {name: tuple(values) for name, values in terms.items()})
