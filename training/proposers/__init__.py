"""Proposers: each makes drafts of task bundles from documents, statistics, tools or a model. One file a proposer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

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


AskModel = Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], str]
"""(messages, request fields) to the text of a recorded model answer."""


class Proposer(Protocol):
    """The signature of every proposer."""

    def __call__(self, context: ProposalContext, n: int, *, rng: Random = ..., ask: AskModel | None = None) -> Sequence[BundleDraft]:
        """`n` drafts, or fewer with a reason in the log of the caller; the same context and generator state give the same drafts.

        Args:
            context: what to work from.
            n: how many.
            rng: the only source of randomness.
            ask: a recorded model client; those that need none take None.
        """
        ...


proposers: Family[Proposer] = Family("training.proposers")
