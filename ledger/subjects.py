"""Whose text and tokens are kept: each subject's salt and key, and the one way in which bytes are encoded under them. Writes `subject`."""

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from ledger.errors import BlobError, BlobShredded, SettingsError, SubjectDestroyed

RAW, ZSTD, ENCRYPTED = 0, 1, 2
"""A codec is a sum of these: 0 raw, 1 zstd, 2 AES-GCM over raw, 3 AES-GCM over zstd."""
KEY_BYTES = 32
NONCE_BYTES = 12
WRAPPED_BYTES = KEY_BYTES + 8
"""RFC 3394 adds eight bytes, so the length tells a wrapped key from a plain one."""
LEVEL = 3
NOT_WORTH_BYTES = 64
"""Shorter content is not compressed: a zstd frame has nearly as many bytes of its own as it could save."""


class KeyedConnection(psycopg.Connection[Any]):
    """A connection that knows the key which subjects' keys are wrapped with; None where they are stored as they are."""

    kek: bytes | None = None


Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Subject:
    """A subject as it encodes and decodes.

    Attributes:
        subject_id: pseudonym.
        salt: of its commitments; empty for public content and once destroyed.
        key: of its ciphertext; None for public content and once destroyed.
        destroyed_at: when salt and key were destroyed.
    """

    subject_id: str
    salt: bytes = field(repr=False)
    key: bytes | None = field(repr=False)
    destroyed_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.key is not None and len(self.key) != KEY_BYTES:
            raise BlobError(f"key of subject {self.subject_id!r} has {len(self.key)} bytes; allowed: {KEY_BYTES}")


PUBLIC = "public"
PUBLIC_SUBJECT = Subject(PUBLIC, b"", None)
"""Content that is nobody's (sources, schemas, public tasks): no salt and no key, so equal content has equal names and bytes everywhere."""


def encode(subject: Subject, kind: str, ident: bytes, plaintext: bytes, *, compress: bool = True) -> tuple[int, bytes]:
    """Codec and bytes to store: compressed where that is shorter, then encrypted under the subject's key if it has one.

    The same content of the same subject gives the same bytes: the nonce is a keyed digest over what it encrypts and what that is
    called, so it comes twice only with the very same message. It is stored before the ciphertext, because another release of zstd
    may compress the same plaintext to another message.

    Args:
        subject: whose content it is.
        kind: what is encoded, such as `blob`; with `ident` it is bound to the ciphertext, which fits in no other place.
        ident: bytes that name it among its kind.
        plaintext: the content.
        compress: False for what is compressed already.
    Raises:
        SubjectDestroyed: its key is gone.
    """
    if subject.destroyed_at is not None:
        raise SubjectDestroyed(_gone(subject) + "; allowed: another subject")
    codec, message = RAW, plaintext
    if compress and len(plaintext) > NOT_WORTH_BYTES:
        packed = _CODEC.compressor.compress(plaintext)
        if len(packed) < len(plaintext):
            codec, message = ZSTD, packed
    if subject.key is None:
        return codec, message
    cipher, nonces = _keyed(subject.key)
    named = _named(kind, ident, codec)
    digest = nonces.copy()
    digest.update(named)
    digest.update(message)
    nonce = digest.digest()
    return codec | ENCRYPTED, nonce + cipher.encrypt(nonce, message, named)


def decode(subject: Subject, kind: str, ident: bytes, codec: int, data: bytes, *, size: int | None = None) -> bytes:
    """The plaintext of what `encode` returned for the same subject, kind and ident.

    Args:
        subject, kind, ident: as they were for `encode`.
        codec, data: what it returned.
        size: of the plaintext in bytes, where known.
    Raises:
        BlobShredded: the subject's key was destroyed.
        BlobError: the bytes are not what was encoded, or the codec is unknown.
    """
    if subject.destroyed_at is not None:
        raise BlobShredded(f"{kind} {ident.hex()} cannot be read any more: {_gone(subject)}")
    if not RAW <= codec <= ZSTD | ENCRYPTED:
        raise BlobError(f"{kind} {ident.hex()} has codec {codec}; allowed: 0 to {ZSTD | ENCRYPTED}")
    message = bytes(data)
    if codec & ENCRYPTED:
        if subject.key is None:
            raise BlobError(f"{kind} {ident.hex()} is encrypted and subject {subject.subject_id!r} has no key")
        cipher, _ = _keyed(subject.key)
        try:
            message = cipher.decrypt(message[:NONCE_BYTES], message[NONCE_BYTES:], _named(kind, ident, codec & ~ENCRYPTED))
        except (InvalidTag, ValueError) as error:
            raise BlobError(f"{kind} {ident.hex()}: its {len(data)} bytes are not what was encrypted") from error
    if not codec & ZSTD:
        return message
    try:
        # A frame says how much it unpacks to; believing it unasked would let damage claim all memory.
        if size is not None and zstandard.frame_content_size(message) != size:
            raise BlobError(f"{kind} {ident.hex()} unpacks to {zstandard.frame_content_size(message)} bytes; expected {size}")
        return _CODEC.decompressor.decompress(message)
    except zstandard.ZstdError as error:
        raise BlobError(f"{kind} {ident.hex()}: its {len(data)} bytes are not what was compressed: {error}") from error


def ensure(conn: Connection, subject_id: str, *, random_bytes: Callable[[int], bytes]) -> Subject:
    """The subject of this id, made with a random salt and key when first asked for.

    Raises:
        SubjectDestroyed: it was shredded; nothing new may be stored under it.
        SettingsError: its key is wrapped by a key that this connection does not know.
    """
    if subject_id == PUBLIC:
        return PUBLIC_SUBJECT
    found = load(conn, [subject_id]).get(subject_id)
    if found is None:
        conn.execute(
            "INSERT INTO subject (subject_id, salt, key) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (subject_id, _wrapped(conn, random_bytes(KEY_BYTES)), _wrapped(conn, random_bytes(KEY_BYTES))),
        )
        found = load(conn, [subject_id]).get(subject_id)
    if found is None:
        raise BlobError(f"subject {subject_id!r} vanished while it was made")
    if found.destroyed_at is not None:
        raise SubjectDestroyed(_gone(found) + "; allowed: another subject")
    return found


def load(conn: Connection, subject_ids: Iterable[str]) -> dict[str, Subject]:
    """Those of the subjects that exist, the destroyed among them, by id; the public one always does.

    Raises:
        SettingsError: a key is wrapped by a key that this connection does not know.
    """
    wanted = set(subject_ids)
    found = {PUBLIC: PUBLIC_SUBJECT} if PUBLIC in wanted else {}
    private = sorted(wanted - {PUBLIC})
    if not private:
        return found
    try:
        rows = conn.execute(
            "SELECT subject_id, salt, key, destroyed_at FROM subject WHERE subject_id = ANY (%s)", (private,), prepare=True
        ).fetchall()
    except psycopg.errors.InsufficientPrivilege as error:
        raise BlobError(f"content of subject {private[0]!r} is closed to this role: it may not read subjects' keys") from error
    return found | {row[0]: opened(conn, *row) for row in rows}


def opened(conn: Connection, subject_id: str, salt: bytes | None, key: bytes | None, destroyed_at: datetime | None) -> Subject:
    """The subject in a row of its table; without a row, as for the public one, a subject with neither salt nor key.

    Raises:
        SettingsError: its key is wrapped by a key that this connection does not know.
    """
    if destroyed_at is not None:
        return Subject(subject_id, b"", None, destroyed_at)
    return Subject(subject_id, _unwrapped(conn, subject_id, salt) or b"", _unwrapped(conn, subject_id, key))


def destroyed(conn: Connection) -> dict[str, datetime]:
    """Id of every shredded subject to the time at which its salt and key were destroyed."""
    rows = conn.execute("SELECT subject_id, destroyed_at FROM subject WHERE destroyed_at IS NOT NULL ORDER BY destroyed_at, subject_id")
    return {str(subject_id): gone for subject_id, gone in rows}


def read_kek(path: Path | None) -> bytes | None:
    """The key that wraps subjects' keys, from a file of 64 hexadecimal digits; None for no file.

    Raises:
        SettingsError: the file cannot be read or holds something else.
    """
    if path is None:
        return None
    try:
        text = path.read_text(encoding="ascii").strip()
        key = bytes.fromhex(text)
    except (OSError, ValueError) as error:
        raise SettingsError(f"TALLY_SUBJECT_KEK_FILE {path}: {type(error).__name__}; allowed: a file of 64 hexadecimal digits") from error
    if len(key) != KEY_BYTES:
        raise SettingsError(f"TALLY_SUBJECT_KEK_FILE {path} holds {len(text)} digits; allowed: 64 hexadecimal digits")
    return key


class _Codec(threading.local):
    """A compressor and a decompressor for each thread: they are made once, and none may be shared."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_CODEC = _Codec()


@lru_cache(maxsize=1024)
def _keyed(key: bytes) -> tuple[AESGCM, "hashlib.blake2b"]:
    """The cipher of a key, and the digest that makes its nonces under a key of its own."""
    return AESGCM(key), hashlib.blake2b(digest_size=NONCE_BYTES, key=hashlib.sha256(b"tallystick/nonce/1" + key).digest())


def _named(kind: str, ident: bytes, codec: int) -> bytes:
    return b"%s\0%d\0%s" % (kind.encode(), codec, ident)


def _wrapped(conn: Connection, secret: bytes) -> bytes:
    kek = getattr(conn, "kek", None)
    return secret if kek is None else aes_key_wrap(kek, secret)


def _unwrapped(conn: Connection, subject_id: str, stored: Any) -> bytes | None:
    if stored is None or len(stored) != WRAPPED_BYTES:
        return None if stored is None else bytes(stored)
    kek = getattr(conn, "kek", None)
    if kek is None:
        raise SettingsError(
            f"the key of subject {subject_id!r} is wrapped; TALLY_SUBJECT_KEK_FILE must name the file with the key around it"
        )
    try:
        return aes_key_unwrap(kek, bytes(stored))
    except InvalidUnwrap as error:
        raise SettingsError(f"the key of subject {subject_id!r} is wrapped by another key than that of TALLY_SUBJECT_KEK_FILE") from error


def _gone(subject: Subject) -> str:
    assert subject.destroyed_at is not None
    return f"subject {subject.subject_id!r} was shredded at {subject.destroyed_at.isoformat()}"
