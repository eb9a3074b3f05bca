"""A ledger as the source of a push or an export: its sealed events, with the blobs and tokens that they name. Reads the database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from ledger import checkpoint, subjects
from ledger.arrays import Byteas, Texts
from ledger.errors import PushRefused, UnknownId
from ledger.events import LogForked
from ledger.interchange.carried import (
    CarriedBlob,
    CarriedEvent,
    CarriedPack,
    CarriedStream,
    CarriedSubject,
    Claim,
    Fork,
)
from ledger.interchange.log_tree import tiles_of
from ledger.ledger import LedgerHandle
from ledger.prepared import stamp
from ledger.proof import Checkpoint, LeafFields, b64
from ledger.subjects import ENCRYPTED, PUBLIC
from ledger.token_rows import LiveRow
from ledger.tree import TileReader, edge_root, inclusion

Connection = psycopg.Connection[Any]
BATCH = 1000
STREAMS = 200
BLOB_BYTES = 16 * 1024 * 1024
"""Blobs are read so many bytes at a time, or one by one where one is larger."""
_EVENTS = (
    "SELECT position, ledger_id, event_id::text, project, stream, version, kind, schema_version, canonicaliser, occurred_at, actor_id,"
    " correlation_id, causation_id::text, key, body_hash, body, leaf FROM ordered_event WHERE position > %s AND position <= %s"
)
_LEAVES = "SELECT e.leaf FROM event_order AS o JOIN event AS e USING (id) WHERE o.position > %s AND o.position <= %s ORDER BY o.position"
_BLOBS = (
    "SELECT b.blob_id, b.subject_id, b.size, b.codec, string_agg(c.data, ''::bytea ORDER BY c.chunk)"
    " FROM blob AS b JOIN blob_chunk AS c USING (blob_no) WHERE b.blob_id = ANY (%s) GROUP BY 1 ORDER BY 1"
)
# Whose text or tokens lie here in the clear: blobs whose codec has no bit for encryption, and tokens of a subject that has no key.
_OPEN_SUBJECTS = (
    f"(SELECT subject_id FROM blob WHERE subject_id <> '{PUBLIC}' AND codec & {ENCRYPTED} = 0 LIMIT 1) UNION ALL"
    " (SELECT subject_id FROM subject AS s WHERE key IS NULL AND destroyed_at IS NULL AND"
    " (EXISTS (SELECT FROM token_live AS t WHERE t.subject_id = s.subject_id) OR EXISTS (SELECT FROM token_pack AS t"
    " WHERE t.subject_id = s.subject_id)) LIMIT 1)"
).encode()
_CALL_STREAMS = (
    "SELECT DISTINCT e.stream_id FROM event_order AS o JOIN event AS e USING (id)"
    " WHERE o.position > %s AND o.position <= %s AND e.kind = 'ModelCalled'"
)
_NAMED_STREAMS = (
    "SELECT h.stream_id FROM unnest(%s, %s, %s) AS u (ledger_id, project, stream)"
    " JOIN stream_head AS h ON h.node_id = node_of(u.project, u.stream) AND h.ledger_id = u.ledger_id"
)


@dataclass(frozen=True)
class Kept:
    """Which events an export keeps; None or nothing keeps all.

    Attributes:
        project: of one project.
        kinds: of these kinds.
        streams: of these streams.
    """

    project: str | None = None
    kinds: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether it leaves nothing out."""
        return self == Kept()

    def fits(self, fields: LeafFields) -> bool:
        """Whether it keeps this event."""
        return (
            self.project in (None, fields.project)
            and (not self.kinds or fields.kind in self.kinds)
            and (not self.streams or fields.stream in self.streams)
        )


class LedgerSource:
    """The sealed run (since, until] of a ledger's log.

    Attributes:
        ledger: to read.
        head: the newest checkpoint.
    """

    def __init__(
        self, ledger: LedgerHandle, *, since: int = 0, until: int | None = None, keep: Kept = Kept(), with_keys: bool = False
    ) -> None:
        """Read the newest checkpoint.

        Raises:
            PushRefused: nothing is sealed, the range is not, or text that is stored in the clear would travel without leave.
        """
        self.ledger, self.keep = ledger, keep
        with ledger.connection() as conn:
            row = conn.execute("SELECT note FROM checkpoint ORDER BY size DESC, sealed_at DESC LIMIT 1").fetchone()
            if row is None:
                raise PushRefused(f"ledger {ledger.ledger_id} has no checkpoint, so nothing of it can be proved yet; run `tally seal`")
            note = str(row[0])
            self.head: Checkpoint = checkpoint.parse(note)[0]
            clear = None if with_keys else conn.execute(_OPEN_SUBJECTS).fetchone()
        end = self.head.size if until is None else until
        if not 0 <= since < end <= self.head.size:
            raise PushRefused(
                f"range ({since}, {end}]; allowed: within the {self.head.size} events that are sealed (`tally seal` adds more)"
            )
        if clear is not None:
            raise PushRefused(
                f"subject {clear[0]!r} keeps text or tokens that are not encrypted, which would leave readable; allowed: --with-keys, which"
                " says so"
            )
        self._claim = Claim(ledger.ledger_id, since, end, note, not keep.everything, with_keys)

    @property
    def claim(self) -> Claim:
        """What is offered."""
        return self._claim

    def leaves(self) -> Iterator[bytes]:
        """The leaves of the positions (since, until], in order."""
        return self._leaves(self.claim.since, self.claim.until)

    def _leaves(self, since: int, until: int) -> Iterator[bytes]:
        with self.ledger.connection() as conn, conn.cursor(name="leaves") as cursor:
            cursor.itersize = 20_000
            cursor.execute(_LEAVES, (since, until))
            for row in cursor:
                yield bytes(row[0])

    def tree(self) -> TileReader:
        """A reader of the tiles of the whole sealed log.

        Raises:
            PushRefused: the events do not lead to the checkpoint.
        """
        edge, read = tiles_of(self._leaves(0, self.head.size))
        if (edge.size, edge_root(edge)) != (self.head.size, self.head.root):
            raise PushRefused(
                f"the first {edge.size} events lead to root {b64(edge_root(edge))}; the checkpoint over {self.head.size} has"
                f" {b64(self.head.root)}: run `tally verify`"
            )
        return read

    def batches(self, after: int) -> Iterator[list[CarriedEvent]]:
        """The events above `after` that are kept, in order, up to a thousand at a time."""
        keep, since = self.keep, max(after, self.claim.since)
        statement, given = _EVENTS, []
        for column, value in (("project", keep.project), ("kind", Texts(keep.kinds)), ("stream", Texts(keep.streams))):
            if value is not None and not (isinstance(value, Texts) and not value.values):
                statement += f" AND {column} = ANY (%s)" if isinstance(value, Texts) else f" AND {column} = %s"
                given.append(value)
        while True:
            with self.ledger.connection() as conn:
                rows = conn.execute(f"{statement} ORDER BY position LIMIT {BATCH}".encode(), (since, self.claim.until, *given)).fetchall()
            if not rows:
                return
            yield [_carried(row) for row in rows]
            since = int(rows[-1][0])

    def proved(self, after: int, read: TileReader) -> Iterator[list[CarriedEvent]]:
        """As `batches`, each event with its inclusion proof."""
        for batch in self.batches(after):
            yield [replace(event, inclusion=tuple(inclusion(read, event.position - 1, self.head.size))) for event in batch]

    def used(self, positions: Sequence[int]) -> dict[int, list[bytes]]:
        """Position to the ids of the blobs that its event uses."""
        found: dict[int, list[bytes]] = {}
        with self.ledger.connection() as conn:
            for position, blob_id in conn.execute(
                "SELECT o.position, b.blob_id FROM event_order AS o JOIN blob_use AS u USING (id) JOIN blob AS b USING (blob_no)"
                " WHERE o.position = ANY (%s) ORDER BY 1, 2",
                (list(positions),),
            ):
                found.setdefault(int(position), []).append(bytes(blob_id))
        return found

    def blobs(self, wanted: set[bytes]) -> Iterator[CarriedBlob]:
        """Those of these blobs that are stored, by id."""
        with self.ledger.connection() as conn:
            sizes = conn.execute(
                "SELECT b.blob_id, (SELECT sum(octet_length(data)) FROM blob_chunk AS c WHERE c.blob_no = b.blob_no)::bigint FROM blob AS b"
                " WHERE b.blob_id = ANY (%s) ORDER BY 1",
                (Byteas(wanted),),
            ).fetchall()
        group: list[bytes] = []
        held = 0
        for blob_id, size in [*sizes, (b"", BLOB_BYTES + 1)]:
            if group and held + size > BLOB_BYTES:
                with self.ledger.connection() as conn:
                    rows = conn.execute(_BLOBS, (Byteas(group),)).fetchall()
                yield from (CarriedBlob(bytes(row[0]), row[1], row[2], row[3], bytes(row[4])) for row in rows)
                group, held = [], 0
            group.append(bytes(blob_id))
            held += size

    def subjects(self) -> list[CarriedSubject]:
        """Salts and keys of all subjects, when they travel; of those destroyed that they are."""
        with self.ledger.connection() as conn:
            rows = conn.execute(
                "SELECT subject_id, salt, key, destroyed_at FROM subject WHERE %s OR destroyed_at IS NOT NULL ORDER BY 1",
                (self.claim.with_keys,),
            ).fetchall()
            found = [subjects.opened(conn, *row) for row in rows]
        return [
            CarriedSubject(subject.subject_id, subject.salt, subject.key, None)
            if subject.destroyed_at is None
            else CarriedSubject(subject.subject_id, None, None, stamp(subject.destroyed_at))
            for subject in found
        ]

    def streams(self, after: int, also: list[tuple[str, str, str]]) -> Iterator[CarriedStream]:
        """Tokens of the streams with model calls above position `after`, and of those named by ledger, project and stream."""
        with self.ledger.connection() as conn:
            rows = conn.execute(_CALL_STREAMS, (max(after, self.claim.since), self.claim.until)).fetchall()
            rows += conn.execute(_NAMED_STREAMS, tuple(map(Texts, zip(*also, strict=True)))).fetchall() if also else []
        stream_ids = sorted({int(row[0]) for row in rows})
        for start in range(0, len(stream_ids), STREAMS):
            yield from self.stream_tokens(stream_ids[start : start + STREAMS])

    def stream_tokens(self, stream_ids: Sequence[int]) -> list[CarriedStream]:
        """What is held of these streams' tokens, at one moment: rows move from staging into a pack while others read."""
        found: list[CarriedStream] = []
        with self.ledger.connection() as conn:
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            versions = conn.execute(
                "SELECT h.stream_id, h.ledger_id, n.project, n.name, (SELECT coalesce(max(e.version), 0) FROM event AS e"
                " JOIN event_order AS o USING (id) WHERE e.stream_id = h.stream_id AND o.position <= %s)"
                " FROM stream_head AS h JOIN node AS n USING (node_id) WHERE h.stream_id = ANY (%s) ORDER BY 1",
                (self.claim.until, list(stream_ids)),
            ).fetchall()
            packs: dict[int, list[CarriedPack]] = {}
            for row in conn.execute(
                "SELECT stream_id, subject_id, calls, data FROM token_pack WHERE stream_id = ANY (%s) ORDER BY pack_id", (list(stream_ids),)
            ):
                packs.setdefault(row[0], []).append(CarriedPack(row[1], row[2], bytes(row[3])))
            staged: dict[int, list[LiveRow]] = {}
            for row in conn.execute(
                "SELECT t.stream_id, t.event_id::text, t.subject_id, t.parent::text, t.shared, t.prompt, t.sampled, t.logprobs"
                " FROM token_live AS t JOIN event_key AS k USING (event_id) JOIN event_order AS o USING (id)"
                " WHERE t.stream_id = ANY (%s) AND o.position <= %s ORDER BY o.position",
                (list(stream_ids), self.claim.until),
            ):
                arrays = [None if data is None else bytes(data) for data in row[5:]]
                staged.setdefault(row[0], []).append(LiveRow(*row[1:5], *arrays))
        for row in versions:
            found.append(CarriedStream(row[1], row[2], row[3], row[4], tuple(packs.get(row[0], ())), tuple(staged.get(row[0], ()))))
        return found

    def forks(self) -> list[Fork]:
        """Every fork that the log has seen."""
        with self.ledger.connection() as conn:
            rows = conn.execute("SELECT body FROM ordered_event WHERE kind = 'LogForked' AND ledger_id = %s", (self.claim.ledger_id,))
            bodies = [LogForked.model_validate_json(row[0]) for row in rows]
        return [Fork(body.origin, body.previous_origin, body.common_size) for body in bodies]

    def kinds(self, after: int) -> dict[str, int]:
        """Number of events by kind above `after`."""
        with self.ledger.connection() as conn:
            rows = conn.execute(
                "SELECT e.kind, count(*) FROM event_order AS o JOIN event AS e USING (id)"
                " WHERE o.position > %s AND o.position <= %s GROUP BY 1 ORDER BY 1",
                (max(after, self.claim.since), self.claim.until),
            ).fetchall()
        return {str(kind): int(count) for kind, count in rows}

    def stream_ids(self, names: set[tuple[str, str, str]]) -> list[int]:
        """Internal ids of streams by ledger, project and name."""
        with self.ledger.connection() as conn:
            rows = conn.execute(_NAMED_STREAMS, tuple(map(Texts, zip(*names, strict=True)))).fetchall() if names else []
        if len(rows) != len(names):
            raise UnknownId(f"{len(names)} streams named, {len(rows)} found")
        return [int(row[0]) for row in rows]


def _carried(row: Sequence[Any]) -> CarriedEvent:
    fields = LeafFields(
        ledger_id=row[1], event_id=row[2], project=row[3], stream=row[4], version=row[5], kind=row[6], schema_version=row[7],
        canonicaliser=row[8], occurred_at=stamp(row[9]), actor_id=row[10], correlation_id=row[11], causation_id=row[12], key=row[13],
        body_hash=bytes(row[14]),
    )  # fmt: skip
    return CarriedEvent(int(row[0]), fields, bytes(row[15]), bytes(row[16]))
