"""Runs a run's training: each function reads what exists from the ledger and goes on from there. Writes the ledger and files."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cache

from training import stages
from training.lab import Lab
from training.optimise import pretraining, rounds, supervised
from training.optimise.batch import Assembled
from training.optimise.chain import AppliedUpdate
from training.optimise.learner import Learner
from training.optimise.opened import Start, Training
from training.optimise.rounds import RoundSampler
from training.optimise.schedule import Place, before_rollouts, place_of
from training.optimise.team import Team
from training.optimise.traces_read import collect_traces
from training.optimise.updates import Ready, apply_update, learner_at, loss_weights
from training.rollout.collect import Group
from training.stages import Progress, StageReport, silent
from training.train_config import ReinforceStage
from training.update_batch import UpdateBatch

OpenSampler = Callable[[Lab], AbstractContextManager[RoundSampler]]


@dataclass(frozen=True)
class Trained:
    """What became of one place of the schedule.

    Attributes:
        place: which.
        update: its update.
        new: whether this call made it.
        seconds: that it took.
        sampled: slots that were filled for it now.
    """

    place: Place
    update: AppliedUpdate
    new: bool
    seconds: float = 0.0
    sampled: int = 0
    counters: Mapping[str, float] = field(default_factory=dict)


def train(
    lab: Lab,
    open_sampler: OpenSampler,
    *,
    until: Place | None = None,
    team: Team | None = None,
    progress: Progress = silent,
    told: Callable[[Trained], None] = lambda _: None,
) -> list[Trained]:
    """Every update of the run up to `until`, in order; those that exist are left as they are.

    Args:
        lab: the experiment.
        open_sampler: opens what rollouts are sampled by; only called where a round has something to sample or to update.
        until: the last place; the end of the schedule when None.
        team: the processes that take the optimiser steps, of which this one leads; None: this one alone.
        told: called after each place.
    Raises:
        TallyError: an update cannot be made, or another process trains this run; running again goes on from there.
    """
    training = Training(lab, team=team)
    stages.worlds(lab)
    stages.task_bundles(lab, progress=progress)
    last = training.places[-1].round if until is None else until.round
    found: list[Trained] = []
    with training.alone(), ExitStack() as stack:
        sampler = cache(lambda: stack.enter_context(open_sampler(lab)))
        done = training.chain()
        found += [Trained(update.place, update, False) for update in done[:last]]
        for place in training.places[len(found) : last]:
            found.append(_place(training, place, sampler, progress))
            told(found[-1])
    return found


def supervised_traces(lab: Lab, *, progress: Progress = silent) -> StageReport:
    """The recorded rollouts that the stages before the first rollouts imitate: collected where they are not there, judged and rewarded."""
    training = Training(lab)
    since = lab.ledger.barrier()
    counts: Counter[str] = Counter()
    with training.alone():
        for place in before_rollouts(training.places):
            if place.stage.stage == "supervised" and place.index == 0:
                for source, rollout_ids in collect_traces(training, place, progress=progress):
                    counts[f"traces of {source.policy}"] += len(rollout_ids)
    return StageReport(since, lab.ledger.barrier(), dict(counts))


def sft_model(lab: Lab, *, progress: Progress = silent) -> StageReport:
    """All updates of the stages before the first round of rollouts: copying and imitation."""
    training = Training(lab)
    since = lab.ledger.barrier()
    leading = before_rollouts(training.places)
    with training.alone():
        made = [_place(training, place, None, progress) for place in leading if training.done(place) is None]
    return StageReport(since, lab.ledger.barrier(), {"updates": len(leading), "new": len(made)})


def rollouts(lab: Lab, label: str, open_sampler: OpenSampler, *, progress: Progress = silent) -> StageReport:
    """Every slot of a round filled with one counted attempt by the version that the round starts from.

    Args:
        label: `<stage>/<number>`.
    """
    training, place, since = _opened(lab, label)
    with training.alone(), open_sampler(lab) as sampler:
        # To score needs no optimiser, and that of an update long past is not kept.
        start = replace(_start(training, place, progress), previous=None)
        done = rounds.sample(training, place, start, sampler, score=_learner(training, place, start).score, progress=progress)
    return StageReport(since, lab.ledger.barrier(), {"expected": done.expected, "already": done.expected - done.new, "new": done.new})


def expected_groups(lab: Lab, label: str) -> tuple[Group, ...]:
    """The groups of a round.

    Raises:
        TrainingBroken: an update before it was not applied.
    """
    training, place, _ = _opened(lab, label)
    return rounds.round_groups(training, place, _start(training, place, silent).version)


def training_batch(lab: Lab, label: str, *, progress: Progress = silent) -> StageReport:
    """The batch of a round recorded, with its rollouts judged and rewarded."""
    training, place, since = _opened(lab, label)
    with training.alone():
        start = _start(training, place, progress)
        # To score needs no optimiser, and that of an update long past is not kept.
        bare = replace(start, previous=None)
        _, made = rounds.round_batch(training, place, start, learner=lambda: _learner(training, place, bare), progress=progress)
    stand = made.stand
    counts = {"rollouts": made.round.view.rollouts, "vote": int(stand.votes_R.sum()), "train": int(stand.trains_R.sum())}
    return StageReport(since, lab.ledger.barrier(), counts)


def model_version(lab: Lab, label: str, *, progress: Progress = silent) -> StageReport:
    """The update of a round applied and its version published; one without rollouts is made from its traces."""
    training, place, since = _opened(lab, label)
    with training.alone():
        new = training.done(place) is None
        if new:
            if isinstance(place.stage, ReinforceStage):
                start = _start(training, place, progress)
                _update_round(training, place, start, _learner(training, place, start), progress)
            else:
                _place(training, place, None, progress)
    return StageReport(since, lab.ledger.barrier(), {"updates": 1, "new": int(new)})


def _opened(lab: Lab, label: str) -> tuple[Training, Place, int]:
    training = Training(lab)
    return training, place_of(training.places, label), lab.ledger.barrier()


def _start(training: Training, place: Place, progress: Progress) -> Start:
    # Before anything is made for a first version, which a later update cannot start from.
    training.require_turn(place)
    return training.start(place, pretraining.initial_version(training, progress=progress))


def _place(training: Training, place: Place, sampler: Callable[[], RoundSampler] | None, progress: Progress) -> Trained:
    began, start = time.monotonic(), _start(training, place, progress)
    learner, sampled = _learner(training, place, start), 0
    if place.stage.stage == "reinforce":
        assert sampler is not None
        sampled = rounds.sample(training, place, start, sampler(), score=learner.score, progress=progress).new
        update = _update_round(training, place, start, learner, progress)
    else:
        if place.stage.stage == "copy":
            made = pretraining.ready(training, place, start)
        else:
            made = supervised.ready(training, place, start, supervised.dataset(training, place, start, progress=progress))
        steps = len(place.steps)
        update = apply_update(training, place, start, learner, made, done=lambda n: progress(f"steps of {place.label}", n, steps))
    return Trained(place, update, True, time.monotonic() - began, sampled, update.counters)


def _update_round(training: Training, place: Place, start: Start, learner: Learner, progress: Progress) -> AppliedUpdate:
    batch_id, made = rounds.round_batch(training, place, start, learner=lambda: learner, progress=progress)
    stage = place.stage
    assert isinstance(stage, ReinforceStage)
    ready = Ready(batch_id, _round_steps(made, stage, learner), loss_weights(made), stage.micro_tokens, {"epochs": stage.epochs})
    return apply_update(training, place, start, learner, ready)


def _round_steps(made: Assembled, stage: ReinforceStage, learner: Learner) -> Iterator[UpdateBatch]:
    """The batch of each optimiser step. With several of them all ratios are to the weights at the start of the update."""
    parts = made.parts()
    if len(parts) * stage.epochs > 1:
        parts = tuple(learner.with_proximal(part, micro_tokens=stage.micro_tokens) for part in parts)
    for _ in range(stage.epochs):
        yield from parts


def _learner(training: Training, place: Place, start: Start) -> Learner:
    stage = place.stage
    return learner_at(training, place, start, temperature=stage.temperature if isinstance(stage, ReinforceStage) else 1.0)
