"""Proposers: each makes drafts of task bundles from documents, statistics, tools or a model. One file a proposer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, overload

from ledger.bundle import BundleDraft
from ledger.methods import Family
from training.worlds import World


@dataclass(frozen=True)
class Document:
    """A public text or code file that seeds topics.

    Attributes:
        name: where it is from.
        text: its content.
        licence: its licence, where known.
    """

    name: str
    text: str
    licence: str | None = None


@dataclass(frozen=True)
class ProposalContext:
    """What a proposer works from.

    Attributes:
        world: where the tasks are to be done.
        documents: texts that seed topics.
        drafts: tasks that there are already, for those that vary or combine.
        counterexamples: JSON objects of solutions that a verifier judged wrongly, as an audit found them.
        stats: task name to its statistics, for those that follow a curriculum.
    """

    world: World[Any]
    documents: tuple[Document, ...] = ()
    drafts: tuple[BundleDraft, ...] = ()
    counterexamples: tuple[Mapping[str, Any], ...] = ()
    stats: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Proposed(Sequence[BundleDraft]):
    """Drafts in order, and why others were dropped.

    Attributes:
        drafts: the drafts.
        rejected: reason to the number of attempts that ended so; none of them is half-used.
        artifacts: name to a JSON value that the proposer worked with, such as its tool graph.
    """

    drafts: tuple[BundleDraft, ...]
    rejected: Mapping[str, int] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.drafts)

    @overload
    def __getitem__(self, index: int) -> BundleDraft: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[BundleDraft, ...]: ...

    def __getitem__(self, index: int | slice) -> BundleDraft | tuple[BundleDraft, ...]:
        return self.drafts[index]


AskModel = Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], str]
"""(messages, request fields) to the text of a recorded model answer."""


class Proposer(Protocol):
    """The signature of every proposer."""

    def __call__(self, context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None) -> Proposed:
        """`n` drafts, or fewer with the reasons; the same context and generator state give the same drafts.

        Args:
            context: what to work from.
            n: how many.
            rng: the only source of randomness; a fresh one from seed 0 when None.
            ask: a recorded model client; those that need none take None.
        """
        ...


proposers: Family[Proposer] = Family("training.proposers")
