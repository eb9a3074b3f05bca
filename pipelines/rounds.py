"""Which part of an experiment's training belongs to which round of its partitions. Pure."""

import dagster as dg

from pipelines.partitions import ExperimentRound
from training.train_config import TrainTable

ENGINE_POOL = "engine"
"""One engine at a time: the runs of all experiments queue here."""


def is_due(part: ExperimentRound, round: int, stage: str) -> bool:
    """Whether a round evaluates the version of a place: its own, and round 0 those of all stages that come before any rollouts."""
    return round == part.round if part.round else stage != "reinforce"


def label_of(train: TrainTable | None, part: ExperimentRound) -> str | None:
    """`<stage>/<number>` of a round of rollouts; None for a round that has none."""
    if train is None or part.round == 0:
        return None
    from training.optimise.schedule import schedule

    places = schedule(train)
    if part.round > len(places):
        raise dg.Failure(f"{part.key}: the experiment has rounds up to r{len(places)}", allow_retries=False)
    place = places[part.round - 1]
    return place.label if place.stage.stage == "reinforce" else None


def next_round(train: TrainTable | None, part: ExperimentRound) -> ExperimentRound | None:
    """The next round of rollouts after a round; None after the last one, and for an experiment that trains nothing."""
    if train is None:
        return None
    from training.optimise.schedule import schedule

    later = [place for place in schedule(train) if place.round > part.round and place.stage.stage == "reinforce"]
    return ExperimentRound(part.experiment, later[0].round) if later else None
