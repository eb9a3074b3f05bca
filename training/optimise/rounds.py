"""A round of reinforcement: which groups, their rollouts through the engine, and the batch that comes of them. Writes the ledger."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ledger.attempts import Attempt, attempts, counted, dispatched
from ledger.bundle import Bundle
from ledger.canonical import digest
from ledger.errors import BatchRefused, SettingsError, TrainingBroken
from ledger.events import EngineRefreshed, RewardDerived, SplitRead
from ledger.ledger import LedgerHandle
from training import stages
from training.admission import admitted, require_admitted
from training.lab import Lab
from training.optimise.batch import Assembled, JudgedRound, assemble
from training.optimise.batch_events import BatchName, record
from training.optimise.joined import joined_rewards, unreproduced
from training.optimise.learner import Learner
from training.optimise.opened import Start, Training
from training.optimise.schedule import Place, stream_seed
from training.rollout.collect import Collected, Group, Run
from training.rollout.policies import Policy
from training.rollout.sampling import Refreshed, SamplingEngine, TrainerScore
from training.stages import Progress, silent
from training.train_config import ReinforceStage
from training.view_read import read_round

_READER_CHARS = 8


class RoundSampler(Protocol):
    """What rollouts are sampled by: an engine, and the collector that drives it."""

    @property
    def engine(self) -> SamplingEngine:
        """The engine, which serves one version at a time."""
        ...

    def collect(self, lab: Lab, run: Run, groups: Sequence[Group], *, progress: Progress) -> Collected:
        """What was done so that every slot of every group has one counted attempt."""
        ...


@dataclass(frozen=True)
class Sampled:
    """What a round's sampling did: what the engine said when it served the version (None where nothing was left to sample), and slots."""

    refreshed: Refreshed | None
    expected: int
    new: int


def round_groups(training: Training, place: Place, version: str) -> tuple[Group, ...]:
    """The groups of a round: those that were dispatched already, else a seeded choice among the admitted training bundles.

    All bundles are used equally often: they are drawn without replacement, and anew when too few are left for a round.

    Raises:
        SettingsError: fewer bundles are admitted than a round has groups.
        TrainingBroken: a group was dispatched for a bundle that the experiment does not have, or that would not be chosen now.
    """
    stage = _stage(place)
    policy = Policy(training.lab.config.name, version, version, sampling={"temperature": stage.temperature}, trainable=True)
    by_id = training.lab.training_bundles(stage.name)
    known = [group for group in dispatched(training.ledger, training.run_id, place.round) if group.policy == policy.name]
    if len(known) == stage.groups:
        if strange := [group.bundle_id for group in known if group.bundle_id not in by_id]:
            raise TrainingBroken(
                f"round {place.label} was dispatched for bundle {strange[0]}; allowed: the training bundles of the experiment"
            )
        return tuple(Group(by_id[group.bundle_id], policy, stage.group_size) for group in known)
    chosen = _drawn(training, place, [by_id[name] for name in admitted(training.ledger, of=list(by_id))])
    if known and not {group.bundle_id for group in known} <= {bundle.bundle_id for bundle in chosen}:
        raise TrainingBroken(
            f"{len(known)} of {stage.groups} groups of {place.label} were dispatched, and other bundles are admitted since then"
        )
    return tuple(Group(bundle, policy, stage.group_size) for bundle in chosen)


def sample(
    training: Training, place: Place, start: Start, sampler: RoundSampler, *, score: TrainerScore, progress: Progress = silent
) -> Sampled:
    """What was done so that every slot of the round has one counted attempt by the version that it starts from.

    Args:
        score: the trainer's log-probabilities by that version, which the engine's must agree with before a rollout may start.
    Raises:
        EngineFailed: they do not agree.
    """
    groups = round_groups(training, place, start.version)
    run = training.lab.run(place.round)
    ids = [run.group_id(group) for group in groups]
    expected = sum(group.size for group in groups)
    filled = sum(attempt.counts for attempt in attempts(training.ledger, ids))
    if filled == expected:
        return Sampled(None, expected, 0)
    refreshed = sampler.engine.serve(start.folder, start.version, score=score, tolerance_nats=training.table.engine.probe_tolerance_nats)
    record_refresh(training.ledger, sampler.engine.engine_id, refreshed)
    done = sampler.collect(training.lab, run, groups, progress=progress)
    return Sampled(refreshed, expected, done.ran)


def record_refresh(ledger: LedgerHandle, engine_id: str, refreshed: Refreshed) -> None:
    """Append what an engine said when it took new weights, under the next number of its stream."""
    number = len(ledger.read_stream(f"engine-{engine_id}"))
    body = EngineRefreshed(
        engine_id=engine_id, model_version=refreshed.version, cache_reset=refreshed.cache_reset, probe_gap=refreshed.probe_gap_nats,
        refresh=number,
    )  # fmt: skip
    ledger.append([ledger.new(body)])


def round_batch(
    training: Training, place: Place, start: Start, *, learner: Callable[[], Learner], progress: Progress = silent
) -> tuple[str, Assembled]:
    """The id of a round's batch and what it holds; its rollouts are judged and rewarded first where they are not.

    Args:
        learner: opens the version that the round starts from; only called where a filter reads the trainer's log-probabilities.
    Raises:
        BatchRefused: a slot has no counted attempt, or the batch must not be trained on.
        BundleRefused: a bundle is not admitted, or is held out.
    """
    stages.verdicts(training.lab, round=place.round, progress=progress)
    stages.rewards(training.lab, round=place.round, progress=progress)
    groups = round_groups(training, place, start.version)
    require_admitted(training.ledger, [group.bundle.bundle_id for group in groups], use="batch")
    run = training.lab.run(place.round)
    rollout_ids = _filled(
        {run.group_id(group): group.size for group in groups}, attempts(training.ledger, [run.group_id(g) for g in groups])
    )
    judged, recipe = judged_round(training, place, rollout_ids, trained=start.version), training.recipe(place)
    if recipe.reads_trainer:
        logprob_T = learner().logprobs(judged.view, micro_tokens=_stage(place).micro_tokens)
        judged = replace(judged, view=replace(judged.view, trainer_logprob_T=logprob_T))
    older = judged.view.model_version_R if recipe.judges_lag else ()
    made = assemble(judged, recipe, dispatched=rollout_ids, current=[start.version, *older])
    name = BatchName(training.run_id, place.stage.name, place.round, start.version)
    return record(training.ledger, name, made, recipe.method_ids()), made


def judged_round(training: Training, place: Place, rollout_ids: Sequence[str], *, trained: str) -> JudgedRound:
    """The counted rollouts of a round with their rows and rewards, everything joined by rollout id.

    Args:
        trained: the model version that is trained on them.
    """
    found = read_round(training.ledger, rollout_ids, trained=trained)
    known = {rollout.rollout_id: rollout for rollout in counted(training.ledger, training.run_id, place.round)}
    reward_ids = [reward_id for rollout_id in rollout_ids for reward_id in known[rollout_id].reward_ids]
    events = training.ledger.read_streams([f"reward-{reward_id}" for reward_id in reward_ids])
    reward, reward_id_R = joined_rewards(
        rollout_ids, {rollout_id: known[rollout_id].verdict_id for rollout_id in rollout_ids},
        [event.body for event in events if isinstance(event.body, RewardDerived)], rule_id=training.lab.rule.ref.method_id,
    )  # fmt: skip
    rows = [row for built in found.built for row in built.rows if row.mask_T.any()]
    return JudgedRound(
        found.view, tuple(row.open_reason for row in rows), tuple(row.index for row in rows), reward, reward_id_R,
        unreproduced(rollout_ids, found.processed_R, temperature=_stage(place).temperature), found.counters,
    )  # fmt: skip


def _filled(sizes: Mapping[str, int], known: Sequence[Attempt]) -> list[str]:
    """The rollout of every slot of the groups, by group and slot."""
    counts = [attempt for attempt in known if attempt.counts]
    slots = {(attempt.group_id, attempt.slot) for attempt in counts}
    expected = {(group_id, slot) for group_id, size in sizes.items() for slot in range(size)}
    if slots != expected or len(counts) != len(slots):
        raise BatchRefused(f"{len(counts)} counted rollouts for {len(expected)} dispatched slots; allowed: exactly one a slot")
    return [attempt.rollout_id for attempt in counts]


def _drawn(training: Training, place: Place, bundles: Sequence[Bundle]) -> list[Bundle]:
    stage = _stage(place)
    if len(bundles) < stage.groups:
        raise SettingsError(
            f"round {place.label} has {stage.groups} groups and {len(bundles)} admitted training bundles; allowed: no more than these"
        )
    ordered = sorted(bundles, key=lambda bundle: bundle.bundle_id)
    _tell(training, ordered)
    epoch, number = divmod(place.index, len(ordered) // stage.groups)
    order = np.random.default_rng(stream_seed(training.lab.config.seed, "data", stage.name, epoch)).permutation(len(ordered))
    return [ordered[int(n)] for n in order[number * stage.groups : (number + 1) * stage.groups]]


def _tell(training: Training, bundles: Sequence[Bundle]) -> None:
    """Append who reads the training split, once for each set of bundles."""
    name = f"trainer:{digest([bundle.bundle_id for bundle in bundles])[:_READER_CHARS]}"
    body = SplitRead(split="train", purpose="selection", reader=name, run_id=training.run_id, bundles=len(bundles))
    training.ledger.append([training.ledger.new(body, correlation_id=training.run_id)])


def _stage(place: Place) -> ReinforceStage:
    if place.stage.stage != "reinforce":
        raise TrainingBroken(f"{place.label} is of a {place.stage.stage} stage; allowed: one of rounds")
    return place.stage
