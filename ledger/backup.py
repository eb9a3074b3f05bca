"""A consistent copy of a ledger under running writers, into a folder that proves itself. Reads the database, writes the folder."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from psycopg import sql

from ledger import backup_dagster
from ledger.backup_files import Manifest, Progress, Table, Writer, new_folder, write_manifest
from ledger.checkpoint import vkey
from ledger.errors import BackupError
from ledger.ledger import LedgerHandle
from ledger.log_root import Connection, prove
from ledger.seal_files import read_key
from ledger.settings import Settings, public_settings

FOLDERS = ("dagster",)
"""Below the data folder: Dagster's home."""
SECRET = b"PRIVATE"
"""Stands in every textual form of a private key (PEM, C2SP); a file that holds it is never part of a backup."""
_LOOKED_AT = 64 * 1024


@dataclass(frozen=True)
class _Source:
    writer: Writer
    progress: Progress
    total: int


def backup(
    ledger: LedgerHandle, settings: Settings, folder: Path, *, now: datetime, progress: Progress = lambda done, total: None
) -> Manifest:
    """What was copied: every table of the log as of one moment, and what belongs to it outside the ledger's database.

    Read models are left out: they are folded again from the log. So is the key that signs checkpoints (`export_key`).

    Args:
        ledger: to copy; everything committed before the call is ordered first.
        settings: of the deployment, for its files and Dagster's database.
        folder: to be made; it appears when it is whole.
        now: time that the manifest states.
        progress: called with bytes copied so far and how many are expected.
    Raises:
        BackupError: the folder exists or cannot be written, or Dagster's database cannot be copied.
    """
    ledger.barrier()
    with new_folder(folder) as work:
        writer = Writer(work)
        with ledger.connection() as conn:
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            tables = log_tables()
            source = _Source(writer, progress, _expected_bytes(conn, tables))
            copied = _copy_tables(conn, source, tables)
            revision, width, server = _about(conn)
            log = prove(conn)
            # Sequences are outside of snapshots: read last, they are beyond every number in the copy.
            sequences = _sequences(conn)
        left_out = [f"{name}: holds a private key" for name in _copy_files(settings, writer)]
        if settings.seal_key.is_file() and log.checkpoint is not None:
            public = vkey(log.checkpoint.origin, read_key(settings.seal_key).public_key())
            with writer.file("files/keys/seal.vkey.zst") as write:
                write(f"{public}\n".encode())
        left_out += backup_dagster.dump(settings, writer)
        manifest = Manifest(
            version("tallystick"), now.isoformat(), server, revision, width, log, copied, sequences, writer.files,
            public_settings(settings), tuple(left_out),
        )  # fmt: skip
        write_manifest(work, manifest)
    return manifest


def log_tables() -> list[str]:
    """The tables that a backup holds, in the order of their names: all but the read models and their cursors."""
    from sqlmodel import SQLModel

    from ledger.tables import READ_MODELS, ProjectionCursor

    derived = {str(ProjectionCursor.__tablename__), *READ_MODELS}
    return sorted(set(SQLModel.metadata.tables) - derived)


def columns_of(conn: Connection, table: str) -> tuple[str, ...]:
    """Names of a table's columns, in order; none when there is no such table."""
    rows = conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum", (table,)
    ).fetchall()
    return tuple(str(row[0]) for row in rows)


def export_key(settings: Settings, target: Path) -> Path:
    """The file that the signing key was copied to, readable by its owner alone; it is kept apart from backups.

    Raises:
        BackupError: there is no key, or something of that name exists.
    """
    key = settings.seal_key
    try:
        data = key.read_bytes()
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise BackupError(f"{error.filename}: {error.strerror}; the signing key is {key} where this installation signs") from error
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return target


def _copy_tables(conn: Connection, source: _Source, tables: Sequence[str]) -> dict[str, Table]:
    copied, done = {}, 0
    for table in tables:
        columns, file = columns_of(conn, table), f"tables/{table}.copy.zst"
        statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT binary)").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(table)
        )
        with source.writer.file(file) as write, conn.cursor() as cursor:
            with cursor.copy(statement) as stream:
                for piece in stream:
                    write(bytes(piece))
                    done += len(piece)
                    source.progress(min(done, source.total), source.total)
            copied[table] = Table(file, columns, cursor.rowcount)
    return copied


def _expected_bytes(conn: Connection, tables: Sequence[str]) -> int:
    row = conn.execute(
        "SELECT coalesce(sum(pg_table_size(relid)), 0)::bigint FROM unnest(%s::text[]) AS n (name), pg_partition_tree(name::regclass)",
        (list(tables),),
    ).fetchone()
    return 0 if row is None else int(row[0])


def _about(conn: Connection) -> tuple[str, int, str]:
    row = conn.execute("SELECT version_num, partition_width(), current_setting('server_version') FROM alembic_version").fetchone()
    assert row is not None
    return str(row[0]), int(row[1]), str(row[2])


def _sequences(conn: Connection) -> dict[str, int]:
    rows: list[Any] = conn.execute(
        "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema() AND last_value IS NOT NULL"
    ).fetchall()
    return {str(name): int(value) for name, value in rows}


def _copy_files(settings: Settings, writer: Writer) -> list[str]:
    """Names of the files that were not copied because they hold a private key."""
    found = [path for folder in FOLDERS for path in sorted((settings.data_dir / folder).rglob("*"))]
    named = {path: str(path.relative_to(settings.data_dir)) for path in found} | {settings.witness: "checkpoints.txt"}
    secret = []
    for path, name in named.items():
        if not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as file:
            piece = file.read(_LOOKED_AT)
            if path == settings.seal_key or SECRET in piece:
                secret.append(name)
                continue
            with writer.file(f"files/{name}.zst") as write:
                while piece:
                    write(piece)
                    piece = file.read(1 << 20)
    return secret
