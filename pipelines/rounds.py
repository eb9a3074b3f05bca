"""Which part of an experiment's training belongs to which round of its partitions. Pure."""

from typing import TYPE_CHECKING

import dagster as dg

from pipelines.partitions import ExperimentRound
from training.train_config import TrainTable

if TYPE_CHECKING:
    from training.optimise.schedule import Place

ENGINE_POOL = "engine"
"""One engine at a time: the runs of all experiments queue here."""


def update_of(train: TrainTable | None, part: ExperimentRound) -> "Place | None":
    """The update that a round makes; None for round 0, which makes all before the first rollouts, and for the rounds that these have.

    Raises:
        Failure: the experiment has no such round.
    """
    if train is None or part.round == 0:
        return None
    from training.optimise.schedule import before_rollouts, schedule

    places = schedule(train)
    if part.round > len(places):
        raise dg.Failure(f"{part.key}: the experiment has rounds up to r{len(places)}", allow_retries=False)
    return None if part.round <= len(before_rollouts(places)) else places[part.round - 1]


def sampled_for(train: TrainTable | None, part: ExperimentRound) -> "Place | None":
    """The update that a round makes from rollouts of its own; None where it has none."""
    place = update_of(train, part)
    return place if place is not None and place.stage.stage == "reinforce" else None


def is_due(train: TrainTable, part: ExperimentRound, place: "Place") -> bool:
    """Whether a round evaluates the version of a place: its own, and round 0 those of all stages before the first rollouts."""
    if part.round:
        return update_of(train, part) == place
    from training.optimise.schedule import before_rollouts, schedule

    return place in before_rollouts(schedule(train))


def next_round(train: TrainTable | None, part: ExperimentRound) -> ExperimentRound | None:
    """The round that makes the next update; None after the last one, and for an experiment that trains nothing."""
    if train is None:
        return None
    from training.optimise.schedule import before_rollouts, schedule

    places = schedule(train)
    coming = max(part.round, len(before_rollouts(places))) + 1
    return ExperimentRound(part.experiment, coming) if coming <= len(places) else None
