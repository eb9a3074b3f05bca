"""Filters: which rollouts of a round stay in the batch, and what becomes of the others; dropped is never deleted. One file a filter."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ledger.methods import Family
from training.rewards import Scored
from training.view import Bools, Floats, RolloutView, TaskStatistics


@dataclass(frozen=True, eq=False)
class Kept:
    """What a filter says along R.

    Attributes:
        keep_R: stays in the loss.
        weight_R: factor on its weight, 1 where nothing is said.
        reason_R: why it was dropped, empty where it was kept.
        route_R: what becomes of a dropped one: empty, `refill`, `recovery`, `demonstration`, `quarantine`.
        counters: how often each rule applied.
    """

    keep_R: Bools
    weight_R: Floats
    reason_R: tuple[str, ...]
    route_R: tuple[str, ...]
    counters: dict[str, int] = field(default_factory=dict)


class Filter(Protocol):
    """The signature of every filter."""

    def __call__(self, view: RolloutView, stats_B: Sequence[TaskStatistics], reward: Scored) -> Kept:
        """Which rollouts stay."""
        ...


filters: Family[Filter] = Family("training.filters")
