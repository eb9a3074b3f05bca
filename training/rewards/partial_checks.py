"""Shaped outcome reward: half for the share of the verdict's further checks that passed, half for success."""

from collections.abc import Sequence

from ledger.errors import MethodError
from training.rewards import JudgedRollout, Scored
from training.rewards._judged import NO_EVIDENCE


def partial_checks(view_R: Sequence[JudgedRollout], *, success: float = 0.5) -> Scored:
    """(1 - success) × share of the further checks that passed + success × whether the verdict passed; None where nothing was decided.

    A rollout that a limit ended gets nothing for its checks: what it left undone may have passed them.

    Further checks are finer than the conditions that success requires, such as one a ticket. Doing nothing can pass many of them, so
    success is to be reported beside this reward, never this reward alone.

    Args:
        view_R: judged rollouts, axis R.
        success: weight of the whole, in [0, 1].
    Returns:
        Rewards along R in [0, 1] or None, with `passed_share` and `succeeded` as terms.
    Raises:
        MethodError: `success` is out of its range.

    Source: measured in this project: a desk policy learns when to hold back from a check a ticket, and not from success alone.
    """
    if not 0 <= success <= 1:
        raise MethodError(f"success is {success}; allowed: 0 to 1")
    value: list[float | None] = []
    reason: list[str] = []
    terms: dict[str, list[float | None]] = {"passed_share": [], "succeeded": []}
    for rollout in view_R:
        decided = [passed for passed in rollout.checks.values() if passed is not None]
        share = sum(decided) / len(decided) if decided and len(decided) == len(rollout.checks) else None
        whole = None if rollout.passed is None else float(rollout.passed)
        terms["passed_share"].append(share)
        terms["succeeded"].append(whole)
        if rollout.ended_by in NO_EVIDENCE or share is None or whole is None:
            value.append(None)
            broken = rollout.ended_by in NO_EVIDENCE
            reason.append(
                f"no evidence about the policy: {rollout.ended_by}"
                if broken
                else "there are no further checks, or not every one was decided"
            )
        else:
            finished = rollout.ended_by == "finished"
            value.append((1 - success) * share * finished + success * whole)
            told = "every condition passed" if rollout.passed else f"{sum(decided)} of {len(decided)} checks passed"
            reason.append(told if finished else f"{told}, none of which count: {rollout.ended_by}")
    return Scored(tuple(value), tuple(reason), {name: tuple(values) for name, values in terms.items()})
