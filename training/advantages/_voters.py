"""Who votes, with what reward, in which population. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ledger.errors import MethodError
from training.advantages import Advantages
from training.rewards import Scored
from training.view import Bools, Floats, Ints, RolloutView

NO_REWARD, NO_VOTE, SINGLETON, SINGLETON_REWARD = (
    "fallback:no_reward", "fallback:no_vote", "fallback:singleton", "fallback:singleton_reward"
)  # fmt: skip
POPULATION = "group x kind x fork x participant"


@dataclass(frozen=True, eq=False)
class Voters:
    """Rollouts with a reward and a vote.

    Attributes:
        reward_R: rewards, 0 where the rollout does not vote; read it through `votes_R`.
        votes_R: votes and has a reward.
        population_R: number of its population.
        path_R: `native` for voters, the fallback for the others.
    """

    reward_R: Floats
    votes_R: Bools
    population_R: Ints
    path_R: tuple[str, ...]


def voters_of(view: RolloutView, reward: Scored, votes_R: Bools) -> Voters:
    """The voters of a view; a rollout without a reward never votes, and its reward never becomes 0 in any statistic.

    Raises:
        MethodError: lengths differ, a reward is not finite, or a rollout stands twice along R for one participant.
    """
    if len(reward.value_R) != view.rollouts or votes_R.shape != (view.rollouts,):
        raise MethodError(
            f"{len(reward.value_R)} rewards and votes of shape {votes_R.shape} for {view.rollouts} rollouts; allowed: one each"
        )
    _check_once(view, reward)
    for rollout_id, value in zip(view.rollout_id_R, reward.value_R, strict=True):
        if value is not None and not np.isfinite(value):
            raise MethodError(f"the reward of rollout {rollout_id} is {value}; allowed: a finite number, or None where there is none")
    rewarded_R = np.array([value is not None for value in reward.value_R], dtype=np.bool_)
    votes = votes_R & rewarded_R
    reward_R = np.where(votes, np.array([0.0 if value is None else value for value in reward.value_R], dtype=np.float64), 0.0)
    path_R = tuple(
        NO_REWARD if not rewarded else "native" if voting else NO_VOTE for rewarded, voting in zip(rewarded_R, votes, strict=True)
    )
    return Voters(reward_R, votes, view.population_R, path_R)


def _check_once(view: RolloutView, reward: Scored) -> None:
    seen: dict[tuple[str, str], float | None] = {}
    for rollout_id, participant, value in zip(view.rollout_id_R, view.participant_R, reward.value_R, strict=True):
        if (rollout_id, participant) in seen:
            raise MethodError(
                f"rollout {rollout_id} stands twice with rewards {seen[rollout_id, participant]} and {value}; "
                "allowed: one reward a rollout and participant, shared by its rows"
            )
        seen[rollout_id, participant] = value


@dataclass(frozen=True, eq=False)
class Columns:
    """Advantages that are ready to be told: along T, the path of each rollout, and along R where there is one number a rollout."""

    adv_T: Floats
    path_R: tuple[str, ...]
    advantage_R: tuple[float, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    invariants: Mapping[str, float] = field(default_factory=dict)


def told(columns: Columns, declared: Mapping[str, str | float]) -> Advantages:
    """Advantages with every fallback counted under the name of its path."""
    paths = Counter(columns.path_R)
    counters = {"voters": paths["native"] + paths[SINGLETON] + paths[SINGLETON_REWARD]}
    counters |= {path: paths[path] for path in (NO_REWARD, NO_VOTE, SINGLETON, SINGLETON_REWARD)}
    return Advantages(
        columns.adv_T, columns.path_R, counters | dict(columns.counters), columns.invariants, columns.advantage_R,
        {"zero_variance": "max - min <= 1e-9 is 0", **declared},
    )  # fmt: skip


def spread(view: RolloutView, advantage_R: Floats) -> Floats:
    """Each rollout's advantage on its trained tokens, whatever rows they stand in; 0 elsewhere."""
    return np.where(view.mask_T, advantage_R[view.rollout_T], 0.0)


def spread_steps(view: RolloutView, advantage_S: Floats) -> Floats:
    """Each step's advantage on the tokens that it sampled; 0 elsewhere.

    Raises:
        MethodError: a trained token was sampled by no step.
    """
    lost = int(np.count_nonzero(view.mask_T & (view.step_T < 0)))
    if lost:
        raise MethodError(f"{lost} trained tokens belong to no step; allowed: tokens that a model call sampled")
    return np.where(view.mask_T, np.append(advantage_S, 0.0)[view.step_T], 0.0)


def chosen(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value`, if it is one of `allowed`.

    Raises:
        MethodError: it is not.
    """
    if value not in allowed:
        raise MethodError(f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")
    return value
