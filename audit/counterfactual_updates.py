"""The recorded updates that changed verdicts reach, each with the effect on it, and what cannot be derived. Reads the ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from audit.counterfactual import Effect, effect, gap
from audit.counterfactual_changes import NOTHING, Changes, Judgement, judgement
from ledger.attempts import counted
from ledger.errors import BatchRefused, MethodError, TokenError, UnknownId
from ledger.evaluated import of_kind, runs
from ledger.events import BatchAssembled, LossWeight, RewardDerived, UpdateApplied
from ledger.ledger import LedgerHandle
from ledger.methods import Bound
from ledger.queries import VerdictLine, verdicts
from training.optimise.batch import JudgedRound
from training.optimise.recipe import Recipe, reinforce_recipe
from training.optimise.schedule import schedule, stream_seed
from training.rewards import Reward, Scored, rewards
from training.run_config import RunConfig
from training.view import RolloutView
from training.view_read import RoundRead, read_round

REPRODUCED = 1e-6
"""A recomputed update whose weights, advantages and shares lie this close to the recorded ones is the one that was applied."""


@dataclass(frozen=True)
class UpdateEffect:
    """A recorded update that changed verdicts reach.

    Attributes:
        update: its first part.
        touched: its rollouts whose verdict is changed.
        effect: before and after; None where it cannot be derived.
        reason: why not; empty where it can.
        gap: largest difference of the recomputed update, before any change, from the recorded one.
        event_ids: the update's and its batch's events.
    """

    update: UpdateApplied
    touched: tuple[str, ...]
    effect: Effect | None
    reason: str
    gap: float | None
    event_ids: tuple[str, ...]


@dataclass(frozen=True)
class Reached:
    """Every update that is reached, how many are not, and kind to number of what cannot be derived."""

    updates: tuple[UpdateEffect, ...]
    untouched: int
    not_derivable: Mapping[str, int]


@dataclass(frozen=True)
class _Recorded:
    """An update with the events of both it and its batch."""

    first: UpdateApplied
    weights: tuple[LossWeight, ...]
    batch: tuple[BatchAssembled, ...]
    batch_position: int
    event_ids: tuple[str, ...]

    @cached_property
    def rollout_ids(self) -> tuple[str, ...]:
        """Of the whole batch, excluded ones included."""
        rows = [row.rollout_id for part in self.batch for row in part.rows]
        return tuple(dict.fromkeys([*rows, *(ident for part in self.batch for ids in part.exclusions.values() for ident in ids)]))


@dataclass(frozen=True)
class _Run:
    """What a run's file says of its training."""

    config: RunConfig
    root_seed: int

    @cached_property
    def rule(self) -> Bound[Reward]:
        return rewards.bind(self.config.reward)

    def recipe(self, round: int) -> tuple[Recipe, float] | None:
        """The recipe of a round and its temperature; None for one that is not of rollouts."""
        place = next((place for place in schedule(self.config.train) if place.round == round), None) if self.config.train else None
        if place is None or place.stage.stage != "reinforce":
            return None
        return reinforce_recipe(place.stage, shuffle_seed=stream_seed(self.root_seed, "shuffle", place.stage.name, place.index)), (
            place.stage.temperature
        )


def reached(ledger: LedgerHandle, changes: Changes) -> Reached:
    """What the changed verdicts come to in every update that trained on one of their rollouts or let it vote."""
    known = {line.run_id: line for line in runs(ledger)}
    found, untouched = list[UpdateEffect](), 0
    recorded = _recorded(ledger)
    for item in recorded:
        touched = tuple(rollout_id for rollout_id in item.rollout_ids if rollout_id in changes.by_rollout)
        if not touched:
            untouched += 1
            continue
        line = known.get(item.first.run_id)
        try:
            run = None if line is None else _Run(RunConfig.model_validate(line.config), line.root_seed)
        except ValidationError:
            run = None
        found.append(_reached(ledger, item, touched, run, changes))
    return Reached(tuple(found), untouched, _not_derivable(ledger, recorded, found))


def _reached(ledger: LedgerHandle, item: _Recorded, touched: tuple[str, ...], run: _Run | None, changes: Changes) -> UpdateEffect:
    def cannot(reason: str, gap: float | None = None) -> UpdateEffect:
        return UpdateEffect(item.first, touched, None, reason, gap, item.event_ids)

    if run is None:
        return cannot("the run's file is not recorded, or is of another release")
    try:
        made = run.recipe(item.first.round or 0)
        if made is None:
            return cannot("it is no update by rewards: its rows were chosen from traces")
        recipe, rule = made[0], run.rule
        bound = {name: ids for name, ids in recipe.method_ids().items() if ids}
        if item.batch[0].methods and bound != item.batch[0].methods:
            return cannot("its methods have other sources now")
        if recipe.reads_trainer:
            return cannot("a filter reads the trainer's log-probabilities, which are not stored")
        trained = _as_trained(ledger, item, rule)
        current = [item.first.model_version_before, *(trained.view.model_version_R if recipe.judges_lag else ())]
        told = effect(trained, changes.by_rollout, rule, recipe, current=current)
    except (BatchRefused, MethodError, TokenError, UnknownId) as error:
        return cannot(f"{type(error).__name__}: {error}"[:300])
    off = gap(told.before, item.weights)
    if off > REPRODUCED:
        return cannot("recomputed without any change, it is not the one that was recorded", off)
    return UpdateEffect(item.first, touched, told, "", off, item.event_ids)


def _as_trained(ledger: LedgerHandle, item: _Recorded, rule: Bound[Reward]) -> JudgedRound:
    """The round with the rewards that the batch names, and the outcomes that follow from the verdicts behind them."""
    ids = list(item.rollout_ids)
    read = read_round(ledger, ids, trained=item.first.model_version_before)
    known = {rollout.rollout_id: rollout for rollout in counted(ledger, item.first.run_id, item.first.round or 0)}
    named = {row.rollout_id: row.reward_id for part in item.batch for row in part.rows}
    streams = [f"reward-{reward_id}" for rollout_id in ids if rollout_id in known for reward_id in known[rollout_id].reward_ids]
    derived: dict[str, RewardDerived] = {}
    for event in ledger.read_streams(streams):
        body = event.body
        if not isinstance(body, RewardDerived) or body.rule_id != rule.ref.method_id:
            continue
        asked = named.get(body.rollout_id)
        if body.reward_id == asked or (asked is None and (event.position or 0) <= item.batch_position):
            derived[body.rollout_id] = body
    said = verdicts(ledger, ids)
    stood = {rollout_id: _behind(derived.get(rollout_id), said[rollout_id]) for rollout_id in ids}
    return _round(read, derived, stood)


def _round(read: RoundRead, derived: Mapping[str, RewardDerived], stood: Mapping[str, Judgement]) -> JudgedRound:
    view = read.view
    bodies = [derived.get(rollout_id) for rollout_id in view.rollout_id_R]
    names = dict.fromkeys(name for body in bodies if body is not None for name in body.terms)
    scored = Scored(
        tuple(None if body is None else body.value for body in bodies),
        tuple("no reward was derived" if body is None else body.reason for body in bodies),
        {name: tuple(None if body is None else body.terms.get(name) for body in bodies) for name in names},
    )
    rows = [row for built in read.built for row in built.rows if row.mask_T.any()]
    return JudgedRound(
        replace(view, outcome_R=_outcomes(view, stood)), tuple(row.open_reason for row in rows), tuple(row.index for row in rows), scored,
        tuple(None if body is None else body.reward_id for body in bodies), {}, read.counters,
    )  # fmt: skip


def _outcomes(view: RolloutView, stood: Mapping[str, Judgement]) -> tuple[str, ...]:
    return tuple(
        stood[rollout_id].outcome(ended_by) if ended_by else "running"
        for rollout_id, ended_by in zip(view.rollout_id_R, view.ended_by_R, strict=True)
    )


def _behind(reward: RewardDerived | None, said: Sequence[VerdictLine]) -> Judgement:
    """The verdict from which the reward was derived."""
    if reward is None or not reward.verdict_ids:
        return NOTHING
    return judgement(next((line for line in said if line.verdict_id == reward.verdict_ids[0]), None))


def _recorded(ledger: LedgerHandle) -> list[_Recorded]:
    """Every update with its batch, in the order in which they were applied."""
    batches: dict[str, list[tuple[BatchAssembled, int, str]]] = {}
    for event in of_kind(ledger, "BatchAssembled"):
        if isinstance(body := event.body, BatchAssembled):
            batches.setdefault(body.batch_id, []).append((body, event.position or 0, event.event_id))
    applied: dict[str, list[tuple[UpdateApplied, str]]] = {}
    for event in of_kind(ledger, "UpdateApplied"):
        if isinstance(update := event.body, UpdateApplied):
            applied.setdefault(update.update_id, []).append((update, event.event_id))
    found = []
    for made in applied.values():
        first = next((body for body, _ in made if body.part == 0), made[0][0])
        batch = batches.get(first.batch_id, [])
        weights = tuple(weight for body, _ in made for weight in body.weights)
        if batch:
            found.append(_Recorded(
                first, weights, tuple(body for body, _, _ in batch), min(position for _, position, _ in batch),
                (*(ident for _, _, ident in batch), *(ident for _, ident in made)),
            ))  # fmt: skip
    return found


def _not_derivable(ledger: LedgerHandle, recorded: Sequence[_Recorded], found: Sequence[UpdateEffect]) -> dict[str, int]:
    """What would have been another after the first update that changes in each run, counted; nothing is guessed about it."""
    first: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for item in found:
        if item.effect is None:
            counts["updates_not_recomputed"] += 1
        else:
            counts["refills"] += sum(map(len, item.effect.flat_groups))
        if item.effect is None or item.effect.count("advantage", "weight", "trains"):
            at = item.update.round or 0
            first[item.update.run_id] = min(at, first.get(item.update.run_id, at))
    for run_id, round in first.items():
        later = [item for item in recorded if item.first.run_id == run_id and (item.first.round or 0) > round]
        counts["later_policies"] += 1 + len(later)
        counts["unsampled_rollouts"] += sum(len(item.rollout_ids) for item in later)
    since = min((item.batch_position for item in recorded if (item.first.round or 0) == first.get(item.first.run_id)), default=None)
    # Without such an event tasks were drawn without a look at results, so other results would have drawn the same.
    counts["curriculum"] = 0 if since is None else sum((event.position or 0) > since for event in of_kind(ledger, "CurriculumUpdated"))
    return {name: counts[name] for name in ("updates_not_recomputed", "refills", "curriculum", "unsampled_rollouts", "later_policies")}


def update_json(item: UpdateEffect) -> dict[str, Any]:
    """An update that is reached as a JSON object."""
    body = item.update
    return {
        "update_id": body.update_id, "run_id": body.run_id, "stage": body.stage, "round": body.round,
        "model_version_after": body.model_version_after, "touched": list(item.touched), "reason": item.reason,
        "recorded_gap": None if item.gap in (None, float("inf")) else item.gap,
        "effect": None if item.effect is None else item.effect.as_json(),
    }  # fmt: skip
