"""Places in a task where a policy may act or hold back, so that what it does can be counted by what the request asks for. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ledger.bundle import BundleDraft


@dataclass(frozen=True)
class Opportunity:
    """One place where a policy can act.

    Attributes:
        condition: short name of its kind, the same in all tasks, such as `never reminded`.
        wanted: whether the request wants the action there.
        key: of the thing that is acted on, unique within the task.
    """

    condition: str
    wanted: bool
    key: str


@dataclass(frozen=True)
class Act:
    """A tool call that the world carried out; `arguments` as parsed."""

    name: str
    arguments: Mapping[str, Any]


class Opportunities(Protocol):
    """What a world says of its tasks and of calls in them."""

    def opportunities(self, draft: BundleDraft) -> Sequence[Opportunity]:
        """The opportunities of a task; none for a task that it does not classify."""
        ...

    def acted(self, calls: Sequence[Act]) -> frozenset[str]:
        """Keys of the things that the calls acted on."""
        ...

    def looked_at(self, calls: Sequence[Act]) -> frozenset[str]:
        """Keys of the things that the calls looked at one by one."""
        ...
