"""Which rollouts vote in baselines and which are in the loss, and why the others are not. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ledger.errors import BatchRefused
from ledger.methods import Bound
from ledger.outcome import FAULTS, LIMITS
from training.filters import Filter
from training.rewards import Scored
from training.task_statistics import task_statistics
from training.view import Bools, Floats, RolloutView

ZERO_VARIANCE = 1e-9
"""Rewards of a group that lie this close together are the same."""
NO_EVIDENCE = (*FAULTS, "unknown", "running")
"""Outcomes that neither vote nor train."""
_NEITHER = ("stale", "ratio")
"""A filter's reason that begins so says that the rollout is not of this policy: it does not vote either."""


@dataclass(frozen=True, eq=False)
class Standing:
    """The part of each rollout in a batch.

    Attributes:
        votes_R: in baselines and statistics.
        trains_R: in the loss.
        reason_R: why it does not train; empty where it does.
        factor_R: factor on its weight, from the filters.
        counters: how often each rule applied.
    """

    votes_R: Bools
    trains_R: Bools
    reason_R: tuple[str, ...]
    factor_R: Floats
    counters: dict[str, int] = field(default_factory=dict)


def standing(view: RolloutView, reward: Scored, *, truncated: str, current: frozenset[str]) -> Standing:
    """The part of each rollout before any filter.

    Args:
        view: the round.
        reward: along R.
        truncated: `include`, or `exclude` for rollouts that a limit ended.
        current: model versions whose samples this update may use; rollouts of others are stale.
    Raises:
        BatchRefused: a reward is not a finite number, or there are not as many as rollouts.
    """
    if len(reward.value_R) != view.rollouts:
        raise BatchRefused(f"{len(reward.value_R)} rewards for {view.rollouts} rollouts; allowed: one a rollout")
    reasons = [""] * view.rollouts
    votes_R = np.ones(view.rollouts, dtype=np.bool_)
    sampled_R = np.zeros(view.rollouts, dtype=np.bool_)
    sampled_R[view.rollout_T[view.mask_T]] = True
    trains_R = np.ones(view.rollouts, dtype=np.bool_)
    for r, (outcome, ended_by, value) in enumerate(zip(view.outcome_R, view.ended_by_R, reward.value_R, strict=True)):
        if value is not None and not np.isfinite(value):
            raise BatchRefused(f"rollout {view.rollout_id_R[r]} has reward {value}; allowed: a finite number, or none with a reason")
        if outcome in NO_EVIDENCE:
            reasons[r] = outcome
        elif value is None:
            reasons[r] = "no_reward"
        elif truncated == "exclude" and ended_by in LIMITS:
            reasons[r] = "limit_ended"
        elif view.model_version_R[r] not in current:
            reasons[r] = "stale"
        if reasons[r]:
            votes_R[r] = trains_R[r] = False
        elif not sampled_R[r]:
            # Judged all the same, so it says something about its task.
            reasons[r], trains_R[r] = "no_trained_tokens", False
    return Standing(votes_R, trains_R, tuple(reasons), np.ones(view.rollouts))


def check_masked(stand: Standing, limit: float | None) -> dict[str, int]:
    """How many rollouts are no evidence about the policy, by reason.

    Args:
        limit: largest share of all rollouts; None for any.
    Raises:
        BatchRefused: there are more, so that what is left need not be like what was dispatched.
    """
    reasons = [reason for reason in stand.reason_R if reason in (*NO_EVIDENCE, "no_reward")]
    counts = {f"masked:{reason}": reasons.count(reason) for reason in sorted(set(reasons))}
    if limit is not None and len(reasons) > limit * len(stand.reason_R):
        told = ", ".join(f"{count} {name.partition(':')[2]}" for name, count in counts.items())
        raise BatchRefused(
            f"{len(reasons)} of {len(stand.reason_R)} rollouts are no evidence about the policy ({told}), a share of"
            f" {len(reasons) / len(stand.reason_R):.3f}; allowed: up to max_mask_fraction = {limit:g}"
        )
    return counts


def filtered(stand: Standing, view: RolloutView, reward: Scored, chosen: Sequence[Bound[Filter]]) -> Standing:
    """The part of each rollout after the filters, each of which sees the statistics of what still votes.

    Raises:
        BatchRefused: a filter answers for another number of rollouts, or with a factor below zero.
    """
    for bound in chosen:
        stats_B = task_statistics(view, reward, stand.votes_R)
        kept, name = bound.call(view, stats_B, reward), bound.ref.name
        if not len(kept.keep_R) == len(kept.weight_R) == len(kept.reason_R) == view.rollouts:
            raise BatchRefused(f"filter {name} answers for {len(kept.keep_R)} rollouts; allowed: {view.rollouts}")
        if not bool(np.all(np.isfinite(kept.weight_R) & (kept.weight_R >= 0))):
            raise BatchRefused(f"filter {name} gives a factor of {float(np.min(kept.weight_R))}; allowed: 0 and above")
        dropped = np.flatnonzero(stand.trains_R & ~kept.keep_R)
        stand = _without(stand, {int(r): kept.reason_R[r] or name for r in dropped})
        counters = {f"filter:{name}:{key}": count for key, count in kept.counters.items()}
        stand = Standing(
            stand.votes_R,
            stand.trains_R,
            stand.reason_R,
            stand.factor_R * kept.weight_R,
            stand.counters | {f"filter:{name}": len(dropped)} | counters,
        )
    return stand


def without_variance(stand: Standing, view: RolloutView, reward: Scored, *, rule: str) -> Standing:
    """The part of each rollout after the rule for groups of two or more voters whose rewards do not differ; they are counted anyhow.

    Args:
        rule: `keep` or `drop`: dropped ones vote and do not train.
    """
    population_R, value_R = view.population_R, np.array([np.nan if value is None else value for value in reward.value_R])
    flat: list[int] = []
    groups = 0
    for number in np.unique(population_R):
        members = np.flatnonzero((population_R == number) & stand.votes_R)
        if len(members) >= 2 and float(np.ptp(value_R[members])) <= ZERO_VARIANCE:
            groups += 1
            flat += [int(r) for r in np.flatnonzero(population_R == number) if stand.trains_R[r]]
    stand = Standing(
        stand.votes_R, stand.trains_R, stand.reason_R, stand.factor_R, stand.counters | ({"zero_variance_groups": groups} if groups else {})
    )
    return _without(stand, dict.fromkeys(flat, "zero_variance")) if rule == "drop" else stand


def _without(stand: Standing, dropped: dict[int, str]) -> Standing:
    """The standing with these rollouts out of the loss, and out of the baselines too where the reason says that they are not on policy."""
    votes_R, trains_R, reasons = stand.votes_R.copy(), stand.trains_R.copy(), list(stand.reason_R)
    for r, reason in dropped.items():
        trains_R[r], reasons[r] = False, reason
        votes_R[r] &= not reason.startswith(_NEITHER)
    return Standing(votes_R, trains_R, tuple(reasons), stand.factor_R, stand.counters)
