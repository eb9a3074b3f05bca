"""Tallystick's own export: events with proofs, the blobs and tokens they name, under one checkpoint. Reads the ledger, writes a file.

Records in order: one `head`; subjects; then for each event the blobs that no event before it named, and the event; streams with their
tokens; one `end` with the SHA-256 over the lines of all records before it, which is the same for JSON lines and Parquet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import orjson

from ledger.interchange.carried import (
    CarriedBlob,
    CarriedEvent,
    CarriedPack,
    CarriedStream,
    CarriedSubject,
    Progress,
)
from ledger.interchange.ledger_source import LedgerSource
from ledger.interchange.records import Record, Writer, line_of, writing
from ledger.token_rows import LiveRow

FORMAT = "tallystick/export/1"
CHUNK_BYTES = 4 * 1024 * 1024
HASH_BYTES = 32
_FIELDS = (
    "ledger_id", "event_id", "project", "stream", "version", "kind", "schema_version", "canonicaliser", "occurred_at", "actor_id",
    "correlation_id", "causation_id", "key",
)  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """What was written: the range, counts of records, and the SHA-256 that the end states."""

    since: int
    until: int
    size: int
    events: int
    blobs: int
    streams: int
    records: int
    sha256: str


class _Counting:
    """Counts and digests records on their way to the file."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._digest = writer, sha256()
        self.count = 0

    def write(self, record: Record) -> None:
        self._writer.write(record)
        self._digest.update(line_of(record) + b"\n")
        self.count += 1

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def export(source: LedgerSource, path: Path, *, progress: Progress = lambda done, total: None) -> Exported:
    """What was written to `path`; the file appears when it is whole.

    Args:
        source: with the range and what to keep of it.
        path: ends in .jsonl, .jsonl.zst or .parquet.
        progress: called with positions done and to do.
    Raises:
        PushRefused: the events do not lead to the checkpoint.
        ExportFault: the name of the file says no format.
    """
    claim, read = source.claim, source.tree()
    leaves_suffice = claim.since == 0 and claim.until == source.head.size and not claim.filtered
    with writing(path) as writer:
        out = _Counting(writer)
        out.write(_head(source, leaves_suffice))
        for subject in source.subjects():
            out.write(_subject_record(subject))
        events, written = 0, set[bytes]()
        streams: set[tuple[str, str, str]] = set()
        for batch in source.batches(claim.since) if leaves_suffice else source.proved(claim.since, read):
            used = source.used([event.position for event in batch])
            wanted = {blob_id for ids in used.values() for blob_id in ids} - written
            blobs = {blob.blob_id: blob for blob in source.blobs(wanted)}
            for event in batch:
                for blob_id in used.get(event.position, ()):
                    if blob_id in blobs:
                        out_blob = blobs.pop(blob_id)
                        written.add(blob_id)
                        for record in blob_records(out_blob):
                            out.write(record)
                out.write(event_record(event))
            events += len(batch)
            streams |= {(event.fields.ledger_id, event.fields.project, event.fields.stream) for event in batch}
            progress(batch[-1].position - claim.since, claim.until - claim.since)
        for carried in _streams(source, streams):
            for record in stream_records(carried):
                out.write(record)
        digest, records = out.sha256, out.count + 1
        counts = {"records": records, "events": events, "blobs": len(written), "streams": len(streams), "sha256": digest}
        writer.write({"record": "end", "text": orjson.dumps(counts, option=orjson.OPT_SORT_KEYS).decode()})
    return Exported(claim.since, claim.until, source.head.size, events, len(written), len(streams), records, digest)


def _streams(source: LedgerSource, names: set[tuple[str, str, str]]) -> Iterator[CarriedStream]:
    stream_ids = sorted(source.stream_ids(names))
    for start in range(0, len(stream_ids), 200):
        yield from source.stream_tokens(stream_ids[start : start + 200])


def _head(source: LedgerSource, leaves_suffice: bool) -> Record:
    claim, keep = source.claim, source.keep
    said = {
        "format": FORMAT, "ledger_id": claim.ledger_id, "origin": source.head.origin, "since": claim.since, "until": claim.until,
        "checkpoint": claim.note, "proofs": "leaves" if leaves_suffice else "inclusion", "with_keys": claim.with_keys,
        "filter": {"project": keep.project, "kinds": list(keep.kinds), "streams": list(keep.streams)},
    }  # fmt: skip
    return {"record": "head", "text": orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode()}


def _some(record: Record) -> Record:
    return {name: value for name, value in record.items() if value is not None}


def event_record(event: CarriedEvent) -> Record:
    """The record of an event."""
    fields = event.fields._asdict()
    proof = None if event.inclusion is None else b"".join(event.inclusion)
    known = {name: fields[name] for name in _FIELDS}
    return _some({"record": "event", "position": event.position, **known, "body": event.body, "leaf": event.leaf, "inclusion": proof})


def blob_records(blob: CarriedBlob) -> Iterable[Record]:
    """The records of a blob: one for each 4 MiB, at least one."""
    chunks = max(1, -(-len(blob.data) // CHUNK_BYTES))
    for chunk in range(chunks):
        yield {
            "record": "blob", "blob_id": blob.blob_id, "subject_id": blob.subject_id, "size": blob.size, "codec": blob.codec,
            "chunk": chunk, "chunks": chunks, "data": blob.data[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES],
        }  # fmt: skip


def _subject_record(subject: CarriedSubject) -> Record:
    return _some({
        "record": "subject", "subject_id": subject.subject_id, "salt": subject.salt, "secret": subject.key,
        "destroyed_at": subject.destroyed_at,
    })  # fmt: skip


def stream_records(carried: CarriedStream) -> Iterable[Record]:
    """The records of a stream: itself, its packs, its staged tokens."""
    yield {
        "record": "stream", "ledger_id": carried.ledger_id, "project": carried.project, "stream": carried.stream,
        "version": carried.version,
    }  # fmt: skip
    for pack in carried.packs:
        yield {"record": "pack", "subject_id": pack.subject_id, "calls": pack.calls, "data": pack.data}
    for call in carried.staged:
        yield _some({"record": "tokens", **call.__dict__})


def pack_of(record: Record) -> CarriedPack:
    """The pack in a record."""
    return CarriedPack(record["subject_id"], record["calls"], record["data"])


def tokens_of(record: Record) -> LiveRow:
    """The staged tokens in a record."""
    arrays = (record.get("prompt"), record.get("sampled"), record.get("logprobs"))
    return LiveRow(record["event_id"], record["subject_id"], record.get("parent"), record["shared"], *arrays)
