"""Whose the token bytes in the database are, and the one place where they pass on their way in and out. Reads the database."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from ledger.blobs import PUBLIC


@dataclass(frozen=True)
class TokenSubject:
    """A subject by id with the salt of its commitments, which is None once it was destroyed."""

    subject_id: str
    salt: bytes | None = field(repr=False)


def load(conn: psycopg.Connection[Any], subject_ids: Iterable[str]) -> dict[str, TokenSubject]:
    """Those of the subjects that exist, the destroyed among them, by id; the public one always does."""
    wanted = set(subject_ids)
    found = {PUBLIC: TokenSubject(PUBLIC, b"")} if PUBLIC in wanted else {}
    private = sorted(wanted - {PUBLIC})
    if private:
        rows = conn.execute("SELECT subject_id, salt FROM subject WHERE subject_id = ANY (%s)", (private,)).fetchall()
        found |= {str(name): TokenSubject(str(name), None if salt is None else bytes(salt)) for name, salt in rows}
    return found


def encode(subject: TokenSubject, kind: str, ident: bytes, plain: bytes) -> bytes:
    """The bytes to store for `plain`, which is a column of `token_live` or a pack as `kind` says, of the row that `ident` names."""
    return plain


def decode(subject: TokenSubject, kind: str, ident: bytes, stored: bytes) -> bytes:
    """What `encode` was given for the same subject, kind and ident."""
    return stored
