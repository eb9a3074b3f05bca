"""Reads an export and checks all of it: every event by its id, leaf and proof, every blob that can be read, every count. Reads a file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger import checkpoint
from ledger.blobs import opened as opened_blob
from ledger.errors import BlobError, CheckpointError, ExportFault, UnknownEventKind
from ledger.interchange.carried import CarriedBlob, CarriedEvent, CarriedStream, CarriedSubject, event_fault, known, opened
from ledger.interchange.ledger_source import Kept
from ledger.interchange.native import FORMAT, HASH_BYTES, pack_of, tokens_of
from ledger.interchange.records import Record, reading, unit
from ledger.proof import Checkpoint, LeafFields, b64, inclusion_root
from ledger.subjects import ENCRYPTED, PUBLIC, PUBLIC_SUBJECT, Subject
from ledger.tree import Edge, edge_root, extend

Item = CarriedSubject | CarriedBlob | CarriedEvent | CarriedStream
BATCH = 4096


class _Filter(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    project: str | None
    kinds: list[str]
    streams: list[str]


class Head(BaseModel):
    """What the first record says."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    format: Literal["tallystick/export/1"]
    ledger_id: str
    origin: str
    since: int = Field(ge=0)
    until: int = Field(ge=1)
    checkpoint: str
    proofs: Literal["leaves", "inclusion"]
    with_keys: bool
    filter: _Filter

    @property
    def keep(self) -> Kept:
        """What it keeps."""
        return Kept(self.filter.project, tuple(self.filter.kinds), tuple(self.filter.streams))


@dataclass(frozen=True)
class Checked:
    """What an export proves.

    Attributes:
        head: its first record.
        size, root: of the checkpoint.
        complete: whether it holds every event of its range.
        whole_streams, cut_streams: names of streams that are here from version 1 to the version stated, and of the others.
        unread_blobs: blobs whose bytes cannot be checked, because their keys are elsewhere.
    """

    head: Head
    size: int
    root: str
    complete: bool
    events: int
    blobs: int
    unread_blobs: int
    records: int
    whole_streams: tuple[str, ...]
    cut_streams: tuple[str, ...]
    sha256: str


@dataclass
class _Reading:
    """What was seen so far."""

    head: Head
    tree: Checkpoint
    digest: Any
    edge: Edge = field(default_factory=Edge)
    leaves: list[bytes] = field(default_factory=list)
    position: int = 0
    events: int = 0
    blobs: set[bytes] = field(default_factory=set)
    unread: int = 0
    subjects: dict[str, Subject] = field(default_factory=lambda: {PUBLIC: PUBLIC_SUBJECT})
    versions: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    stated: dict[tuple[str, str, str], int] = field(default_factory=dict)


def check_export(path: Path, key: str) -> Checked:
    """What the export proves, once all of it fits.

    Args:
        path: of the file.
        key: text of the verifier key of the log, from elsewhere than the file.
    Raises:
        ExportFault: a record does not fit; the first one is named.
    """
    reader = NativeReader(path, key)
    for _ in reader.items():
        pass
    assert reader.result is not None
    return reader.result


class NativeReader:
    """One pass over an export.

    Attributes:
        head: its first record, read when the first item is asked for.
        result: after the last item.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key, self.unit = path, key, unit(path)
        self.head: Head | None = None
        self.result: Checked | None = None

    def items(self) -> Iterator[Item]:
        """Everything in the file in order, each checked before it is handed out.

        Raises:
            ExportFault: a record does not fit.
        """
        number, ended = 0, False
        seen: _Reading | None = None
        assemble = _Assembly()
        for number, record, line in reading(self.path):
            try:
                if ended:
                    raise ExportFault("it follows the end")
                if seen is None:
                    seen = _opened_head(record, self.key)
                    self.head = seen.head
                elif record.get("record") == "end":
                    yield from (_take(seen, item) for item in assemble.rest())
                    self.result = _finish(seen, record, number)
                    ended = True
                else:
                    yield from (_take(seen, item) for item in assemble.add(record))
            except (ExportFault, BlobError, CheckpointError, KeyError, TypeError, ValueError) as error:
                said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                raise ExportFault(f"{self.unit} {number}: {said}") from error
            seen.digest.update(line + b"\n")
        if not ended:
            raise ExportFault(f"{self.unit} {number + 1}: the file ends without its end record")


class _Assembly:
    """Puts the records of one blob, and those of one stream, together."""

    def __init__(self) -> None:
        self._chunks: list[Record] = []
        self._stream: CarriedStream | None = None

    def add(self, record: Record) -> Iterator[Item]:
        kind = record["record"]
        if self._chunks and kind != "blob":
            raise ExportFault(f"a {kind} in the middle of blob {self._chunks[0]['blob_id'].hex()}")
        if kind in ("pack", "tokens"):
            if self._stream is None:
                raise ExportFault(f"a {kind} without its stream before it")
            packs, staged = self._stream.packs, self._stream.staged
            added = ((*packs, pack_of(record)), staged) if kind == "pack" else (packs, (*staged, tokens_of(record)))
            self._stream = CarriedStream(*_names(self._stream), self._stream.version, *added)
            return
        yield from self._whole_stream()
        if kind == "blob":
            yield from self._chunk(record)
        elif kind == "event":
            yield _event(record)
        elif kind == "stream":
            self._stream = CarriedStream(record["ledger_id"], record["project"], record["stream"], record["version"])
        elif kind == "subject":
            gone = record.get("destroyed_at")
            yield CarriedSubject(record["subject_id"], record.get("salt"), record.get("secret"), gone)
        else:
            raise ExportFault(f"record {kind!r}; allowed: subject, blob, event, stream, pack, tokens, end")

    def _chunk(self, record: Record) -> Iterator[Item]:
        about = ("blob_id", "subject_id", "size", "codec", "chunks")
        if record["chunk"] != len(self._chunks) or (self._chunks and any(record[name] != self._chunks[0][name] for name in about)):
            raise ExportFault(
                f"chunk {record['chunk']} of blob {record['blob_id'].hex()}; due is chunk {len(self._chunks)} of the last one"
            )
        self._chunks.append(record)
        if len(self._chunks) == record["chunks"]:
            data = b"".join(chunk["data"] for chunk in self._chunks)
            self._chunks = []
            yield CarriedBlob(record["blob_id"], record["subject_id"], record["size"], record["codec"], data)

    def rest(self) -> Iterator[Item]:
        if self._chunks:
            raise ExportFault(f"blob {self._chunks[0]['blob_id'].hex()} ends after {len(self._chunks)} of its chunks")
        yield from self._whole_stream()

    def _whole_stream(self) -> Iterator[Item]:
        if self._stream is not None:
            yield self._stream
            self._stream = None


def _names(carried: CarriedStream) -> tuple[str, str, str]:
    return carried.ledger_id, carried.project, carried.stream


def _event(record: Record) -> CarriedEvent:
    optional = ("correlation_id", "causation_id")
    values = [record.get(name) if name in optional else record[name] for name in LeafFields._fields[:-1]]
    proof = record.get("inclusion")
    path = None if proof is None else tuple(proof[at : at + HASH_BYTES] for at in range(0, len(proof), HASH_BYTES))
    fields = LeafFields._make([*values, sha256(record["body"]).digest()])
    return CarriedEvent(record["position"], fields, record["body"], record["leaf"], path)


def _opened_head(record: Record, key: str) -> _Reading:
    if record.get("record") != "head":
        raise ExportFault(f"the first record is {record.get('record')!r}; allowed: the head of a {FORMAT} file")
    try:
        head = Head.model_validate_json(record["text"])
    except ValidationError as error:
        first = error.errors()[0]
        raise ExportFault(f"head: {'.'.join(map(str, first['loc']))}: {first['msg']}; seen {str(first['input'])[:60]!r}") from error
    tree = checkpoint.verify(head.checkpoint, key)
    if tree.origin != head.origin:
        raise ExportFault(f"head: origin {head.origin!r}; its checkpoint is of {tree.origin!r}")
    if not head.since < head.until <= tree.size:
        raise ExportFault(f"head: range ({head.since}, {head.until}]; allowed: within the {tree.size} events of its checkpoint")
    if head.proofs == "leaves" and (head.since, head.until, head.keep.everything) != (0, tree.size, True):
        raise ExportFault("head: leaves without proofs; allowed only for all events that its checkpoint covers")
    return _Reading(head, tree, sha256(), position=head.since)


def _take(seen: _Reading, item: Item) -> Item:
    if isinstance(item, CarriedEvent):
        _take_event(seen, item)
    elif isinstance(item, CarriedBlob):
        if item.blob_id in seen.blobs:
            raise ExportFault(f"blob {item.blob_id.hex()} is here twice")
        seen.blobs.add(item.blob_id)
        subject = seen.subjects.get(item.subject_id)
        if subject is None or (item.codec & ENCRYPTED and subject.key is None):
            seen.unread += 1
        else:
            opened_blob(subject, item.blob_id, item.size, item.codec, item.data)
    elif isinstance(item, CarriedSubject):
        if item.salt is not None:
            seen.subjects[item.subject_id] = Subject(item.subject_id, item.salt, item.key)
    else:
        seen.stated[_names(item)] = item.version
    return item


def _take_event(seen: _Reading, event: CarriedEvent) -> None:
    head = seen.head
    if not seen.position < event.position <= head.until:
        raise ExportFault(f"{event}: position {event.position} after {seen.position}; allowed: rising, up to {head.until}")
    if head.keep.everything and event.position != seen.position + 1:
        raise ExportFault(f"{event}: position {seen.position + 1} is missing, and the file says that it holds all")
    fault = event_fault(event)
    if fault is not None:
        raise ExportFault(f"{event}: {fault}")
    if not head.keep.fits(event.fields):
        raise ExportFault(f"{event}: it does not fit the filter of the file")
    if known(event):
        try:
            named = {bytes.fromhex(ref.blob_id) for ref in opened(event).blobs()}
        except UnknownEventKind as error:
            raise ExportFault(f"{event}: {error}") from error
        if named - seen.blobs:
            raise ExportFault(f"{event}: it names blob {min(named - seen.blobs).hex()}, which is not before it")
    if head.proofs == "inclusion":
        root = inclusion_root(event.leaf, event.position - 1, seen.tree.size, event.inclusion or ())
        if root != seen.tree.root:
            raise ExportFault(f"{event}: its proof leads to root {b64(root)}; the checkpoint has {b64(seen.tree.root)}")
    elif event.inclusion is not None:
        raise ExportFault(f"{event}: it has a proof, and the file says that leaves suffice")
    else:
        seen.leaves.append(event.leaf)
        if len(seen.leaves) >= BATCH:
            _grow(seen)
    seen.position, seen.events = event.position, seen.events + 1
    names = (event.fields.ledger_id, event.fields.project, event.fields.stream)
    seen.versions.setdefault(names, []).append(event.fields.version)


def _grow(seen: _Reading) -> None:
    seen.edge, _ = extend(seen.edge, seen.leaves)
    seen.leaves = []


def _finish(seen: _Reading, record: Record, number: int) -> Checked:
    head, digest = seen.head, seen.digest.hexdigest()
    counts = {"records": number, "events": seen.events, "blobs": len(seen.blobs), "streams": len(seen.stated), "sha256": digest}
    stated = orjson.loads(record["text"])
    if stated != counts:
        raise ExportFault(f"the end states {stated}; the file holds {counts}")
    if head.keep.everything and seen.position != head.until:
        raise ExportFault(f"the last event is at position {seen.position}; the file says that it holds all up to {head.until}")
    if head.proofs == "leaves":
        _grow(seen)
        if edge_root(seen.edge) != seen.tree.root:
            raise ExportFault(f"the events lead to root {b64(edge_root(seen.edge))}; the checkpoint has {b64(seen.tree.root)}")
    if seen.versions.keys() != seen.stated.keys():
        other = min(seen.versions.keys() ^ seen.stated.keys())
        raise ExportFault(f"stream {other[2]!r} has events without its stated version, or a stated version without events")
    whole = {names for names, versions in seen.versions.items() if versions == list(range(1, seen.stated[names] + 1))}
    return Checked(
        head, seen.tree.size, b64(seen.tree.root), head.keep.everything, seen.events, len(seen.blobs), seen.unread, number,
        tuple(sorted(names[2] for names in whole)), tuple(sorted(names[2] for names in seen.versions.keys() - whole)), digest,
    )  # fmt: skip
