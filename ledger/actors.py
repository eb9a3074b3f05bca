"""The names behind pseudonyms: kept in one table that can be erased, because events hold only the pseudonyms. Writes the database."""

import secrets

from ledger.errors import InvalidEvent
from ledger.ids import uuid7
from ledger.ledger import LedgerHandle

MAX_NAME = 120


def note_actor(ledger: LedgerHandle, actor_id: str, name: str) -> None:
    """Remember the name behind a pseudonym; a later name replaces an earlier one.

    Raises:
        InvalidEvent: the name is empty, longer than 120 characters or not printable.
    """
    with ledger.connection() as conn:
        conn.execute(
            "INSERT INTO actor (actor_id, name) VALUES (%s, %s) ON CONFLICT (actor_id) DO UPDATE SET name = excluded.name",
            (actor_id, _checked(name)),
        )


def actor_names(ledger: LedgerHandle) -> dict[str, str]:
    """Pseudonym to name, of all that were noted and not erased."""
    with ledger.connection() as conn:
        return {str(row[0]): str(row[1]) for row in conn.execute("SELECT actor_id, name FROM actor ORDER BY actor_id")}


def person_named(ledger: LedgerHandle, name: str) -> str:
    """The pseudonym `person-<UUIDv7>` of the person of this name, made when first asked for; names differ by more than case and spacing.

    It is random and not derived from the name, so once the row is erased nothing tells whose it was.

    Raises:
        InvalidEvent: the name is empty, longer than 120 characters or not printable.
    """
    plain = _checked(name)
    with ledger.connection() as conn:
        # Two first decisions of one person at the same time must not become two persons.
        conn.execute("SELECT pg_advisory_xact_lock(74616, 5)")
        row = conn.execute(
            "SELECT actor_id FROM actor WHERE lower(name) = lower(%s) AND starts_with(actor_id, 'person-') ORDER BY actor_id LIMIT 1",
            (plain,),
        ).fetchone()
        if row is not None:
            return str(row[0])
        actor_id = f"person-{uuid7(secrets.token_bytes(10))}"
        conn.execute("INSERT INTO actor (actor_id, name) VALUES (%s, %s)", (actor_id, plain))
    return actor_id


def _checked(name: str) -> str:
    plain = " ".join(name.split())
    if not 0 < len(plain) <= MAX_NAME or not plain.isprintable():
        raise InvalidEvent(f"name {plain[:40]!r} has {len(plain)} characters; allowed: 1 to {MAX_NAME}, printable")
    return plain
