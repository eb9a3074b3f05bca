"""What travels between ledgers: events, blobs, subjects and tokens as they are stored, and the checks of an event. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ledger import canonical, ids
from ledger.canonical import canonical_bytes, parse
from ledger.errors import CanonicalError, UnknownEventKind
from ledger.events import EventBody
from ledger.prepared import stamp
from ledger.proof import LeafFields, leaf_hash
from ledger.token_rows import LiveRow
from ledger.upcast import CLASSES, decode

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CarriedEvent:
    """An event with its place in the log of its source.

    Attributes:
        position: in the source, from 1.
        fields: what its leaf commits to.
        body: canonical bytes.
        leaf: its leaf as stored.
        inclusion: proof against the checkpoint that travels with it, from the leaf upwards; None where the leaves alone give the root.
    """

    position: int
    fields: LeafFields
    body: bytes
    leaf: bytes
    inclusion: tuple[bytes, ...] | None = None

    def __str__(self) -> str:
        return f"event {self.fields.event_id} ({self.fields.kind} in {self.fields.stream}) at position {self.position}"


@dataclass(frozen=True)
class CarriedBlob:
    """A blob as it is stored: its bytes are ciphertext where its subject has a key."""

    blob_id: bytes
    subject_id: str
    size: int
    codec: int
    data: bytes


@dataclass(frozen=True)
class CarriedSubject:
    """A subject's salt and key, which travel only when asked for, or that both were destroyed."""

    subject_id: str
    salt: bytes | None
    key: bytes | None
    destroyed_at: str | None


@dataclass(frozen=True)
class CarriedPack:
    """Packed tokens of some calls of one stream."""

    subject_id: str
    calls: int
    data: bytes


@dataclass(frozen=True)
class CarriedStream:
    """A stream with the version it was at where the range ends, and all that its source holds of its tokens."""

    ledger_id: str
    project: str
    stream: str
    version: int
    packs: tuple[CarriedPack, ...] = ()
    staged: tuple[LiveRow, ...] = ()


@dataclass(frozen=True)
class Claim:
    """What a source says of the run of its log that it offers.

    Attributes:
        ledger_id: whose log.
        since, until: positions (since, until].
        note: the checkpoint that covers it, signed.
        filtered: whether events of that range were left out.
        with_keys: whether subjects' salts and keys travel.
    """

    ledger_id: str
    since: int
    until: int
    note: str
    filtered: bool
    with_keys: bool


@dataclass(frozen=True)
class Fork:
    """That a log went on under a new name after the events above `common_size` were lost."""

    origin: str
    previous_origin: str
    common_size: int


class Source(Protocol):
    """A log that can be pushed: a ledger, or an export of one."""

    @property
    def claim(self) -> Claim:
        """What it offers."""

    def leaves(self) -> Iterator[bytes]:
        """The leaves of the positions (since, until], in order."""

    def batches(self, after: int) -> Iterator[list[CarriedEvent]]:
        """The events above `after`, in order, up to a thousand at a time."""

    def blobs(self, wanted: set[bytes]) -> Iterator[CarriedBlob]:
        """Those of these blobs that the batch handed out last came with."""

    def subjects(self) -> list[CarriedSubject]:
        """The subjects whose keys travel or are destroyed."""

    def streams(self, after: int, also: list[tuple[str, str, str]]) -> Iterator[CarriedStream]:
        """Tokens of the streams with model calls above position `after`, and of those named by ledger, project and stream."""

    def forks(self) -> list[Fork]:
        """Every fork that the log has seen."""

    def kinds(self, after: int) -> dict[str, int]:
        """Number of events by kind above `after`."""


def event_fault(event: CarriedEvent) -> str | None:
    """What does not fit when an event's id, leaf, time and canonical form are derived again; None when all do."""
    fields = event.fields
    if ids.event_id(fields.ledger_id, fields.project, fields.stream, fields.key) != fields.event_id:
        return "its event id does not follow from its ledger, project, stream and key"
    if fields.canonicaliser != canonical.NAME:
        return f"its canonical form is {fields.canonicaliser!r}; allowed: {canonical.NAME!r}"
    if leaf_hash(fields) != event.leaf:
        return "its leaf does not match its fields and body"
    try:
        if moment(fields.occurred_at) is None or canonical_bytes(parse(event.body)) != event.body:
            return "its time or its body is not in canonical form"
    except CanonicalError as error:
        return f"its body has no canonical form: {error}"
    return None


def opened(event: CarriedEvent) -> EventBody:
    """The body of an event that this release knows.

    Raises:
        UnknownEventKind: it does not, or the body belongs to another stream or key.
    """
    fields = event.fields
    body = decode(fields.kind, fields.schema_version, event.body)
    if (body.stream(), body.key()) != (fields.stream, fields.key):
        raise UnknownEventKind(f"its body belongs to stream {body.stream()!r} under key {body.key()!r}")
    return body


def known(event: CarriedEvent) -> bool:
    """Whether this release knows the event's kind."""
    return event.fields.kind in CLASSES


def moment(text: str) -> datetime | None:
    """The time in a leaf's `occurred_at`; None when it is written in another way."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None and stamp(found) == text else None
