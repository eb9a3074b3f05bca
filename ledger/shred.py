"""Shredding: a subject's salt and key are destroyed, what was encrypted under them is unreadable for good. Writes the database."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

import psycopg

from ledger import store, subjects
from ledger.errors import BlobError, InvalidEvent, RoleError, UnknownId
from ledger.events import SubjectShredded
from ledger.ledger import LedgerHandle

REASONS: tuple[str, ...] = get_args(SubjectShredded.model_fields["reason"].annotation)


@dataclass(frozen=True)
class Shredded:
    """What became unreadable: blobs and their plaintext bytes, token rows and packs; names of actors that were deleted.

    Attributes:
        subject_id: pseudonym.
        destroyed_at: when its salt and key were destroyed.
        before: whether that was done by an earlier call.
    """

    subject_id: str
    destroyed_at: datetime
    before: bool
    blobs: int
    bytes: int
    tokens: int
    names: int


def shred(ledger: LedgerHandle, subject_id: str, *, reason: str) -> Shredded:
    """What became unreadable. The event and the destruction commit together; a second call finds both done.

    Args:
        ledger: opened by a login that acts as the owner.
        subject_id: pseudonym, such as `project:demo` or `actor:person-<id>`.
        reason: one of `REASONS`: a code, because the event outlives what it speaks of.
    Raises:
        UnknownId: no such subject.
        InvalidEvent: public content is nobody's, or the reason is not one of those.
        RoleError: the login may not destroy keys.
    """
    if subject_id == subjects.PUBLIC:
        raise InvalidEvent("subject 'public' has no key; allowed: a subject of its own")
    if reason not in REASONS:
        raise InvalidEvent(f"reason {reason!r}; allowed: {', '.join(REASONS)}")
    with ledger.connection() as conn:
        row = conn.execute("SELECT destroyed_at FROM subject WHERE subject_id = %s", (subject_id,)).fetchone()
        if row is None:
            raise UnknownId(f"no subject {subject_id!r} in this ledger")
        names, before = 0, row[0] is not None
        if not before:
            body = SubjectShredded.model_validate({"subject_id": subject_id, "reason": reason})
            receipt = store.append(conn, ledger.ledger_id, ledger.project, [ledger.new(body)])
            names = _destroy(conn, subject_id, receipt.events[0].event_id)
    with ledger.pool.connection() as conn:
        if not before:
            # The old row with the key stays in the table's file until the table is written anew.
            conn.execute("VACUUM (FULL) subject")
            conn.execute("VACUUM actor")
        return _report(conn, subject_id, before, names)


def _destroy(conn: psycopg.Connection[Any], subject_id: str, event_id: str) -> int:
    try:
        row = conn.execute("SELECT names FROM destroy_subject(%s, %s)", (subject_id, event_id)).fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise RoleError(
            f"{error.diag.message_primary}; allowed: a login that acts as the owner (`tally roles --login owner:NAME=VARIABLE`)"
        ) from error
    return 0 if row is None else int(row[0])


def _report(conn: psycopg.Connection[Any], subject_id: str, before: bool, names: int) -> Shredded:
    row = conn.execute(
        "SELECT s.destroyed_at, count(b.blob_id), coalesce(sum(b.size), 0)::bigint,"
        " (SELECT count(*) FROM token_live AS t WHERE t.subject_id = s.subject_id)"
        " + (SELECT coalesce(sum(p.calls), 0) FROM token_pack AS p WHERE p.subject_id = s.subject_id)"
        " FROM subject AS s LEFT JOIN blob AS b USING (subject_id) WHERE s.subject_id = %s GROUP BY s.subject_id",
        (subject_id,),
    ).fetchone()
    if row is None or row[0] is None:
        raise BlobError(f"subject {subject_id!r} was to be destroyed and is not")
    return Shredded(subject_id, row[0], before, int(row[1]), int(row[2]), int(row[3]), names)
