"""What the database holds of the tokens of some streams, at one moment, and its rows in plain form. Reads the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import psycopg
from numpy.typing import NDArray

from ledger import subjects as subjects_of
from ledger import token_codec
from ledger.arrays import uuid_bytes
from ledger.errors import TokenError
from ledger.subject_names import kept_elsewhere
from ledger.subjects import Subject
from ledger.token_calls import IDS, LOGPROBS, CallCommitments, Commitment, TokenRow
from ledger.token_columns import TokenColumns
from ledger.token_pack import unpack
from ledger.upcast import STEPS

Connection = psycopg.Connection[Any]
Fault = tuple[str | None, str]
"""Event id, or None for what concerns a whole pack, and what does not fit."""

# One statement, so that it sees one moment: rows move from staging into a pack while others read.
_STORED = """
SELECT 0, stream_id, subject_id, NULL::text, NULL::text, calls, data, NULL::bytea, NULL::bytea
  FROM token_pack WHERE stream_id = ANY (%(streams)s)
UNION ALL
SELECT 1, stream_id, subject_id, event_id::text, parent::text, shared, prompt, sampled, logprobs
  FROM token_live WHERE stream_id = ANY (%(streams)s)
UNION ALL
SELECT 2, stream_id, NULL, event_id::text, NULL, schema_version, body, NULL, NULL
  FROM {events} WHERE stream_id = ANY (%(streams)s) AND kind = 'ModelCalled'"""
_PACK, _LIVE = 0, 1
PACK = b""
"""What binds a pack's ciphertext: nothing local, so that it can be carried to another ledger; its calls name themselves."""
_ARRAYS = ("prompt_ids", "sampled_ids", "logprobs")


@dataclass(frozen=True)
class LiveRow:
    """A row of `token_live` as it is stored."""

    event_id: str
    subject_id: str
    parent: str | None
    shared: int
    prompt: bytes | None
    sampled: bytes | None
    logprobs: bytes | None


@dataclass(slots=True)
class StoredStream:
    """All that the database holds of one stream's tokens.

    Attributes:
        packs: subject, number of calls, and stored bytes of each.
        live: what is staged.
        said: event id to what it commits to, of the model calls that commit to something.
        in_blobs: those of them whose schema kept each array in a blob, which the commitment names.
        faults: events that do not say what they commit to.
    """

    stream_id: int
    packs: list[tuple[str, int, bytes]] = field(default_factory=list)
    live: list[LiveRow] = field(default_factory=list)
    said: dict[str, CallCommitments] = field(default_factory=dict)
    in_blobs: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Packs and staged rows by subject, what could not be opened, and the events whose tokens nobody here can read (any more)."""

    packs: dict[str, list[TokenColumns]]
    staged: dict[str, list[TokenRow]]
    faults: list[Fault]
    shredded: set[str]

    def subjects(self) -> list[str]:
        """Whose rows there are, sorted."""
        return sorted({*self.packs, *self.staged})

    def rows(self, subject_id: str) -> list[TokenRow]:
        """All rows of a subject."""
        return [row for pack in self.packs.get(subject_id, ()) for row in pack.rows()] + self.staged.get(subject_id, [])

    def columns(self, subject_id: str) -> TokenColumns | list[TokenRow]:
        """All rows of a subject, as its only pack where they are that."""
        packs = self.packs.get(subject_id, [])
        return packs[0] if len(packs) == 1 and subject_id not in self.staged else self.rows(subject_id)

    def event_ids(self, subject_id: str) -> list[str]:
        """The calls of a subject."""
        packed = [event_id for pack in self.packs.get(subject_id, ()) for event_id in pack.event_ids[: pack.calls]]
        return packed + [row.event_id for row in self.staged.get(subject_id, ())]


def stored_streams(conn: Connection, stream_ids: Sequence[int], *, ordered: bool = False) -> tuple[list[StoredStream], dict[str, Subject]]:
    """What the database holds of these streams, in their order, and the subjects that it belongs to.

    Args:
        conn: any connection.
        stream_ids: of the streams.
        ordered: read events through the ordered view, for who may not read their table.
    """
    streams = {stream_id: StoredStream(stream_id) for stream_id in stream_ids}
    with conn.cursor(binary=True) as cursor:
        cursor.execute(_STORED.format(events="ordered_event" if ordered else "event").encode(), {"streams": list(streams)})
        for source, stream_id, subject_id, event_id, parent, number, *columns in cursor:
            stream = streams[stream_id]
            if source == _PACK:
                stream.packs.append((subject_id, number, columns[0]))
            elif source == _LIVE:
                stream.live.append(LiveRow(event_id, subject_id, parent, number, *columns))
            else:
                _note(stream, event_id, number, columns[0])
    found = list(streams.values())
    named = {pack[0] for stream in found for pack in stream.packs} | {row.subject_id for stream in found for row in stream.live}
    return found, subjects_of.load(conn, named)


def plain_rows(stored: StoredStream, subjects: Mapping[str, Subject]) -> PlainRows:
    """The stored rows of a stream, its packs unpacked.

    A pack of a destroyed subject, or of one whose key stayed with another ledger, does not say which calls it holds: those that commit to
    tokens and are nowhere else are taken to be in it.
    """
    found = PlainRows({}, {}, list(stored.faults), set())
    hidden = False
    for subject_id, calls, data in stored.packs:
        try:
            if subject_id not in subjects and kept_elsewhere(subject_id):
                hidden = True
                continue
            subject = _subject(subjects, subject_id)
            if subject.destroyed_at is not None:
                hidden = True
                continue
            pack = unpack(token_codec.decode(subject, "pack", PACK, data))
            if pack.calls != calls:
                raise TokenError(f"token pack holds {pack.calls} calls; the table says {calls}")
            found.packs.setdefault(subject_id, []).append(pack)
        except TokenError as error:
            found.faults.append((None, f"stream {stored.stream_id}: {error}"))
    for live in stored.live:
        try:
            if live.subject_id not in subjects and kept_elsewhere(live.subject_id):
                found.shredded.add(live.event_id)
                continue
            subject = _subject(subjects, live.subject_id)
            if subject.destroyed_at is not None:
                found.shredded.add(live.event_id)
            else:
                found.staged.setdefault(live.subject_id, []).append(plain_row(subject, live))
        except TokenError as error:
            found.faults.append((live.event_id, str(error)))
    if hidden:
        there = {event_id for subject_id in found.subjects() for event_id in found.event_ids(subject_id)}
        found.shredded.update(stored.said.keys() - there - stored.in_blobs)
    return found


def plain_row(subject: Subject, live: LiveRow) -> TokenRow:
    """A staged row with its arrays.

    Raises:
        TokenError: a column that is no whole number of entries.
    """
    ident = uuid_bytes(live.event_id)
    arrays: list[NDArray[Any] | None] = []
    for name, data, entry in (("prompt", live.prompt, IDS), ("sampled", live.sampled, IDS), ("logprobs", live.logprobs, LOGPROBS)):
        plain = None if data is None else _opened(subject, name, ident, data)
        if plain is not None and len(plain) % entry.itemsize:
            raise TokenError(f"call {live.event_id}: staged {name} has {len(plain)} bytes; allowed: a multiple of {entry.itemsize}")
        arrays.append(None if plain is None else np.frombuffer(plain, entry))
    return TokenRow(live.event_id, live.parent, live.shared, *arrays)


def _opened(subject: Subject, name: str, ident: bytes, data: bytes) -> bytes:
    try:
        return token_codec.decode(subject, name, ident, data)
    except TokenError:
        # What cannot be decrypted matches no commitment; the other columns of the row are still worth reading.
        return b""


def _subject(subjects: Mapping[str, Subject], subject_id: str) -> Subject:
    if subject_id not in subjects:
        raise TokenError(f"tokens belong to subject {subject_id!r}, which is not in this ledger")
    return subjects[subject_id]


def _note(stream: StoredStream, event_id: str, schema_version: int, body: bytes) -> None:
    try:
        value = orjson.loads(body)
        if schema_version == 1:
            value = STEPS["ModelCalled", 1].python(value)
        told = [None if (array := value.get(name)) is None else Commitment(array["commitment"], array["count"]) for name in _ARRAYS]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        stream.faults.append((event_id, f"call {event_id}: its event does not say what it commits to: {type(error).__name__} {error}"))
        return
    if told != [None, None, None]:
        stream.said[event_id] = CallCommitments(*told)
        if schema_version == 1:
            stream.in_blobs.add(event_id)
