"""Diagnostics: what a batch or an update looks like, as estimates with what they were taken over. One file a diagnostic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ledger.methods import Family
from training.rewards import Scored
from training.view import Floats, RolloutView


@dataclass(frozen=True)
class Measured:
    """One number: `value` is None where it cannot be taken, with the reason in `caveats`.

    Attributes:
        value: the estimate, in `unit`.
        n: what it was taken over.
        unit: rollouts, tokens, nats, share, ...
        caveats: what to know before using it.
    """

    value: float | None
    n: int
    unit: str
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class UpdateColumns:
    """What an update was made of: advantages and weights along T, and log-probability columns by name (nats, NaN where unknown)."""

    adv_T: Floats
    weight_T: Floats
    logprobs: Mapping[str, Floats] = field(default_factory=dict)


class Diagnostic(Protocol):
    """The signature of every diagnostic."""

    def __call__(self, view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
        """Named measurements of a round."""
        ...


diagnostics: Family[Diagnostic] = Family("training.diagnostics")
