"""Packing: the staged tokens of ended rollouts become packs in transactions that check them again. Writes the database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate

import psycopg

from ledger import token_codec
from ledger.arrays import Bigints, Byteas, Ints, Texts, Uuids, uuid_bytes
from ledger.errors import TokenError
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.subjects import Subject
from ledger.token_pack import pack, unpack
from ledger.token_rows import PACK, LiveRow, StoredStream, plain_rows, stored_streams
from ledger.token_sequences import reconstruct

ATTEMPTS = 4
STREAMS_AT_ONCE = 64
"""How many streams are read and packed together."""
SENT_BYTES = 2**19
"""Packs of so many bytes go to the database in one statement, a larger one alone."""
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


# The heads are locked in the order in which an append locks them, so that neither waits for the other in a circle.
_PACK_TOKENS = """
SELECT pack_tokens(p.stream_id, p.subject_id, p.event_ids, p.digest, p.data) FROM (
  SELECT u.stream_id, u.subject_id, (%s::uuid[])[u.first : u.last] AS event_ids, u.digest, u.data
    FROM unnest(%s::bigint[], %s::text[], %s::int[], %s::int[], %s::bytea[], %s::bytea[])
      AS u (stream_id, subject_id, first, last, digest, data) JOIN stream_head AS h USING (stream_id)
    ORDER BY h.node_id, u.subject_id OFFSET 0) AS p"""
_STREAMS = (
    "SELECT h.stream_id, u.place FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (node_id, place) JOIN stream_head AS h USING (node_id)"
    " WHERE h.ledger_id = %s"
)


def pack_ended(ledger: LedgerHandle, *, progress: Callable[[int, int], None] = lambda done, total: None) -> Packed:
    """What came of packing all that ended rollouts left staged, in any project: calls that came late, and those of a killed collector.

    Args:
        ledger: to pack.
        progress: called with streams done and their number.
    """
    with ledger.connection() as conn:
        streams = [int(row[0]) for row in conn.execute(_ENDED)]
    total, done = Packed(), 0
    for packed in _each_packed(ledger, streams):
        for one in packed.values():
            total, done = total + one, done + 1
            progress(done, len(streams))
    return total


def pack_rollout(ledger: LedgerHandle, rollout_id: str) -> Packed:
    """What came of packing what a rollout has staged."""
    return pack_rollouts(ledger, [rollout_id])[rollout_id]


def pack_rollouts(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, Packed]:
    """Rollout id to what came of packing what it has staged; by few statements, however many rollouts."""
    found = dict.fromkeys(rollout_ids, Packed())
    names = list(found)
    nodes = Bigints(node_id(ledger.project, f"rollout-{rollout_id}") for rollout_id in names)
    with ledger.connection() as conn:
        streams = {int(stream_id): names[place - 1] for stream_id, place in conn.execute(_STREAMS, (nodes, ledger.ledger_id))}
    for packed in _each_packed(ledger, list(streams)):
        found |= {streams[stream_id]: one for stream_id, one in packed.items()}
    return found


def pack_stream(ledger: LedgerHandle, stream_id: int) -> Packed:
    """What came of packing what a stream has staged, one pack for each subject, linked to calls that were packed before as well.

    No transaction is open while a pack is made. Rows that do not fit their events stay where they are, and those of destroyed subjects.
    """
    return _together(ledger, [stream_id])[stream_id]


@dataclass(frozen=True)
class _Pack:
    stream_id: int
    subject_id: str
    live: Sequence[LiveRow]
    data: bytes

    @property
    def digest(self) -> bytes:
        """Of the rows, as the database works it out."""
        return sha256(b"".join(map(_row_digest, self.live))).digest()

    @property
    def counts(self) -> Packed:
        """What packing it did."""
        staged = sum(len(data) for row in self.live for data in (row.prompt, row.sampled, row.logprobs) if data is not None)
        return Packed(1, len(self.live), staged, len(self.data))


def _each_packed(ledger: LedgerHandle, stream_ids: Sequence[int]) -> Iterator[dict[int, Packed]]:
    for at in range(0, len(stream_ids), STREAMS_AT_ONCE):
        yield _together(ledger, stream_ids[at : at + STREAMS_AT_ONCE])


def _together(ledger: LedgerHandle, stream_ids: Sequence[int]) -> dict[int, Packed]:
    """Stream to what came of packing what it has staged; all are read by one statement, and again those that changed meanwhile."""
    found = dict.fromkeys(stream_ids, Packed())
    left = list(found)
    for _ in range(ATTEMPTS):
        with ledger.connection() as conn:
            streams, subjects = stored_streams(conn, left)
        made: list[_Pack] = []
        for stored in streams:
            try:
                made += _packs(stored, subjects)
            except TokenError as error:
                found[stored.stream_id] += Packed(faults=(str(error),))
        left = []
        for some in _portions(made):
            for one, sent in zip(some, _send(ledger, some), strict=True):
                found[one.stream_id] += sent
                left += [one.stream_id] if sent.taken else []
        if not left:
            return found
    for stream_id in left:
        found[stream_id] += Packed(faults=(f"stream {stream_id}: what is staged changed {ATTEMPTS} times while it was packed",))
    return found


def _packs(stored: StoredStream, subjects: Mapping[str, Subject]) -> list[_Pack]:
    """A pack for the staged rows of each subject, after what it holds has been put together again and checked against the events."""
    plain = plain_rows(stored, subjects)
    for _, fault in plain.faults:
        raise TokenError(fault)
    made: list[_Pack] = []
    for subject_id in sorted(plain.staged):
        live = sorted((row for row in stored.live if row.subject_id == subject_id), key=lambda row: row.event_id)
        rows, salt = plain.rows(subject_id), subjects[subject_id].salt
        staged = {row.event_id for row in live}
        said = {row.event_id: stored.said[row.event_id] for row in rows if row.event_id in stored.said}
        calls = reconstruct(rows, said, salt).calls
        earlier = [row for row in rows if row.event_id not in staged]
        data = pack([calls[row.event_id] for row in live], earlier=[calls[row.event_id] for row in earlier])
        reconstruct([*earlier, *unpack(data).rows()] if earlier else unpack(data), said, salt)
        made.append(_Pack(stored.stream_id, subject_id, live, token_codec.encode(subjects[subject_id], "pack", PACK, data)))
    return made


def _portions(packs: Sequence[_Pack]) -> Iterator[list[_Pack]]:
    """The packs in runs that go to the database in one statement each."""
    some: list[_Pack] = []
    size = 0
    for one in packs:
        if some and size + len(one.data) > SENT_BYTES:
            yield some
            some, size = [], 0
        some.append(one)
        size += len(one.data)
    if some:
        yield some


def _send(ledger: LedgerHandle, packs: Sequence[_Pack]) -> list[Packed]:
    """What came of each pack. They are written by one statement; where another packer took rows of one of them, each by itself."""
    lengths = [len(one.live) for one in packs]
    last = list(accumulate(lengths))
    given = (
        Uuids(row.event_id for one in packs for row in one.live), Bigints(one.stream_id for one in packs),
        Texts(one.subject_id for one in packs), Ints(end - length + 1 for end, length in zip(last, lengths, strict=True)), Ints(last),
        Byteas(one.digest for one in packs), Byteas(one.data for one in packs),
    )  # fmt: skip
    try:
        with ledger.connection() as conn:
            conn.execute(_PACK_TOKENS, given)
    except psycopg.Error as error:
        if error.sqlstate != NOT_STAGED:
            raise
        return [Packed(taken=1)] if len(packs) == 1 else [sent for one in packs for sent in _send(ledger, [one])]
    return [one.counts for one in packs]


def _row_digest(row: LiveRow) -> bytes:
    """As `token_row_digest` in the database."""
    parts = [uuid_bytes(row.event_id), b"" if row.parent is None else uuid_bytes(row.parent), row.shared.to_bytes(4, "big", signed=True)]
    for data in (row.prompt, row.sampled, row.logprobs):
        parts += [(-1 if data is None else len(data)).to_bytes(4, "big", signed=True), data or b""]
    return sha256(b"".join(parts)).digest()
