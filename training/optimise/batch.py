"""A round of judged rollouts as what an update is computed from: who votes, who trains, advantages and explicit weights. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ledger.errors import BatchRefused
from training.advantages import Advantages
from training.optimise.recipe import BoundTerm, Recipe
from training.optimise.standing import Standing, check_masked, filtered, standing, without_variance
from training.rewards import Scored
from training.update_batch import Term, UpdateBatch
from training.view import Bools, Floats, Ints, RolloutView, numbered


@dataclass(frozen=True, eq=False)
class JudgedRound:
    """A round as a batch is assembled from it.

    Attributes:
        view: its rollouts with their rows.
        open_reason_Q: why each row was opened.
        index_Q: number of each row in its rollout.
        reward: along R, joined by rollout id.
        reward_id_R: the reward that each value is; None where nothing was rewarded.
        unreproduced: rollout id to how its tokens were sampled, where the trainer does not reproduce that.
        counters: of what was built and left out on the way from calls to rows.
    """

    view: RolloutView
    open_reason_Q: tuple[str, ...]
    index_Q: tuple[int, ...]
    reward: Scored
    reward_id_R: tuple[str | None, ...]
    unreproduced: Mapping[str, str]
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Assembled:
    """What a batch holds.

    Attributes:
        round: the rollouts, with their rewards as trained.
        stand: who votes and who trains.
        adv_T: advantages, 0 outside of what is trained.
        path_R: `native`, or the fallback that the advantage took.
        terms: the loss, with the weights of the whole batch; each of its parts is weighed as one update.
        part_R: number of the optimiser step that each rollout is in, -1 where it does not train.
        counters: fallbacks and special cases.
    """

    round: JudgedRound
    stand: Standing
    adv_T: Floats
    path_R: tuple[str, ...]
    terms: tuple[Term, ...]
    part_R: Ints
    counters: Mapping[str, float]

    @property
    def weight_T(self) -> Floats:
        """Explicit weight of each token over all terms, their factors included."""
        return total_weight(self.terms, len(self.adv_T))

    def parts(self) -> tuple[UpdateBatch, ...]:
        """The batch of each optimiser step: the rows that train in it and no others; none where nothing trains."""
        view = self.round.view
        part_Q = self.part_R[view.rollout_Q]
        numbers = [int(number) for number in np.unique(self.part_R) if number >= 0]
        return tuple(update_batch(view, part_Q == number, self.adv_T, self.terms) for number in numbers)


def assemble(judged: JudgedRound, recipe: Recipe, *, dispatched: Collection[str], current: Collection[str]) -> Assembled:
    """The batch of a round.

    Args:
        judged: the round.
        recipe: its methods.
        dispatched: ids of the rollouts that were dispatched for this batch and counted; all of them and no others must be there.
        current: model versions whose samples the update may use.
    Raises:
        BatchRefused: the rollouts are not those dispatched, too many are no evidence about the policy, a group holds two tasks, a reward
            is not finite, tokens were sampled in a way that the trainer does not reproduce, or a method answers for other rollouts or
            with numbers that are not finite.
    """
    _check(judged, dispatched)
    if recipe.shuffle_seed is not None:
        judged = shuffled(judged, recipe.shuffle_seed)
    view, reward = judged.view, judged.reward
    stand = standing(view, reward, truncated=recipe.truncated, current=frozenset(current))
    masked = check_masked(stand, recipe.max_mask_fraction)
    stand = filtered(stand, view, reward, recipe.filters)
    stand = without_variance(stand, view, reward, rule=recipe.zero_variance)
    _check_sampling(judged, stand)
    advantage = recipe.advantage.call(view, reward, stand.votes_R, {})
    covered_T = view.mask_T & stand.trains_R[view.rollout_T]
    adv_T = np.where(covered_T, advantage.adv_T, 0.0)
    _check_advantages(view, advantage, adv_T, recipe)
    part_R = cut(view, stand.trains_R, recipe.updates)
    terms = tuple(_term(term, view, covered_T, part_R, stand.factor_R) for term in recipe.terms)
    counters: dict[str, float] = {
        **judged.counters,
        **stand.counters,
        **_fallbacks(advantage, stand),
        **_rows_left_out(view, stand, covered_T),
        **masked,
    }
    if recipe.shuffle_seed is not None:
        counters["shuffled_rewards"] = sum(value is not None for value in reward.value_R)
    if (parts := len(np.unique(part_R[part_R >= 0]))) < recipe.updates:
        counters["optimiser_steps_without_rollouts"] = recipe.updates - parts
    return Assembled(judged, stand, adv_T, advantage.path_R, terms, part_R, counters)


def shuffled(judged: JudgedRound, seed: int) -> JudgedRound:
    """The round with its rewards, and their ids with them, permuted over all rollouts that have one."""
    have = [r for r, value in enumerate(judged.reward.value_R) if value is not None]
    order = np.random.default_rng(seed).permutation(len(have))
    source = list(range(judged.view.rollouts))
    for place, taken in zip(have, order, strict=True):
        source[place] = have[int(taken)]
    reward = judged.reward
    moved = Scored(
        tuple(reward.value_R[r] for r in source), tuple(reward.reason_R[r] for r in source),
        {name: tuple(values[r] for r in source) for name, values in reward.terms.items()},
    )  # fmt: skip
    return replace(judged, reward=moved, reward_id_R=tuple(judged.reward_id_R[r] for r in source))


def cut(view: RolloutView, trains_R: Bools, updates: int) -> Ints:
    """The optimiser step of each rollout, -1 where it does not train: groups in turn, so that no group is in two steps."""
    part_R = np.full(view.rollouts, -1, dtype=np.int64)
    members = np.flatnonzero(trains_R)
    part_R[members] = numbered([view.group_id_R[r] for r in members]) % updates
    return part_R


def update_batch(view: RolloutView, keep_Q: Bools, adv_T: Floats, terms: Sequence[Term]) -> UpdateBatch:
    """The rows `keep_Q` that have a token in the loss, as one update's batch."""
    used_Q = np.zeros(len(view.rollout_Q), dtype=np.bool_)
    for term in terms:
        used_Q[view.row_T[term.mask_T]] = True
    keep_Q = keep_Q & used_Q
    keep_T = keep_Q[view.row_T]
    number_Q = np.cumsum(keep_Q) - 1
    text_only_Q = view.text_only_Q if len(view.text_only_Q) else np.zeros(len(keep_Q), dtype=np.bool_)
    return UpdateBatch(
        rollout_id_Q=tuple(view.rollout_id_R[r] for r in view.rollout_Q[keep_Q]),
        row_T=number_Q[view.row_T[keep_T]].astype(np.int64),
        id_T=view.id_T[keep_T],
        adv_T=adv_T[keep_T],
        logprobs={"behaviour": view.behaviour_logprob_T[keep_T]},
        terms=tuple(replace(term, weight_T=term.weight_T[keep_T], mask_T=term.mask_T[keep_T]) for term in terms),
        text_only_Q=text_only_Q[keep_Q],
    )


def total_weight(terms: Sequence[Term], tokens: int) -> Floats:
    """Σ |coefficient| × weight of each of so many tokens, over the terms."""
    return np.sum([abs(term.coefficient) * term.weight_T for term in terms], axis=0) if terms else np.zeros(tokens)


def weighed(term: BoundTerm, view: RolloutView, trains_R: Bools, mask_T: Bools) -> Floats:
    """The explicit weight of each token of one update by a term's weighting.

    Raises:
        BatchRefused: a weight is negative or not finite, or lies outside of what trains.
    """
    weight_T = np.asarray(term.weighting.call(view, trains_R, mask_T), dtype=np.float64)
    inside_T, name = mask_T & trains_R[view.rollout_T], term.weighting.ref.name
    if weight_T.shape != mask_T.shape or not bool(np.all(np.isfinite(weight_T) & (weight_T >= 0))) or bool(np.any(weight_T[~inside_T])):
        raise BatchRefused(f"weighting {name} gives weights outside of what trains, or not finite; allowed: 0 and above on trained tokens")
    return weight_T


def _term(term: BoundTerm, view: RolloutView, covered_T: Bools, part_R: Ints, factor_R: Floats) -> Term:
    weight_T = np.zeros(len(view.row_T))
    for part in np.unique(part_R[part_R >= 0]):
        trains_R = part_R == part
        weight_T += weighed(term, view, trains_R, covered_T & trains_R[view.rollout_T])
    return Term(term.objective, weight_T * factor_R[view.rollout_T], covered_T, term.coefficient)


def _check(judged: JudgedRound, dispatched: Collection[str]) -> None:
    view = judged.view
    seen, expected = set(view.rollout_id_R), set(dispatched)
    if len(seen) < view.rollouts:
        raise BatchRefused(f"{view.rollouts} rollouts with {len(seen)} ids; allowed: each rollout once")
    if seen != expected:
        strange, missing = sorted(seen - expected), sorted(expected - seen)
        raise BatchRefused(
            f"{len(missing)} of {len(expected)} dispatched rollouts are missing ({', '.join(missing[:3])}) and {len(strange)} were not"
            f" dispatched ({', '.join(strange[:3])}); allowed: exactly those dispatched"
        )
    task_of: dict[str, str] = {}
    for group_id, bundle_id in zip(view.group_id_R, view.bundle_id_R, strict=True):
        if task_of.setdefault(group_id, bundle_id) != bundle_id:
            raise BatchRefused(f"group {group_id} holds rollouts of tasks {task_of[group_id][:12]} and {bundle_id[:12]}; allowed: one task")


def _check_sampling(judged: JudgedRound, stand: Standing) -> None:
    for r, rollout_id in enumerate(judged.view.rollout_id_R):
        how = judged.unreproduced.get(rollout_id)
        if how is not None and stand.trains_R[r]:
            raise BatchRefused(
                f"tokens of rollout {rollout_id} were sampled with {how}, which the trainer does not reproduce;"
                " allowed: the plain distribution at the stage's temperature"
            )


def _check_advantages(view: RolloutView, advantage: Advantages, adv_T: Floats, recipe: Recipe) -> None:
    name = recipe.advantage.ref.name
    if advantage.adv_T.shape != view.mask_T.shape or len(advantage.path_R) != view.rollouts:
        raise BatchRefused(f"advantage {name} answers for {advantage.adv_T.shape} tokens; allowed: {view.mask_T.shape}")
    if not bool(np.all(np.isfinite(adv_T))):
        worst = view.rollout_id_R[int(view.rollout_T[int(np.flatnonzero(~np.isfinite(adv_T))[0])])]
        raise BatchRefused(f"advantage {name} gives rollout {worst} a number that is not finite; allowed: finite advantages")


def _fallbacks(advantage: Advantages, stand: Standing) -> dict[str, float]:
    counters: dict[str, float] = {name: count for name, count in advantage.counters.items() if count}
    counters |= {f"invariant:{name}": float(value) for name, value in advantage.invariants.items()}
    taken = [path for path, trains in zip(advantage.path_R, stand.trains_R, strict=True) if trains and path != "native"]
    return counters | {path: taken.count(path) for path in taken if path not in counters}


def _rows_left_out(view: RolloutView, stand: Standing, covered_T: Bools) -> dict[str, float]:
    used_Q = np.zeros(len(view.rollout_Q), dtype=np.bool_)
    used_Q[view.row_T[covered_T]] = True
    idle = int(np.sum(stand.trains_R[view.rollout_Q] & ~used_Q))
    return {"rows_without_trained_tokens": idle} if idle else {}
