"""The revisions of the schema that this release's migrations know, and whether a database is at the last of them. Reads files."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from ledger.errors import SchemaMismatch

LOCATION = Path(__file__).resolve().parent.parent / "migrations"
_HEADER = re.compile(r'^revision: str = "(\w+)"\ndown_revision: str \| None = (?:"(\w+)"|None)$', re.MULTILINE)


@cache
def known_revisions() -> dict[str, str | None]:
    """Each revision with the one before it.

    Read from the heads of the files: alembic, which knows too, takes half a second to load, and every opening of a ledger asks.
    """
    return {found[1]: found[2] for path in sorted(LOCATION.glob("versions/*.py")) for found in _HEADER.finditer(path.read_text("utf-8"))}


def head_revision() -> str:
    """The revision that this release needs.

    Raises:
        SchemaMismatch: the migrations are missing.
    """
    heads = set(known_revisions()) - set(known_revisions().values())
    if not heads:
        raise SchemaMismatch(f"no migrations in {LOCATION}")
    return max(heads)


def check_schema(conn: "psycopg.Connection[Any]") -> None:
    """Return when the database is at this release's revision.

    Raises:
        SchemaMismatch: it is behind, ahead or empty, and what to do about it.
    """
    exists = conn.execute("SELECT to_regclass('alembic_version')").fetchone()
    row = None if exists is None or exists[0] is None else conn.execute("SELECT version_num FROM alembic_version").fetchone()
    current, head = (None if row is None else str(row[0])), head_revision()
    if current == head:
        return
    if current is None or current in known_revisions():
        raise SchemaMismatch(f"the database is at revision {current or 'none'}; this release needs {head}: run `tally migrate`")
    raise SchemaMismatch(ahead(current))


def ahead(current: str) -> str:
    """What is said of a database at a revision that this release does not know."""
    return f"the database is at revision {current}, ahead of this release, which knows up to {head_revision()}: install a newer Tallystick"
