"""Blobs: bytes too large or too foreign for an event body, named by a salted commitment, written before the event that names them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from ledger import subjects
from ledger.canonical import canonical_bytes, parse
from ledger.errors import BlobError, BlobShredded
from ledger.events.base import BlobRef
from ledger.limits import LIMITS, Limits, check_blob
from ledger.subjects import PUBLIC, PUBLIC_SUBJECT, RAW, Subject

__all__ = [
    "PUBLIC",
    "Found",
    "Pending",
    "commitment",
    "find",
    "json_bytes",
    "orphans",
    "pending",
    "read",
    "read_json",
    "read_many",
    "text_bytes",
    "write",
]

CHUNK_BYTES = 4 * 1024 * 1024
PIPELINED_BYTES = 256 * 1024
"""Larger messages go by themselves: psycopg 3 hangs on about 1 MB inside a pipeline."""
KIND = "blob"
"""What a blob's ciphertext is bound to, with its id."""

_INSERT_CHUNK = "INSERT INTO blob_chunk (blob_no, chunk, data) VALUES (%s, %s, %s)"
Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Pending:
    """A blob ready to be written: its reference, its subject, its encoded bytes, and the codec of those."""

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


def pending(data: bytes | str, *, media: str, subject: Subject = PUBLIC_SUBJECT, limits: Limits = LIMITS) -> Pending:
    """A blob to be written, with its reference; public content is compressed, that of a subject with a key encrypted too.

    Raises:
        LimitExceeded: it is too large.
        SubjectDestroyed: the subject was shredded.
    """
    raw = text_bytes(data) if isinstance(data, str) else bytes(data)
    check_blob(len(raw), limits)
    name = hashlib.sha256(subject.salt + raw)
    codec, encoded = subjects.encode(subject, KIND, name.digest(), raw)
    return Pending(BlobRef(blob_id=name.hexdigest(), size=len(raw), media=media), subject.subject_id, encoded, codec)


def write(conn: Connection, blobs: Iterable[Pending]) -> int:
    """Number of blobs that were new. Runs in the caller's transaction, before its events."""
    unique = {blob.ref.blob_id: blob for blob in blobs}
    if not unique:
        return 0
    ordered = [unique[blob_id] for blob_id in sorted(unique)]
    rows = conn.execute(
        "INSERT INTO blob (blob_id, blob_no, subject_id, size, chunks, codec)"
        " SELECT b, next_blob_no(), s, z, c, d"
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
        BlobShredded: the subject of a blob was shredded.
        BlobError: a blob is missing, or its bytes do not match.
    """
    found = find(conn, blob_ids)
    for error in (*found.broken.values(), *found.shredded.values()):
        raise error
    return found.data


@dataclass(frozen=True)
class Found:
    """What came of reading several blobs, by blob id: the bytes, or why there are none."""

    data: dict[str, bytes] = field(default_factory=dict)
    shredded: dict[str, BlobShredded] = field(default_factory=dict)
    broken: dict[str, BlobError] = field(default_factory=dict)


def find(conn: Connection, blob_ids: Sequence[str]) -> Found:
    """Of several blobs the bytes that can be read, each checked against its commitment; the shredded and the broken apart."""
    wanted = [bytes.fromhex(blob_id) for blob_id in dict.fromkeys(blob_ids)]
    rows = conn.execute(
        "SELECT b.blob_id, b.subject_id, b.size, b.codec, string_agg(c.data, ''::bytea ORDER BY c.chunk)"
        " FROM blob AS b JOIN blob_chunk AS c USING (blob_no) WHERE b.blob_id = ANY (%s) GROUP BY 1",
        (wanted,),
    ).fetchall()
    known = subjects.load(conn, {row[1] for row in rows})
    found = Found()
    for raw_id, subject_id, size, codec, data in rows:
        blob_id = bytes(raw_id).hex()
        try:
            if subject_id not in known:
                raise BlobError(f"blob {blob_id}: its subject {subject_id!r} is not in this ledger")
            found.data[blob_id] = opened(known[subject_id], bytes(raw_id), size, codec, bytes(data))
        except BlobShredded as error:
            found.shredded[blob_id] = error
        except BlobError as error:
            found.broken[blob_id] = error
    there = {bytes(row[0]) for row in rows}
    gone = [raw.hex() for raw in wanted if raw not in there]
    found.broken.update({blob_id: BlobError(f"no blob {blob_id} in this ledger ({len(gone)} missing)") for blob_id in gone})
    return found


def opened(subject: Subject, raw_id: bytes, size: int, codec: int, data: bytes) -> bytes:
    """The bytes of a blob from what is stored of it, checked against its commitment.

    Args:
        subject: whose it is.
        raw_id: the 32 bytes of its id.
        size: of the plain bytes.
        codec: how they are encoded.
        data: its chunks, joined.
    Raises:
        BlobShredded: the subject was shredded.
        BlobError: the bytes do not match.
    """
    try:
        plain = subjects.decode(subject, KIND, raw_id, codec, data, size=size)
    except BlobShredded:
        raise
    except BlobError as error:
        raise BlobError(f"blob {raw_id.hex()}: its {len(data)} bytes do not match its commitment over {size} bytes: {error}") from error
    if len(plain) != size or hashlib.sha256(subject.salt + plain).digest() != raw_id:
        raise BlobError(f"blob {raw_id.hex()}: its {len(plain)} bytes do not match its commitment over {size} bytes")
    return plain


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
