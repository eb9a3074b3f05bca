"""Token arrays of whole streams from packs and staged rows, each checked against what its event committed to. Reads the database."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from ledger import blobs
from ledger.errors import BlobError, TokenError
from ledger.subjects import Subject
from ledger.token_calls import IDS, LOGPROBS, CallCommitments, Commitment, TokenCall, TokenRow
from ledger.token_columns import TokenColumns
from ledger.token_rows import Fault, PlainRows, StoredStream, plain_rows, stored_streams
from ledger.token_salvage import salvage
from ledger.token_sequences import reconstruct

Connection = psycopg.Connection[Any]
STREAMS_AT_ONCE = 64
"""How many streams a scan over everything has in memory at once."""

_WITH_TOKENS = (
    "SELECT stream_id FROM token_live UNION SELECT stream_id FROM token_pack"
    " UNION SELECT stream_id FROM event WHERE kind = 'ModelCalled' ORDER BY 1"
)
_POSITIONS = (
    "SELECT k.event_id::text, o.position FROM event_key AS k LEFT JOIN event_order AS o USING (id) WHERE k.event_id = ANY (%s::uuid[])"
)


@dataclass(frozen=True)
class Tokens:
    """What came of reading the tokens of some streams.

    Attributes:
        calls: event id to arrays; of a call with a fault those that match.
        faults: what does not fit.
        shredded: events whose tokens cannot be read any more, because their subject's salt was destroyed.
    """

    calls: dict[str, TokenCall] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    shredded: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class TokenFault:
    """Stored tokens that do not fit: the position and id of their event, None where there is none, their stream, and why."""

    position: int | None
    event_id: str | None
    stream_id: int
    fault: str


def read_tokens(conn: Connection, stream_ids: Sequence[int]) -> dict[str, TokenCall]:
    """Event id to the whole arrays of every model call of these streams that has any; those of destroyed subjects are left out.

    Args:
        conn: any connection.
        stream_ids: one for a trace, hundreds for a training batch: all are read by one statement.
    Raises:
        TokenError: stored tokens are missing, damaged, or not what their event committed to; the message says which.
    """
    calls: dict[str, TokenCall] = {}
    streams, subjects = stored_streams(conn, stream_ids)
    for stored in streams:
        plain = plain_rows(stored, subjects)
        for _, fault in plain.faults:
            raise TokenError(fault)
        for rows, said, salt in _parts(stored, plain, subjects):
            calls |= reconstruct(rows, said, salt).calls
        calls |= _from_blobs(conn, stored)
    return calls


def examine_tokens(conn: Connection, stream_ids: Sequence[int], *, ordered: bool = False) -> Tokens:
    """The arrays of every model call of these streams as far as they match, and all that does not fit, which is no error here.

    Args:
        conn, stream_ids, ordered: as for `ledger.token_rows.stored_streams`.
    """
    found = Tokens()
    streams, subjects = stored_streams(conn, stream_ids, ordered=ordered)
    for stored in streams:
        plain = plain_rows(stored, subjects)
        found.faults.extend(plain.faults)
        found.shredded.update(plain.shredded)
        for rows, said, salt in _parts(stored, plain, subjects):
            try:
                found.calls.update(reconstruct(rows, said, salt).calls)
            except TokenError:
                calls, faults = salvage(rows.rows() if isinstance(rows, TokenColumns) else rows, said, salt)
                found.calls.update(calls)
                found.faults.extend(faults)
        for event_id in sorted(stored.in_blobs):
            try:
                found.calls.update(_from_blobs(conn, stored, only=event_id))
            except TokenError as error:
                found.faults.append((event_id, str(error)))
    return found


def check_streams(conn: Connection) -> Iterator[TokenFault]:
    """All that does not fit in any stream that has model calls or stored tokens, as of the moments at which they are read."""
    streams = [int(row[0]) for row in conn.execute(_WITH_TOKENS)]
    for start in range(0, len(streams), STREAMS_AT_ONCE):
        batch = streams[start : start + STREAMS_AT_ONCE]
        if not examine_tokens(conn, batch).faults:
            continue
        for stream_id in batch:
            faults = examine_tokens(conn, [stream_id]).faults
            named = [event_id for event_id, _ in faults if event_id is not None]
            positions = dict(conn.execute(_POSITIONS, (named,)).fetchall())
            for event_id, fault in faults:
                yield TokenFault(positions.get(event_id), event_id, stream_id, fault)


def streams_of(conn: Connection, event_ids: Sequence[str]) -> list[int]:
    """The streams that these events are in."""
    rows = conn.execute(
        "SELECT DISTINCT e.stream_id FROM event_key AS k JOIN event AS e USING (id) WHERE k.event_id = ANY (%s::uuid[]) ORDER BY 1",
        (list(event_ids),),
    )
    return [int(row[0]) for row in rows]


def _parts(
    stored: StoredStream, plain: PlainRows, subjects: Mapping[str, Subject]
) -> Iterator[tuple[TokenColumns | list[TokenRow], dict[str, CallCommitments], bytes]]:
    """Rows, commitments and salt of each subject of a stream; a commitment that no row goes with is in the last part."""
    apart = plain.shredded | stored.in_blobs
    wanted = {event_id: said for event_id, said in stored.said.items() if event_id not in apart} if apart else dict(stored.said)
    names = plain.subjects()
    for subject_id in names[:-1]:
        said = {event_id: wanted.pop(event_id) for event_id in plain.event_ids(subject_id) if event_id in wanted}
        yield plain.columns(subject_id), said, subjects[subject_id].salt
    if names:
        yield plain.columns(names[-1]), wanted, subjects[names[-1]].salt
    elif wanted:
        yield [], wanted, b""


def _from_blobs(conn: Connection, stored: StoredStream, *, only: str | None = None) -> dict[str, TokenCall]:
    """The calls whose arrays are blobs, which are read only if their bytes are what names them."""
    wanted = {event_id: stored.said[event_id] for event_id in stored.in_blobs if only in (None, event_id)}
    if not wanted:
        return {}
    told = [array for said in wanted.values() for array in (said.prompt, said.sampled, said.logprobs) if array is not None]
    try:
        data = blobs.read_many(conn, [array.sha256 for array in told])
    except BlobError as error:
        raise TokenError(f"tokens kept as blobs: {error}") from error

    def array(event_id: str, said: Commitment | None, entry: np.dtype[Any]) -> NDArray[Any] | None:
        if said is None:
            return None
        if len(data[said.sha256]) != said.count * entry.itemsize:
            raise TokenError(f"call {event_id}: blob {said.sha256} has {len(data[said.sha256])} bytes for {said.count} entries")
        return np.frombuffer(data[said.sha256], entry)

    return {
        event_id: TokenCall(
            event_id, array(event_id, s.prompt, IDS), array(event_id, s.sampled, IDS), array(event_id, s.logprobs, LOGPROBS)
        )
        for event_id, s in wanted.items()
    }
