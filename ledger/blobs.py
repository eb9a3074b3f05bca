"""Blobs: bytes too large or too foreign for an event body, named by a salted commitment, written before the event that names them."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from ledger.canonical import canonical_bytes, parse
from ledger.errors import BlobError
from ledger.events.base import BlobRef

CHUNK_BYTES = 4 * 1024 * 1024
PIPELINED_BYTES = 256 * 1024
"""Larger messages go by themselves: psycopg 3 hangs on about 1 MB inside a pipeline."""
MAX_BYTES = 1024 * 1024 * 1024
RAW = 0
PUBLIC = "public"
"""Subject of content that is nobody's: sources, schemas, public tasks. Its salt is empty, so equal content has equal names everywhere."""

_INSERT_CHUNK = "INSERT INTO blob_chunk (blob_no, chunk, data) VALUES (%s, %s, %s)"
Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Pending:
    """A blob ready to be written: its reference, its subject, its bytes, and how those are encoded."""

    ref: BlobRef
    subject_id: str
    data: bytes
    codec: int = RAW


def commitment(salt: bytes, data: bytes) -> str:
    """Hex SHA-256 over salt and plaintext: what an event says of a blob."""
    return hashlib.sha256(salt + data).hexdigest()


def text_bytes(text: str) -> bytes:
    """UTF-8 of `text`; a lone surrogate, which no encoding of Unicode text allows, is kept as its three-byte form."""
    return text.encode("utf-8", "surrogatepass")


def pending(data: bytes | str, *, media: str, subject_id: str = PUBLIC, salt: bytes = b"") -> Pending:
    """A blob to be written, with its reference.

    Raises:
        BlobError: more than 1 GiB.
    """
    raw = text_bytes(data) if isinstance(data, str) else bytes(data)
    if len(raw) > MAX_BYTES:
        raise BlobError(f"blob of {len(raw)} bytes; allowed: up to {MAX_BYTES}")
    return Pending(BlobRef(blob_id=commitment(salt, raw), size=len(raw), media=media), subject_id, raw)


def subject_salt(conn: Connection, subject_id: str, *, random_bytes: Callable[[int], bytes]) -> bytes:
    """The salt of a subject, made when first asked for; empty for the public subject."""
    if subject_id == PUBLIC:
        return b""
    conn.execute("INSERT INTO subject (subject_id, salt) VALUES (%s, %s) ON CONFLICT DO NOTHING", (subject_id, random_bytes(32)))
    row = conn.execute("SELECT salt FROM subject WHERE subject_id = %s", (subject_id,)).fetchone()
    if row is None:
        raise BlobError(f"subject {subject_id!r} vanished while it was made")
    return bytes(row[0])


def write(conn: Connection, blobs: Iterable[Pending]) -> int:
    """Number of blobs that were new. Runs in the caller's transaction, before its events."""
    unique = {blob.ref.blob_id: blob for blob in blobs}
    if not unique:
        return 0
    ordered = [unique[blob_id] for blob_id in sorted(unique)]
    rows = conn.execute(
        "INSERT INTO blob (blob_id, blob_no, subject_id, size, chunks, codec)"
        " SELECT b, nextval('blob_no_seq'), s, z, c, d"
        " FROM unnest(%s::bytea[], %s::text[], %s::bigint[], %s::int[], %s::int[]) WITH ORDINALITY AS u (b, s, z, c, d, n)"
        " WHERE NOT EXISTS (SELECT FROM blob WHERE blob_id = b) ORDER BY n ON CONFLICT DO NOTHING RETURNING blob_id, blob_no",
        (
            [bytes.fromhex(blob.ref.blob_id) for blob in ordered],
            [blob.subject_id for blob in ordered],
            [blob.ref.size for blob in ordered],
            [_chunks(blob) for blob in ordered],
            [blob.codec for blob in ordered],
        ),
    ).fetchall()
    new = [(unique[bytes(row[0]).hex()], int(row[1])) for row in rows]
    parts = [
        (blob_no, chunk, blob.data[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES])
        for blob, blob_no in new
        for chunk in range(_chunks(blob))
    ]
    with conn.cursor() as cursor:
        cursor.executemany(_INSERT_CHUNK, [part for part in parts if len(part[2]) <= PIPELINED_BYTES])
        for part in parts:
            if len(part[2]) > PIPELINED_BYTES:
                cursor.execute(_INSERT_CHUNK, part)
    return len(new)


def _chunks(blob: Pending) -> int:
    return max(1, -(-len(blob.data) // CHUNK_BYTES))


def read(conn: Connection, blob_id: str) -> bytes:
    """The bytes of a blob, checked against its commitment.

    Raises:
        BlobError: no such blob, or its bytes do not match.
    """
    found = read_many(conn, [blob_id])
    return found[blob_id]


def read_many(conn: Connection, blob_ids: Sequence[str]) -> dict[str, bytes]:
    """The bytes of several blobs by id, each checked against its commitment.

    Raises:
        BlobError: a blob is missing, or its bytes do not match.
    """
    wanted = [bytes.fromhex(blob_id) for blob_id in dict.fromkeys(blob_ids)]
    rows = conn.execute(
        "SELECT b.blob_id, coalesce(s.salt, ''::bytea), b.size, string_agg(c.data, ''::bytea ORDER BY c.chunk)"
        " FROM blob AS b JOIN blob_chunk AS c USING (blob_no) LEFT JOIN subject AS s USING (subject_id)"
        " WHERE b.blob_id = ANY (%s) GROUP BY 1, 2, 3",
        (wanted,),
    ).fetchall()
    result: dict[str, bytes] = {}
    for raw_id, salt, size, data in rows:
        blob_id = bytes(raw_id).hex()
        plain = bytes(data)
        if len(plain) != size or commitment(bytes(salt), plain) != blob_id:
            raise BlobError(f"blob {blob_id}: its {len(plain)} bytes do not match its commitment over {size} bytes")
        result[blob_id] = plain
    missing = [raw.hex() for raw in wanted if raw.hex() not in result]
    if missing:
        raise BlobError(f"no blob {missing[0]} in this ledger ({len(missing)} missing)")
    return result


def read_json(conn: Connection, ref: BlobRef) -> Any:
    """The JSON value in a blob."""
    return parse(read(conn, ref.blob_id))


def json_bytes(value: Any) -> bytes:
    """Canonical bytes of a JSON value for a blob, where \\u0000 in text is allowed."""
    return canonical_bytes(value, allow_nul=True)


def orphans(conn: Connection) -> tuple[int, int]:
    """Count and bytes of blobs that no event refers to: what interrupted writers left behind."""
    row = conn.execute(
        "SELECT count(*), coalesce(sum(size), 0)::bigint FROM blob AS b"
        " WHERE NOT EXISTS (SELECT FROM blob_use AS u WHERE u.blob_no = b.blob_no)"
    ).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))
