"""Verification of checkpoints: what each says, who signed it, and whether the tree of the events here is the one it covers. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger import proof, seal_files
from ledger.errors import CheckpointError
from ledger.events import LogForked
from ledger.proof import Checkpoint, VerifierKey, b64
from ledger.seal import fork_number
from ledger.verify_report import Problem

DATABASE = "the database"


@dataclass(frozen=True)
class Head:
    """A checkpoint and where it was found; `signed` when the trusted key was seen to have signed it."""

    where: str
    head: Checkpoint
    signed: bool

    @property
    def inside(self) -> bool:
        """Whether the database, and nobody else, holds it."""
        return self.where == DATABASE

    def __str__(self) -> str:
        return f"{self.where} has a checkpoint of {self.head.size} events with root {b64(self.head.root)}"


@dataclass(frozen=True)
class Judged:
    """What checkpoints say about the events here.

    Attributes:
        agreed: events that the largest agreeing checkpoint from outside covers.
        forks: names of the log after a restore, as signed checkpoints show.
        lost: checkpoints from outside that these gave up.
    """

    problems: tuple[Problem, ...]
    agreed: int
    forks: tuple[str, ...]
    lost: int


def read_heads(notes: Iterable[tuple[str, str]], key: VerifierKey | None) -> tuple[list[Head], list[Problem]]:
    """The checkpoints in notes, each with the place where it was found, and what is wrong with a note.

    Args:
        key: whose signature they need, under the name of the note's own log; None when it is not known.
    """
    heads, problems = [], []
    for where, note in notes:
        try:
            head = proof.parse_checkpoint(proof.parse_note(note)[0]) if key is None else seal_files.opened(note, key, where)
            if key is not None and head.origin.partition("/fork-")[0] != key.name.partition("/fork-")[0]:
                raise CheckpointError(f"{where}: checkpoint of the log {head.origin!r}; the trusted key is of {key.name!r}")
            heads.append(Head(where, head, key is not None))
        except (proof.ProofError, CheckpointError) as error:
            problems.append(Problem(None, f"checkpoint {note.partition(chr(10) + chr(10))[0][:120]!r}", str(error)))
    return heads, problems


def judge(heads: Sequence[Head], roots: dict[int, bytes], size: int, forks: dict[int, LogForked]) -> Judged:
    """What fits between checkpoints and the events here, and the smallest interval in which it does not.

    Args:
        heads: from the database and from outside.
        roots: number of events to the root over so many, for each size of a checkpoint up to `size`.
        size: number of events here.
        forks: the events `LogForked` by position.
    """
    agreeing = [head.head for head in heads if head.signed and roots.get(head.head.size) == head.head.root]
    valid = {
        position: fork for position, fork in forks.items() if any(h.origin == fork.origin and h.size >= position for h in agreeing)
    }  # fmt: skip
    given_up = [head for head in heads if _given_up(head, roots, valid.values())]
    left = sorted((head for head in heads if head not in given_up), key=lambda head: (head.head.size, head.inside))
    problems = [*_split(left), *_missing(left, roots, size), *_interval(left, roots), *_rows(left, roots)]
    problems += [
        Problem(position, f"fork {fork.fork}", f"it names root {fork.common_root} for {fork.common_size} events, which is not theirs")
        for position, fork in valid.items()
        if fork.common_size and roots.get(fork.common_size, b"").hex() != fork.common_root
    ]
    agreed = max((h.head.size for h in left if not h.inside and roots.get(h.head.size) == h.head.root), default=0)
    return Judged(tuple(problems), agreed, tuple(fork.origin for fork in valid.values()), len(given_up))


def _given_up(head: Head, roots: dict[int, bytes], forks: Iterable[LogForked]) -> bool:
    """Whether a signed fork says that the events of this checkpoint from outside were lost."""
    if head.inside or roots.get(head.head.size) == head.head.root:
        return False
    return any(fork_number(head.head.origin) < fork.fork and head.head.size > fork.common_size for fork in forks)


def _split(heads: Sequence[Head]) -> Iterable[Problem]:
    first: dict[int, Head] = {}
    for head in heads:
        other = first.setdefault(head.head.size, head)
        if other.head.root != head.head.root:
            yield Problem(head.head.size, "split view", f"{other}, and {head.where} one with root {b64(head.head.root)}")


def _missing(heads: Sequence[Head], roots: dict[int, bytes], size: int) -> Iterable[Problem]:
    beyond = [head for head in heads if head.head.size > size]
    if beyond:
        agreed = max((head.head.size for head in heads if roots.get(head.head.size) == head.head.root), default=0)
        yield Problem(
            agreed + 1, f"events {agreed + 1} to {beyond[-1].head.size}",
            f"not all of them are here: the order ends at position {size}, and {beyond[-1]}",
        )  # fmt: skip


def _interval(heads: Sequence[Head], roots: dict[int, bytes]) -> Iterable[Problem]:
    agreed = 0
    for head in heads:
        root = roots.get(head.head.size)
        if root == head.head.root:
            agreed = head.head.size
        elif root is not None:
            yield Problem(
                agreed + 1, f"events {agreed + 1} to {head.head.size}",
                f"one of them, or their order, was changed: {head}, the events here lead to {b64(root)};"
                + (f" the checkpoint of {agreed} events agrees" if agreed else " no smaller checkpoint agrees"),
            )  # fmt: skip
            return


def _rows(heads: Sequence[Head], roots: dict[int, bytes]) -> Iterable[Problem]:
    """Checkpoints that were published, cover what is here, and are not in the database."""
    inside = {head.head for head in heads if head.inside}
    for head in heads:
        if not head.inside and head.head not in inside and roots.get(head.head.size) == head.head.root:
            yield Problem(head.head.size, f"checkpoint of {head.head.size} events", f"{head.where} has it, and the database does not")
