"""The only writer: appends events durably, idempotently and at the expected version, in one transaction. Writes the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg

from ledger import blobs as blob_store
from ledger import bulk, canonical
from ledger.arrays import Bigints, Byteas, Floats, Ints, Texts, Times, Uuids
from ledger.blobs import Pending
from ledger.errors import IdempotencyConflict, InvalidEvent, RoleError, SubjectDestroyed, TallyError, VersionConflict
from ledger.limits import LIMITS, Limits, check_append
from ledger.prepared import New, Prepared, StagedTokens, children_of, heads_of, prepare, stamp

__all__ = [
    "Appended",
    "New",
    "Receipt",
    "StagedTokens",
    "append",
    "many_statements",
    "one_statement",
    "prepare_all",
    "stamp",
]

SMALL = 48
"""Up to so many events go in one statement; more are copied in, which costs more round trips and less time an event."""
SMALL_BYTES = 1024 * 1024
INLINE_BLOB_BYTES = 256 * 1024
"""Larger blobs are stored by themselves before the events that name them."""
Connection = psycopg.Connection[Any]
_ERRORS: dict[str, type[TallyError]] = {
    "TY001": VersionConflict, "TY002": IdempotencyConflict, "TY003": InvalidEvent, "TY004": InvalidEvent, "TY005": InvalidEvent,
    "TY006": SubjectDestroyed, "TY007": RoleError,
}  # fmt: skip


@dataclass(frozen=True)
class Appended:
    """One acknowledged event; `created` is False when the key was taken by the same content and the first event stands."""

    event_id: str
    stream: str
    version: int
    created: bool


@dataclass(frozen=True)
class Receipt:
    """What `append` acknowledges, in the order given. It holds no position: that comes with ordering."""

    events: tuple[Appended, ...]


@dataclass(frozen=True)
class Batch:
    """Events prepared together: those given, the distinct ones among them, and the blobs that come with them by size."""

    given: tuple[Prepared, ...]
    distinct: tuple[Prepared, ...]
    expected: Mapping[str, int]
    inline: tuple[Pending, ...]
    large: tuple[Pending, ...]

    @property
    def small(self) -> bool:
        """Whether it fits in one statement."""
        if len(self.distinct) > SMALL:
            return False
        tokens = [item.new.tokens for item in self.distinct if item.new.tokens is not None]
        arrays = [data for t in tokens for data in (t.prompt, t.sampled, t.logprobs) if data is not None]
        return sum(map(len, arrays)) + sum(len(item.body) for item in self.distinct) + sum(len(b.data) for b in self.inline) <= SMALL_BYTES


def append(conn: Connection, ledger_id: str, project: str, events: Sequence[New], expected: Mapping[str, int] | None = None) -> Receipt:
    """Receipt for events that are durable when the caller's transaction commits; all of them or none.

    Args:
        conn: a connection inside a transaction that has written nothing but blobs.
        ledger_id: this ledger's id.
        project: namespace of streams and keys.
        events: in the order in which their streams shall hold them.
        expected: stream to the version that it must be at before this append; 0 for a stream that must not exist.
    Raises:
        InvalidEvent, CanonicalError: an event does not fit its schema or limits; nothing is written.
        IdempotencyConflict: a key is taken by other content.
        VersionConflict: a stream is not at its expected version.
    """
    batch = prepare_all(ledger_id, project, events, expected)
    blob_store.write(conn, batch.large)
    if batch.small:
        return one_statement(conn, ledger_id, project, batch)
    blob_store.write(conn, batch.inline)
    return many_statements(conn, ledger_id, project, batch)


def prepare_all(
    ledger_id: str, project: str, events: Sequence[New], expected: Mapping[str, int] | None = None, *, limits: Limits = LIMITS
) -> Batch:
    """The events ready to be written, the same key twice made one.

    Raises:
        InvalidEvent, CanonicalError: an event does not fit its schema, or it or all of them together do not fit the limits.
        IdempotencyConflict: two of them have one key and other content.
    """
    given = tuple(prepare(ledger_id, project, new, limits) for new in events)
    distinct: dict[str, Prepared] = {}
    for item in given:
        first = distinct.setdefault(item.event_id, item)
        if first is not item and first.content != item.content:
            raise IdempotencyConflict(
                f"key {item.key!r} in stream {item.stream!r} is given twice, by {first.kind} and by {item.kind} with other content:"
                " the same key needs the same content"
            )
    streams = {item.stream for item in given}
    for stream in expected or {}:
        if stream not in streams:
            raise InvalidEvent(f"expected version given for stream {stream!r}, to which nothing is appended")
    blobs = {blob.ref.blob_id: blob for new in events for blob in new.blobs}
    ordered = [blobs[blob_id] for blob_id in sorted(blobs)]
    check_append(given, ordered, limits)
    return Batch(
        given, tuple(distinct.values()), expected or {}, tuple(blob for blob in ordered if len(blob.data) <= INLINE_BLOB_BYTES),
        tuple(blob for blob in ordered if len(blob.data) > INLINE_BLOB_BYTES),
    )  # fmt: skip


def one_statement(conn: Connection, ledger_id: str, project: str, batch: Batch, *, reviews_only: bool = False) -> Receipt:
    """Receipt for a small batch, written by one statement: outside a transaction it is durable when this returns.

    Args:
        conn, ledger_id, project, batch: what to write and where.
        reviews_only: by the function that takes events of reviews alone, which a role without the right to write the log may call.
    """
    try:
        query = small_query(ledger_id, project, batch, reviews_only=reviews_only)
        return small_receipt(batch, conn.execute(*query).fetchone())
    except psycopg.Error as error:
        raise known_error(error) from error


def small_query(ledger_id: str, project: str, batch: Batch, *, reviews_only: bool = False) -> tuple[bytes, tuple[Any, ...]]:
    """The one statement that writes a small batch; `small_receipt` reads its row."""
    given = arguments(ledger_id, project, batch)
    return _statement("append_reviews" if reviews_only else "append_events", tuple(given)), tuple(given.values())


def small_receipt(batch: Batch, row: Sequence[Any] | None) -> Receipt:
    """The receipt of a small batch from the row that `small_query` gives."""
    assert row is not None
    versions = zip(batch.distinct, row[0], row[1], strict=True)
    return _receipt(batch, {item.event_id: (version, created) for item, version, created in versions})


def many_statements(conn: Connection, ledger_id: str, project: str, batch: Batch) -> Receipt:
    """Receipt for a batch of any size whose blobs are stored, copied in within the caller's transaction."""
    try:
        return _receipt(batch, bulk.write(conn, ledger_id, project, batch.distinct, batch.expected))
    except psycopg.Error as error:
        raise known_error(error) from error


def known_error(error: psycopg.Error) -> Exception:
    """The error of ours that the database raised, else the error itself."""
    kind = _ERRORS.get(error.sqlstate or "")
    return error if kind is None else kind(error.diag.message_primary or str(error))


def arguments(ledger_id: str, project: str, batch: Batch) -> dict[str, Any]:
    """What `append_events` takes, by name; what it defaults to nothing is left out."""
    items, inline = batch.distinct, batch.inline
    heads = heads_of(items)
    place = {stream: index for index, stream in enumerate(heads, 1)}
    given: dict[str, Any] = {
        "of_ledger": ledger_id, "of_project": project, "of_canonicaliser": canonical.NAME,
        "head_names": Texts(heads), "head_nodes": Bigints(heads.values()),
        "heads": Ints(place[item.stream] for item in items), "keys": Texts(item.key for item in items),
        "event_ids": Uuids(item.event_id for item in items), "kinds": Texts(item.kind for item in items),
        "schema_versions": Ints(item.schema_version for item in items), "occurred": Times(item.occurred_at for item in items),
        "actors": Texts(item.new.actor_id for item in items), "correlations": Texts(item.new.correlation_id for item in items),
        "causations": Uuids(item.new.causation_id for item in items), "bodies": Byteas(item.body for item in items),
        "leaf_heads": Byteas(item.leaf_head for item in items), "leaf_tails": Byteas(item.leaf_tail for item in items),
    }  # fmt: skip
    if batch.expected:
        given["expected"] = Ints(batch.expected.get(stream) for stream in heads)
    if children := children_of(project, items):
        given |= {"child_names": Texts(children), "child_nodes": Bigints(children.values())}
    if edges := [(index, n, *edge) for index, item in enumerate(items, 1) for n, edge in enumerate(item.edges)]:
        columns = zip(*edges, strict=True)
        kinds = (Ints, Ints, Bigints, Bigints, Texts, Floats)
        names = ("edge_of", "edge_n", "edge_children", "edge_parents", "edge_relations", "edge_weights")
        given |= {name: kind(column) for name, kind, column in zip(names, kinds, columns, strict=True)}
    if uses := [(index, blob_id) for index, item in enumerate(items, 1) for blob_id in item.uses]:
        given |= {"use_of": Ints(index for index, _ in uses), "use_blobs": Byteas(blob_id for _, blob_id in uses)}
    if inline:
        given |= {
            "blob_ids": Byteas(bytes.fromhex(blob.ref.blob_id) for blob in inline),
            "blob_subjects": Texts(blob.subject_id for blob in inline),
            "blob_sizes": Bigints(blob.ref.size for blob in inline), "blob_codecs": Ints(blob.codec for blob in inline),
            "blob_data": Byteas(blob.data for blob in inline),
        }  # fmt: skip
    if tokens := [(index, item.new.tokens) for index, item in enumerate(items, 1) if item.new.tokens is not None]:
        given |= {
            "token_of": Ints(index for index, _ in tokens),
            "token_subjects": Texts(token.subject_id for _, token in tokens),
            "token_parents": Uuids(token.parent for _, token in tokens),
            "token_shared": Ints(token.shared for _, token in tokens),
            "token_prompts": Byteas(token.prompt for _, token in tokens), "token_sampled": Byteas(token.sampled for _, token in tokens),
            "token_logprobs": Byteas(token.logprobs for _, token in tokens),
        }  # fmt: skip
    return given


@cache
def _statement(function: str, names: tuple[str, ...]) -> bytes:
    # As bytes, since the driver takes only literal text: the names are those above.
    return f"SELECT out_versions, out_new FROM {function}({', '.join(f'{name} => %s' for name in names)})".encode()


def _receipt(batch: Batch, versions: Mapping[str, tuple[int, bool]]) -> Receipt:
    acknowledged: list[Appended] = []
    seen: set[str] = set()
    for item in batch.given:
        version, created = versions[item.event_id]
        acknowledged.append(Appended(item.event_id, item.stream, version, created and item.event_id not in seen))
        seen.add(item.event_id)
    return Receipt(tuple(acknowledged))
