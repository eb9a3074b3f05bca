"""Advantages of rollouts by the declared estimator under a hypothesis about who votes with what in which population. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from audit.update_subject import UpdateSubject
from training.advantages import Advantages
from training.rewards import Scored
from training.view import Floats, RolloutView

FLOOR = 1e-9
"""Advantages this small are the same as 0."""


@dataclass(frozen=True)
class Voter:
    """One unit of a population: a rollout, or what somebody counted as one.

    Attributes:
        rollout_id: whose advantage it gives.
        reward: None where there is none.
        votes: whether it shapes the baseline.
    """

    rollout_id: str
    group: str
    kind: str
    fork: str
    participant: str
    reward: float | None
    votes: bool


def truth(subject: UpdateSubject) -> list[Voter]:
    """The rollouts of the batch as the ledger lets them vote: by their own rewards and groups, and those that are evidence alone."""
    view = subject.view
    forks = {} if view is None else dict(zip(view.rollout_id_R, zip(view.fork_R, view.participant_R, strict=True), strict=True))
    found = []
    for rollout_id, (_, row) in subject.row_of.items():
        known, (fork, participant) = subject.known.get(rollout_id), forks.get(rollout_id, ("", ""))
        group = row.group_id or "" if known is None else known.group_id
        reward = subject.true_reward(rollout_id)
        found.append(Voter(
            rollout_id, group, "" if known is None else known.kind, fork, participant, reward,
            row.votes and reward is not None and subject.may_vote(rollout_id),
        ))  # fmt: skip
    return found


def recorded(subject: UpdateSubject) -> dict[str, float]:
    """Rollout id to the advantage that it was trained with, as the batch tells it."""
    return {rollout_id: row.advantage for rollout_id, (_, row) in subject.row_of.items() if row.trains and row.advantage is not None}


def without_estimate(subject: UpdateSubject) -> str:
    """Why advantages cannot be recomputed at all; empty where they can."""
    if not subject.judged:
        return "no reward shapes this update"
    if subject.declared.advantage is None:
        return f"the estimator is not known: {subject.declared.unreadable or 'the stage declares none'}"
    return "" if recorded(subject) else "the batch tells no advantage of a rollout"


def estimated(subject: UpdateSubject, voters: Sequence[Voter]) -> dict[str, float] | None:
    """Rollout id to the advantage of its first unit; None for an estimator that needs more than rewards and populations."""
    bound = subject.declared.advantage
    assert bound is not None
    n = len(voters)
    votes = np.array([one.votes and one.reward is not None for one in voters], dtype=np.bool_)
    reward = Scored(tuple(one.reward for one in voters), ("",) * n)
    made = bound.call(_units(voters), reward, votes, {})
    if len(made.advantage_R) != n:
        return None
    found: dict[str, float] = {}
    for one, value in zip(voters, made.advantage_R, strict=True):
        found.setdefault(one.rollout_id, value)
    return found


def on_tokens(subject: UpdateSubject, voters: Sequence[Voter]) -> Advantages | None:
    """What the estimator says on the batch's real tokens; None where they could not be read, or not for all of the voters."""
    view, bound = subject.view, subject.declared.advantage
    by_id = {one.rollout_id: one for one in voters}
    if view is None or bound is None or not by_id.keys() <= set(view.rollout_id_R):
        return None
    mine = [by_id.get(rollout_id) for rollout_id in view.rollout_id_R]
    votes = np.array([one is not None and one.votes for one in mine], dtype=np.bool_)
    return bound.call(view, Scored(tuple(None if one is None else one.reward for one in mine), ("",) * view.rollouts), votes, {})


def means(view: RolloutView, adv_T: Floats) -> dict[str, float]:
    """Rollout id to its mean advantage over trained tokens; rollouts without any are left out."""
    own_T = view.rollout_T[view.mask_T]
    count_R = np.bincount(own_T, minlength=view.rollouts)
    sum_R = np.bincount(own_T, weights=adv_T[view.mask_T], minlength=view.rollouts)
    return {name: float(sum_R[r] / count_R[r]) for r, name in enumerate(view.rollout_id_R) if count_R[r]}


def apart(told: Mapping[str, float], found: Mapping[str, float], relative: float) -> list[str]:
    """Ids whose two advantages differ by more than the relative tolerance, and those that were not found."""
    return [
        name
        for name, value in told.items()
        if name not in found or not abs(value - found[name]) <= FLOOR + relative * max(abs(value), abs(found[name]))
    ]


def told_by(subject: UpdateSubject, voters: Sequence[Voter], policy: Mapping[str, Any]) -> bool:
    """Whether the recorded advantages are those of this hypothesis and not those of the truth."""
    if without_estimate(subject):
        return False
    told, right, other = recorded(subject), estimated(subject, truth(subject)), estimated(subject, voters)
    relative = policy["advantage_relative"]
    return right is not None and other is not None and bool(apart(told, right, relative)) and not apart(told, other, relative)


def with_changes(voters: Sequence[Voter], **changes: Any) -> list[Voter]:
    """The voters with some attributes of all of them replaced."""
    return [replace(one, **changes) for one in voters]


def _units(voters: Sequence[Voter]) -> RolloutView:
    """A view of one sampled token a unit."""
    n = len(voters)
    numbers, blank = np.arange(n, dtype=np.int64), ("",) * n
    return RolloutView(
        rollout_id_R=tuple(f"{place}:{one.rollout_id}" for place, one in enumerate(voters)), group_id_R=tuple(one.group for one in voters),
        bundle_id_R=blank, family_R=blank, kind_R=tuple(one.kind for one in voters), participant_R=tuple(one.participant for one in voters),
        fork_R=tuple(one.fork for one in voters), model_version_R=blank, ended_by_R=blank, outcome_R=blank, rollout_S=numbers,
        call_id_S=blank, state_S=blank, reward_S=np.zeros(n), error_S=blank, rollout_Q=numbers, row_T=numbers, step_T=numbers,
        id_T=np.zeros(n, dtype=np.int32), mask_T=np.ones(n, dtype=np.bool_), behaviour_logprob_T=np.zeros(n),
        text_only_Q=np.zeros(n, dtype=np.bool_),
    )  # fmt: skip
