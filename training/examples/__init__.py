"""Examples: supervised rows and preference pairs made of recorded rollouts. One file a way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ledger.methods import Family
from training.rewards import Scored
from training.rows import Row
from training.view import RolloutView


@dataclass(frozen=True, eq=False)
class Example:
    """A supervised row with its weight, and the rollout it comes from as `row.rollout_id`; `reason` says why it was chosen."""

    row: Row
    weight: float
    reason: str


@dataclass(frozen=True, eq=False)
class Pair:
    """Two rows of one task, the preferred one and the rejected one, both executed and judged."""

    preferred: Row
    rejected: Row
    reason: str


@dataclass(frozen=True, eq=False)
class Built:
    """What was built, and why the other rollouts were not used: reason to rollout ids."""

    examples: tuple[Example, ...] = ()
    pairs: tuple[Pair, ...] = ()
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class BuildExamples(Protocol):
    """The signature of every way to build examples."""

    def __call__(self, view: RolloutView, rows: Sequence[Row], reward: Scored, seed: int) -> Built:
        """Examples or pairs from recorded rollouts."""
        ...


examples: Family[BuildExamples] = Family("training.examples")
