"""What an update would have been at the same sampled rollouts, had verdicts been others: rewards, votes, advantages, shares. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from audit.counterfactual_changes import Change
from ledger.events import LossWeight
from ledger.methods import Bound
from training.optimise.batch import Assembled, JudgedRound, assemble
from training.optimise.recipe import Recipe
from training.optimise.standing import ZERO_VARIANCE
from training.optimise.updates import loss_weights
from training.rewards import Reward, Scored
from training.rollout.derive import seen_by_rule

SAME = 1e-9
"""Numbers that lie this close together are the same."""


@dataclass(frozen=True)
class Part:
    """What a rollout had of an update; None where it has no such number."""

    reward: float | None
    votes: bool
    trains: bool
    reason: str
    advantage: float | None
    weight: float | None
    share: float | None

    def differs(self, other: "Part") -> bool:
        """Whether anything of it is another."""
        numbers = ("reward", "advantage", "weight", "share")
        return (self.votes, self.trains, self.reason) != (other.votes, other.trains, other.reason) or any(
            apart(getattr(self, name), getattr(other, name)) for name in numbers
        )


@dataclass(frozen=True)
class Effect:
    """An update before and after.

    Attributes:
        before, after: rollout id to its part.
        flat_groups: groups that had a signal and would have none, and those that had none and would have one.
        counters_before, counters_after: fallbacks and special cases of the two batches.
    """

    before: Mapping[str, Part]
    after: Mapping[str, Part]
    flat_groups: tuple[tuple[str, ...], tuple[str, ...]]
    counters_before: Mapping[str, float]
    counters_after: Mapping[str, float]

    @property
    def changed(self) -> list[str]:
        """Rollouts of which something is another, siblings whose verdict stays included, in their order."""
        return [rollout_id for rollout_id, part in self.before.items() if part.differs(self.after[rollout_id])]

    def count(self, *names: str) -> int:
        """Rollouts of which one of these is another."""
        return sum(any(_other(getattr(part, name), getattr(self.after[r], name)) for name in names) for r, part in self.before.items())

    @property
    def sign_flips(self) -> int:
        """Rollouts that were pushed one way and would be pushed the other."""
        pairs = [(part.advantage or 0.0, self.after[r].advantage or 0.0) for r, part in self.before.items()]
        return sum(one * other < 0 for one, other in pairs)

    @property
    def largest_advantage_change(self) -> float:
        """Of all rollouts; one that does not train counts as 0."""
        return max((abs((part.advantage or 0.0) - (self.after[r].advantage or 0.0)) for r, part in self.before.items()), default=0.0)

    @property
    def share_moved(self) -> float:
        """Half the sum of |change of share|: the part of the update's Σ |weight × advantage| that goes to other rollouts, in [0, 1]."""
        return sum(abs((part.share or 0.0) - (self.after[r].share or 0.0)) for r, part in self.before.items()) / 2

    def as_json(self) -> dict[str, Any]:
        """The effect as a JSON object."""
        return {
            "rewards_changed": self.count("reward"), "votes_changed": self.count("votes"), "trains_changed": self.count("trains"),
            "reasons_changed": self.count("reason"), "advantages_changed": self.count("advantage"), "sign_flips": self.sign_flips,
            "largest_advantage_change": self.largest_advantage_change, "share_moved": self.share_moved,
            "groups_losing_signal": list(self.flat_groups[0]), "groups_gaining_signal": list(self.flat_groups[1]),
            "rollouts": {
                rollout_id: {"before": vars(self.before[rollout_id]), "after": vars(self.after[rollout_id])} for rollout_id in self.changed
            },
            "counters": {"before": dict(self.counters_before), "after": dict(self.counters_after)},
        }  # fmt: skip


def effect(trained: JudgedRound, changes: Mapping[str, Change], rule: Bound[Reward], recipe: Recipe, *, current: Collection[str]) -> Effect:
    """The same batch with the verdicts as they counted when it was trained, and as changed.

    Args:
        trained: the round with outcomes and rewards as trained.
        changes: by rollout; of other rounds too.
        rule: by which rewards were derived.
        recipe: by which the batch was assembled.
        current: model versions whose samples the update may use.
    Raises:
        BatchRefused: one of the two batches must not be trained on.
    """
    ids = trained.view.rollout_id_R
    before = assemble(trained, recipe, dispatched=ids, current=current)
    after = assemble(judged_otherwise(trained, changes, rule), recipe, dispatched=ids, current=current)
    return Effect(parts(before), parts(after), _flat(before, after), before.counters, after.counters)


def judged_otherwise(trained: JudgedRound, changes: Mapping[str, Change], rule: Bound[Reward]) -> JudgedRound:
    """The round with the outcomes and rewards that follow from the changed verdicts; tokens, groups and everything else stay."""
    view, reward = trained.view, trained.reward
    touched = [r for r, rollout_id in enumerate(view.rollout_id_R) if rollout_id in changes]
    if not touched:
        return trained
    new = {r: changes[view.rollout_id_R[r]].new for r in touched}
    scored = rule.call([seen_by_rule(new[r].judged(view.rollout_id_R[r], view.ended_by_R[r])) for r in touched])
    at = {r: n for n, r in enumerate(touched)}
    outcomes = tuple(
        new[r].outcome(view.ended_by_R[r]) if r in new else outcome for r, outcome in enumerate(view.outcome_R)
    )  # fmt: skip
    value = tuple(scored.value_R[at[r]] if r in at else one for r, one in enumerate(reward.value_R))
    reason = tuple(scored.reason_R[at[r]] if r in at else one for r, one in enumerate(reward.reason_R))
    terms = {
        name: tuple((scored.terms[name][at[r]] if name in scored.terms else None) if r in at else one for r, one in enumerate(column))
        for name, column in reward.terms.items()
    }
    # A vote needs a reward to name; one that nobody recorded is named after its rollout.
    ids = tuple(
        (f"counterfactual-{view.rollout_id_R[r]}" if value[r] is not None else one) if r in at else one
        for r, one in enumerate(trained.reward_id_R)
    )
    return replace(trained, view=replace(view, outcome_R=outcomes), reward=Scored(value, reason, terms), reward_id_R=ids)


def parts(made: Assembled) -> dict[str, Part]:
    """Rollout id to its part of a batch."""
    weights = {weight.rollout_id: weight for weight in loss_weights(made)}
    stand = made.stand
    return {
        rollout_id: _part(made.round.reward.value_R[r], bool(stand.votes_R[r]), stand.reason_R[r], weights.get(rollout_id))
        for r, rollout_id in enumerate(made.round.view.rollout_id_R)
    }


def gap(told: Mapping[str, Part], recorded: Sequence[LossWeight]) -> float:
    """The largest difference of a weight, an advantage or a share from what an update recorded; infinite where other rollouts train."""
    known = {weight.rollout_id: weight for weight in recorded}
    trained = {rollout_id: part for rollout_id, part in told.items() if part.trains}
    if trained.keys() != known.keys():
        return float("inf")
    pairs = [
        (one, other)
        for rollout_id, part in trained.items()
        for one, other in (
            (part.weight, known[rollout_id].weight), (part.advantage, known[rollout_id].advantage), (part.share, known[rollout_id].share),
        )
        if one is not None and other is not None
    ]  # fmt: skip
    return max((abs(one - other) for one, other in pairs), default=0.0)


def apart(one: float | None, other: float | None) -> bool:
    """Whether two numbers are not the same; a missing one is like no number."""
    return (one is None) is not (other is None) or (one is not None and other is not None and abs(one - other) > SAME)


def _other(one: Any, other: Any) -> bool:
    if isinstance(one, bool | str) or isinstance(other, bool | str):
        return bool(one != other)
    return apart(one, other)


def _part(reward: float | None, votes: bool, reason: str, weight: LossWeight | None) -> Part:
    if weight is None:
        return Part(reward, votes, False, reason, None, None, None)
    return Part(reward, votes, True, reason, weight.advantage, weight.weight, weight.share)


def _flat(before: Assembled, after: Assembled) -> tuple[tuple[str, ...], tuple[str, ...]]:
    had, has = _with_signal(before), _with_signal(after)
    return tuple(sorted(had - has)), tuple(sorted(has - had))


def _with_signal(made: Assembled) -> set[str]:
    """Groups whose voters' rewards differ."""
    view = made.round.view
    values: dict[str, list[float]] = {}
    for r, value in enumerate(made.round.reward.value_R):
        if made.stand.votes_R[r] and value is not None:
            values.setdefault(view.group_id_R[r], []).append(value)
    return {group for group, found in values.items() if len(found) > 1 and float(np.ptp(found)) > ZERO_VARIANCE}
