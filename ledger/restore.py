"""A backup made a ledger again, in an empty database, and proved to be the same log before it is committed. Writes the database."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from ledger import backup_dagster
from ledger.backup import columns_of
from ledger.backup_files import Manifest, Progress, check_files, pieces, read_manifest
from ledger.errors import BackupError, LedgerUnavailable
from ledger.ledger import LedgerHandle
from ledger.log_root import Connection, LogProof, prove
from ledger.settings import Settings, without_password

Step = Callable[[Connection, Manifest], None]
FIRST = ("order_step",)
"""Loaded before the partitions are made: it says how far positions reach."""


@dataclass(frozen=True)
class Restored:
    """What was restored: the log as derived from the new rows, the files written, and those that were here already and differ."""

    manifest: Manifest
    log: LogProof
    written: tuple[str, ...]
    kept: tuple[str, ...]


def restore(
    folder: Path,
    url: str,
    settings: Settings,
    *,
    dagster: bool = True,
    finish: Step | None = None,
    progress: Progress = lambda done, total: None,
) -> Restored:
    """The ledger of a backup in the database of `url`; it appears all at once, or not at all.

    Args:
        folder: of the backup.
        url: of an empty database.
        settings: of the deployment that gets the files and Dagster's database.
        dagster: whether to restore Dagster's database too.
        finish: called in the loading transaction once the log is proved, to change what a restored ledger says of itself.
        progress: called with bytes checked and loaded so far and how many there are.
    Raises:
        BackupError: the backup is damaged, the database is not empty, or the restored log is not the one that was backed up.
        SchemaMismatch: the backup is of a newer release.
        LedgerUnavailable: the database cannot be reached.
    """
    # Only this needs what it takes half a second to load.
    from sqlalchemy.exc import OperationalError

    from ledger.migrate import upgrade

    manifest = read_manifest(folder)
    total = 2 * manifest.bytes
    check_files(folder, manifest, progress=lambda done, _: progress(done, total))
    try:
        with psycopg.connect(url) as conn:
            _refuse_tables(conn)
        dagster_url = backup_dagster.check_target(settings) if dagster and backup_dagster.DUMP in manifest.files else None
        upgrade(url, manifest.revision, partition_width=manifest.partition_width)
        with psycopg.connect(url, options="-c synchronous_commit=on") as conn:
            proved = _load(conn, folder, manifest, lambda done: progress(manifest.bytes + done, total))
            if finish is not None:
                finish(conn, manifest)
        upgrade(url)
    except (psycopg.OperationalError, OperationalError) as error:
        raise LedgerUnavailable(f"{without_password(url)}: {str(error).strip()}") from error
    written, kept = _write_files(folder, manifest, settings)
    if dagster_url is not None:
        backup_dagster.load(dagster_url, folder / backup_dagster.DUMP)
    return Restored(manifest, proved, written, kept)


def check(folder: Path, ledger: LedgerHandle, *, progress: Progress = lambda done, total: None) -> Manifest:
    """The manifest of a backup whose files are whole and whose log this ledger continues.

    Raises:
        BackupError: the first thing that does not fit.
    """
    manifest = read_manifest(folder)
    check_files(folder, manifest, progress=progress)
    with ledger.connection() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        _refuse_other_log(manifest, prove(conn, manifest.log.size))
    return manifest


def _refuse_tables(conn: Connection) -> None:
    """An interrupted restore leaves empty tables of ours, which are as good as none."""
    rows = conn.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')"
    ).fetchall()
    names = {str(row[0]) for row in rows}
    if not names:
        return
    if not {"ledger", "alembic_version"} <= names:
        raise BackupError(f"the database has {len(names)} tables, such as {min(names)!r}; expected an empty one")
    _refuse_ledger(conn)


def _refuse_ledger(conn: Connection) -> None:
    row = conn.execute("SELECT ledger_id FROM ledger").fetchone()
    if row is not None:
        raise BackupError(f"the database holds ledger {row[0]}; expected an empty database")


def _load(conn: Connection, folder: Path, manifest: Manifest, progress: Callable[[int], None]) -> LogProof:
    # Whoever opens the ledger meanwhile waits here for what it would otherwise write itself: a genesis.
    conn.execute("LOCK TABLE ledger IN SHARE ROW EXCLUSIVE MODE")
    _refuse_ledger(conn)
    for name, value in manifest.sequences.items():
        conn.execute("SELECT setval(%s::regclass, %s)", (name, value))
    done = 0
    for name in (*FIRST, *sorted(manifest.tables.keys() - set(FIRST))):
        _load_table(conn, folder, manifest, name)
        if name in FIRST:
            conn.execute("SELECT extend_partitions()")
        done += manifest.files[manifest.tables[name].file].bytes
        progress(done)
    # Whoever held an id that the copy does not have is gone with its server, and so are the transaction ids that it was known by.
    conn.execute(
        "INSERT INTO order_step (step, high, position, ordered, holes, hole_bounds, dead)"
        " SELECT step + 1, high, position, 0, holes, array_fill(0::bigint, ARRAY[cardinality(holes)]), dead"
        " FROM (SELECT * FROM order_step ORDER BY step DESC LIMIT 1) AS last WHERE cardinality(holes) > 0"
    )
    for sequence, numbers in (("event_id_seq", "SELECT max(id) FROM event"), ("blob_no_seq", "SELECT max(blob_no) FROM blob")):
        row = conn.execute(numbers).fetchone()
        if row is not None and row[0] is not None and row[0] > manifest.sequences.get(sequence, 0):
            raise BackupError(f"{sequence} is at {manifest.sequences.get(sequence, 0)} in the manifest, and number {row[0]} is taken")
    proved = prove(conn, manifest.log.size)
    _refuse_other_log(manifest, proved)
    return proved


def _load_table(conn: Connection, folder: Path, manifest: Manifest, name: str) -> None:
    table = manifest.tables[name]
    if columns_of(conn, name) != table.columns:
        raise BackupError(f"table {name} has columns {', '.join(columns_of(conn, name))} at revision {manifest.revision};"
                          f" the backup has {', '.join(table.columns)}")  # fmt: skip
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, table.columns))
    )
    try:
        with conn.cursor() as cursor:
            with cursor.copy(statement) as stream:
                for piece in pieces(folder / table.file):
                    stream.write(piece)
            loaded = cursor.rowcount
    except psycopg.Error as error:
        if isinstance(error, psycopg.OperationalError):
            raise
        raise BackupError(f"table {name}: {str(error).strip()}") from error
    if loaded != table.rows:
        raise BackupError(f"table {name} has {loaded} rows; the manifest says {table.rows}")


def _refuse_other_log(manifest: Manifest, seen: LogProof) -> None:
    if seen != manifest.log:
        raise BackupError(f"this is not the log that was backed up: seen {seen}; the manifest says {manifest.log}")


def _write_files(folder: Path, manifest: Manifest, settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Files that were written, and those that exist with other content: what is published is never overwritten by what is older."""
    written, kept = [], []
    for name in sorted(manifest.files):
        if not name.startswith("files/"):
            continue
        target = settings.data_dir / name.removeprefix("files/").removesuffix(".zst")
        if not target.resolve().is_relative_to(settings.data_dir):
            raise BackupError(f"{name} lies outside of the data folder")
        data = b"".join(pieces(folder / name))
        if target.exists():
            if target.read_bytes() != data:
                kept.append(str(target))
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        written.append(str(target))
    return tuple(written), tuple(kept)
