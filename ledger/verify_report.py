"""What verification says: what was looked at, and what did not fit. Pure."""

from dataclasses import dataclass
from typing import NamedTuple


class Fault(NamedTuple):
    """Something that does not fit, named by the internal id of its event where it has one; `Problem` names the position instead."""

    id: int | None
    subject: str
    fault: str


@dataclass(frozen=True)
class Problem:
    """Something that does not fit: in which event, or which row, and why. `position` is None for what is in no ordered event."""

    position: int | None
    subject: str
    fault: str


@dataclass(frozen=True)
class Report:
    """What was verified, and what did not fit, the earliest event first.

    Attributes:
        events, position: number of events, and of those in order.
        blobs: number of blobs; those of destroyed subjects cannot be read and are in `shredded`.
        token_arrays: number of token arrays that were read and compared.
        tiles: number of full tiles that the tree must have.
        checkpoints: number of checkpoints in the database.
        outside: number of checkpoints from outside, and `outside_size` the events that the largest one that agrees covers.
        forks: names of the log after a restore, and `lost` the outside checkpoints that these gave up.
        signed: whether the signatures were checked, for which the public key must be known.
        skipped: what was left out on demand.
    """

    events: int
    position: int
    blobs: int
    shredded: int
    token_arrays: int
    tiles: int
    checkpoints: int
    outside: int
    outside_size: int
    forks: tuple[str, ...]
    lost: int
    signed: bool
    skipped: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def intact(self) -> bool:
        """Whether everything fits."""
        return not self.problems
