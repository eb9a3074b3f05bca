"""The order of a run's updates, numbered through all stages, and the seeds of its named random streams. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from ledger.errors import SettingsError
from ledger.ids import derived_id
from training.rollout.model_client import call_seed
from training.train_config import Stage, TrainTable

STEPS_A_VERSION = 100
"""Optimiser steps of copy and supervised stages after which a model version is published, so that a kill costs no more than these."""
Stream = Literal["init", "data", "shuffle", "dropout"]


@dataclass(frozen=True)
class Place:
    """One update of a run: what one batch is assembled for and one model version comes of.

    Attributes:
        stage: its stage.
        index: its number in the stage, from 0; `of` is how many the stage has.
        round: its number in the run, from 1; round 0 is what an experiment collects beside its training.
    """

    stage: Stage
    index: int
    of: int
    round: int

    @property
    def label(self) -> str:
        """`<stage>/<number in the stage, from 1>`."""
        return f"{self.stage.name}/{self.index + 1}"

    @property
    def steps(self) -> range:
        """Numbers in the stage of its optimiser steps, for copy and supervised stages; each is one batch of tokens."""
        assert self.stage.stage != "reinforce"
        first = self.index * STEPS_A_VERSION
        return range(first, min(first + STEPS_A_VERSION, self.stage.steps))

    def update_id(self, run_id: str) -> str:
        """The id of the update, the same whoever makes it."""
        return derived_id("update", run_id, self.stage.name, self.round)


def schedule(train: TrainTable) -> tuple[Place, ...]:
    """All updates of a run in order."""
    places: list[Place] = []
    for stage in train.stages:
        of = stage.rounds if stage.stage == "reinforce" else -(-stage.steps // STEPS_A_VERSION)
        places += [Place(stage, index, of, len(places) + 1 + index) for index in range(of)]
    return tuple(places)


def before_rollouts(places: Sequence[Place]) -> tuple[Place, ...]:
    """The leading updates: those before the first round of rollouts."""
    return tuple(takewhile(lambda place: place.stage.stage != "reinforce", places))


def place_of(places: Sequence[Place], label: str) -> Place:
    """The place that a label names: `<stage>` for the last one of a stage, `<stage>/<number>` for one of them.

    Raises:
        SettingsError: there is none.
    """
    name, slash, number = label.partition("/")
    found = [place for place in places if place.stage.name == name and (not slash or number == str(place.index + 1))]
    if not found:
        stages = ", ".join(f"{place.stage.name}/1 to /{place.of}" for place in places if place.index == 0)
        raise SettingsError(f"no update {label!r}; there are {stages}")
    return found[-1]


def stream_seed(root_seed: int, stream: Stream, *parts: str | int) -> int:
    """The seed of a named random stream at a place: 31 bits, a function of the root seed, the name and the place alone."""
    return call_seed(root_seed, stream, *parts)
