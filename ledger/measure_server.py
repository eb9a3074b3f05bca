"""What the server under a ledger says of itself: settings, sessions, owners, guards, checksums, indexes. Reads the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]
SETTINGS = ("synchronous_commit", "fsync", "full_page_writes", "data_checksums", "max_connections", "server_encoding", "TimeZone",
            "default_transaction_read_only", "synchronous_standby_names", "statement_timeout", "data_directory")  # fmt: skip
LONG_S = 600.0
"""Transactions open for longer are listed."""


@dataclass(frozen=True)
class Facts:
    """Version such as 180006, settings by name (a hidden one is missing), the schema's revision, and the server's clock."""

    version: int
    settings: dict[str, str]
    revision: str | None
    clock: datetime


@dataclass(frozen=True)
class Connections:
    """Sessions of clients, and how many there may be."""

    used: int
    most: int


@dataclass(frozen=True)
class Session:
    """A session whose transaction has been open for long."""

    pid: int
    application: str
    state: str
    open_s: float


@dataclass(frozen=True)
class Login:
    """Who asks: its name, whether it is a superuser, and which tables of the log it owns."""

    name: str
    superuser: bool
    owns: tuple[str, ...]


@dataclass(frozen=True)
class Indexes:
    """Indexes looked at by amcheck, and what it found; None where the extension is not installed."""

    checked: int
    faults: tuple[str, ...]


def facts(conn: Connection) -> Facts:
    """Version, settings and revision."""
    rows = conn.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", (list(SETTINGS),)).fetchall()
    settings = {str(name): str(setting) for name, setting in rows}
    # This connection asks for its own durability; what counts here is what others get.
    reset = conn.execute("SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'").fetchone()
    settings["synchronous_commit"] = str(reset[0]) if reset else settings["synchronous_commit"]
    exists = conn.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
    row = conn.execute("SELECT version_num FROM alembic_version").fetchone() if exists and exists[0] else None
    clock = conn.execute("SELECT clock_timestamp()").fetchone()
    assert clock is not None
    return Facts(conn.info.server_version, settings, None if row is None else str(row[0]), clock[0])


def connections(conn: Connection) -> Connections:
    """How many sessions there are."""
    row = conn.execute(
        "SELECT (SELECT sum(numbackends) FROM pg_stat_database), current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int"
    ).fetchone()
    assert row is not None
    return Connections(int(row[0]), int(row[1]))


def sessions(conn: Connection) -> list[Session]:
    """Sessions on this database with a transaction open for long, the oldest first."""
    rows = conn.execute(
        "SELECT pid, coalesce(application_name, ''), coalesce(state, 'hidden'), extract(epoch FROM clock_timestamp() - xact_start)::float8"
        " FROM pg_stat_activity WHERE datname = current_database() AND xact_start < clock_timestamp() - make_interval(secs => %s)"
        " ORDER BY xact_start",
        (LONG_S,),
    ).fetchall()
    return [Session(*row) for row in rows]


def login(conn: Connection, tables: Sequence[str]) -> Login:
    """Whose login this is, and what it owns of these tables."""
    row = conn.execute(
        "SELECT current_user::text, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),"
        " (SELECT coalesce(array_agg(t.name ORDER BY t.name), '{}') FROM unnest(%s::text[]) AS t (name) JOIN pg_class AS c"
        " ON c.oid = to_regclass(t.name) WHERE pg_has_role(current_user, c.relowner, 'MEMBER'))",
        (list(tables),),
    ).fetchone()
    assert row is not None
    return Login(str(row[0]), bool(row[1]), tuple(row[2]))


def unguarded(conn: Connection, tables: Sequence[str]) -> list[str]:
    """Tables and partitions whose guard against changes is missing or switched off."""
    rows = conn.execute(
        "SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.oid IN"
        " (SELECT to_regclass(t) FROM unnest(%s::text[]) AS t UNION"
        "  SELECT p.relid FROM unnest(%s::text[]) AS t, pg_partition_tree(to_regclass(t)) AS p)"
        " AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = c.oid AND g.tgname = 'append_only' AND g.tgenabled IN ('O', 'A'))"
        " ORDER BY 1",
        (list(tables), list(tables)),
    ).fetchall()
    return [str(row[0]) for row in rows]


def checksum_failures(conn: Connection) -> int | None:
    """Pages of this database and of shared tables that did not fit their checksum; None where there are none to fit."""
    row = conn.execute(
        "SELECT sum(checksum_failures) FROM pg_stat_database WHERE datname = current_database() OR datname IS NULL"
    ).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def indexes(conn: Connection) -> Indexes | None:
    """What amcheck says of every B-tree index here, each compared with its table; None where it is not installed."""
    if conn.execute("SELECT FROM pg_extension WHERE extname = 'amcheck'").fetchone() is None:
        return None
    found = conn.execute(
        "SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam JOIN pg_index AS i ON i.indexrelid = c.oid"
        " WHERE c.relkind = 'i' AND a.amname = 'btree' AND i.indisvalid AND c.relnamespace = current_schema()::regnamespace ORDER BY 1"
    ).fetchall()
    faults = []
    for (name,) in found:
        try:
            conn.execute("SELECT bt_index_check(%s::regclass, heapallindexed => true)", (name,))
        except (psycopg.errors.IndexCorrupted, psycopg.errors.DataCorrupted) as error:
            faults.append(f"{name}: {str(error).strip().splitlines()[0]}")
    return Indexes(len(found), tuple(faults))
