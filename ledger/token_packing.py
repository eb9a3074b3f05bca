"""Packing: the staged tokens of an ended rollout become one pack in a transaction that checks them again. Writes the database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import psycopg

from ledger import token_codec
from ledger.arrays import Uuids, uuid_bytes
from ledger.errors import TokenError
from ledger.ledger import LedgerHandle
from ledger.subjects import Subject
from ledger.token_pack import pack, unpack
from ledger.token_rows import PACK, LiveRow, StoredStream, plain_rows, stored_streams
from ledger.token_sequences import reconstruct

ATTEMPTS = 4
NOT_STAGED = "TY005"
"""SQLSTATE of `pack_tokens` where the rows to pack are not those that are staged."""

# A stream without a start is that of a call which belongs to no rollout: it is complete when it is recorded.
_ENDED = """
SELECT s.stream_id FROM (SELECT DISTINCT stream_id FROM token_live) AS s
WHERE EXISTS (SELECT FROM event AS e WHERE e.stream_id = s.stream_id AND e.kind = 'RolloutEnded')
   OR NOT EXISTS (SELECT FROM event AS e WHERE e.stream_id = s.stream_id AND e.kind = 'RolloutStarted')
ORDER BY 1"""


@dataclass(frozen=True)
class Packed:
    """What packing did.

    Attributes:
        packs, calls: written, and how many calls are in them.
        staged_bytes, packed_bytes: of these calls before and after.
        taken: sets of calls that another packer took meanwhile.
        faults: why calls were left staged.
    """

    packs: int = 0
    calls: int = 0
    staged_bytes: int = 0
    packed_bytes: int = 0
    taken: int = 0
    faults: tuple[str, ...] = ()

    def __add__(self, other: "Packed") -> "Packed":
        return Packed(
            self.packs + other.packs, self.calls + other.calls, self.staged_bytes + other.staged_bytes,
            self.packed_bytes + other.packed_bytes, self.taken + other.taken, self.faults + other.faults,
        )  # fmt: skip


def pack_ended(ledger: LedgerHandle, *, progress: Callable[[int, int], None] = lambda done, total: None) -> Packed:
    """What came of packing all that ended rollouts left staged, in any project: calls that came late, and those of a killed collector.

    Args:
        ledger: to pack.
        progress: called with streams done and their number.
    """
    with ledger.connection() as conn:
        streams = [int(row[0]) for row in conn.execute(_ENDED)]
    total = Packed()
    for done, stream_id in enumerate(streams, 1):
        total += pack_stream(ledger, stream_id)
        progress(done, len(streams))
    return total


def pack_rollout(ledger: LedgerHandle, rollout_id: str) -> Packed:
    """What came of packing what a rollout has staged."""
    with ledger.connection() as conn:
        row = conn.execute(
            "SELECT stream_id FROM stream_head WHERE ledger_id = %s AND node_id = node_of(%s, %s)",
            (ledger.ledger_id, ledger.project, f"rollout-{rollout_id}"),
        ).fetchone()
    return Packed() if row is None else pack_stream(ledger, int(row[0]))


def pack_stream(ledger: LedgerHandle, stream_id: int) -> Packed:
    """What came of packing what a stream has staged, one pack for each subject, linked to calls that were packed before as well.

    No transaction is open while a pack is made. Rows that do not fit their events stay where they are, and those of destroyed subjects.
    """
    total = Packed()
    for _ in range(ATTEMPTS):
        with ledger.connection() as conn:
            (stored,), subjects = stored_streams(conn, [stream_id])
        try:
            made = list(_packs(stored, subjects))
        except TokenError as error:
            return total + Packed(faults=(str(error),))
        sent = [_send(ledger, stream_id, pack) for pack in made]
        total = sum(sent, total)
        if not any(one.taken for one in sent):
            return total
    return total + Packed(faults=(f"stream {stream_id}: what is staged changed {ATTEMPTS} times while it was packed",))


@dataclass(frozen=True)
class _Pack:
    subject_id: str
    live: Sequence[LiveRow]
    data: bytes


def _packs(stored: StoredStream, subjects: Mapping[str, Subject]) -> Iterator[_Pack]:
    """A pack for the staged rows of each subject, after what it holds has been put together again and checked against the events."""
    plain = plain_rows(stored, subjects)
    for _, fault in plain.faults:
        raise TokenError(fault)
    for subject_id in sorted(plain.staged):
        live = [row for row in stored.live if row.subject_id == subject_id]
        rows, salt = plain.rows(subject_id), subjects[subject_id].salt
        staged = {row.event_id for row in live}
        said = {row.event_id: stored.said[row.event_id] for row in rows if row.event_id in stored.said}
        calls = reconstruct(rows, said, salt).calls
        earlier = [row for row in rows if row.event_id not in staged]
        data = pack([calls[row.event_id] for row in live], earlier=[calls[row.event_id] for row in earlier])
        reconstruct([*earlier, *unpack(data).rows()] if earlier else unpack(data), said, salt)
        yield _Pack(subject_id, live, token_codec.encode(subjects[subject_id], "pack", PACK, data))


def _send(ledger: LedgerHandle, stream_id: int, pack: _Pack) -> Packed:
    by_id = sorted(pack.live, key=lambda row: row.event_id)
    digest = sha256(b"".join(map(_row_digest, by_id))).digest()
    try:
        with ledger.connection() as conn:
            conn.execute(
                "SELECT pack_tokens(%s, %s, %s, %s, %b)",
                (stream_id, pack.subject_id, Uuids(row.event_id for row in by_id), digest, pack.data),
            )
    except psycopg.Error as error:
        if error.sqlstate != NOT_STAGED:
            raise
        return Packed(taken=1)
    staged = sum(len(data) for row in by_id for data in (row.prompt, row.sampled, row.logprobs) if data is not None)
    return Packed(1, len(by_id), staged, len(pack.data))


def _row_digest(row: LiveRow) -> bytes:
    """As `token_row_digest` in the database."""
    parts = [uuid_bytes(row.event_id), b"" if row.parent is None else uuid_bytes(row.parent), row.shared.to_bytes(4, "big", signed=True)]
    for data in (row.prompt, row.sampled, row.logprobs):
        parts += [(-1 if data is None else len(data)).to_bytes(4, "big", signed=True), data or b""]
    return sha256(b"".join(parts)).digest()
