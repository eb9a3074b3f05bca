"""Dagster's own database in a backup: dumped and restored by PostgreSQL's programs, since its tables are not ours. Runs programs."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ledger import embedded
from ledger.backup_files import Writer, pieces
from ledger.errors import BackupError, EmbeddedPostgresError
from ledger.settings import Settings

DATABASE = "dagster"
DUMP = "dagster.dump.zst"
_NEWEST_MAJOR = 25


def database(settings: Settings, *, make: bool = False) -> str | None:
    """URL of Dagster's database; None when there is none, unless it shall be made."""
    if settings.dagster_database_url is not None:
        return settings.dagster_database_url
    home = settings.data_dir / "postgres"
    if not make and embedded.status(home).state != "running":
        return None
    server = embedded.start(home)
    if make:
        return embedded.ensure_database(server, DATABASE)
    with psycopg.connect(server.url("postgres")) as conn:
        found = conn.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
    return None if found is None else server.url(DATABASE)


def dump(settings: Settings, writer: Writer) -> list[str]:
    """What could not be copied and why: nothing when the database is in the backup or there is none.

    Raises:
        BackupError: the database cannot be reached or read.
    """
    url = database(settings)
    if url is None:
        return []
    major, tables = _server(url)
    if tables == 0:
        return []
    program = find_program("pg_dump", major)
    if program is None:
        return [f"Dagster's database: no pg_dump of PostgreSQL {major} or newer on this machine"]
    target, secret = _connection(url)
    command = [str(program), "--format=custom", "--compress=0", "--no-owner", "--no-privileges", f"--dbname={target}"]
    with writer.file(DUMP) as write, subprocess.Popen(command, env=secret, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while piece := process.stdout.read(1 << 20):
            write(piece)
        said = process.stderr.read().decode("utf-8", "replace").strip()
    if process.returncode != 0:
        raise BackupError(f"{program} of Dagster's database ended with {process.returncode}: {said}")
    return []


def check_target(settings: Settings) -> str:
    """URL of the database that Dagster's shall be restored to, made if it is on the embedded server.

    Raises:
        BackupError: it holds tables, or there is no pg_restore for it.
    """
    url = database(settings, make=True)
    assert url is not None
    major, tables = _server(url)
    if tables:
        raise BackupError(f"Dagster's database has {tables} tables; expected an empty one (or restore with --no-dagster)")
    if find_program("pg_restore", major) is None:
        raise BackupError(f"no pg_restore of PostgreSQL {major} or newer on this machine; expected one (or restore with --no-dagster)")
    return url


def load(url: str, file: Path) -> None:
    """Restore the dump into the empty database of this URL, all of it or nothing.

    Raises:
        BackupError: pg_restore failed.
    """
    program = find_program("pg_restore", _server(url)[0])
    target, secret = _connection(url)
    command = [str(program), "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error", f"--dbname={target}"]
    with subprocess.Popen(command, env=secret, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            for piece in pieces(file):
                process.stdin.write(piece)
            process.stdin.close()
        except BrokenPipeError:
            # The program has ended; what it said follows.
            pass
        said = process.stderr.read().decode("utf-8", "replace").strip()
    if process.returncode != 0:
        raise BackupError(f"{program} of Dagster's database ended with {process.returncode}: {said}")


def find_program(name: str, major: int) -> Path | None:
    """A program of PostgreSQL of this major version or newer, the nearest first: of the wheel, of the system, of the path."""
    found = [(version, path) for path in _candidates(name) if (version := _major(path)) is not None and version >= major]
    return min(found, key=lambda item: item[0])[1] if found else None


def _candidates(name: str) -> Iterable[Path]:
    try:
        yield embedded.bundled_binaries() / name
    except EmbeddedPostgresError:
        pass
    for major in range(15, _NEWEST_MAJOR):
        folder = embedded.system_binaries(major)
        if folder is not None:
            yield folder / name
    if path := shutil.which(name):
        yield Path(path)


def _major(program: Path) -> int | None:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    return int(found[1]) if done.returncode == 0 and found else None


def _server(url: str) -> tuple[int, int]:
    """Major version, and the number of tables in the database."""
    try:
        with psycopg.connect(url) as conn:
            row = conn.execute(
                "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
                " WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
            ).fetchone()
            return conn.info.server_version // 10000, 0 if row is None else int(row[0])
    except psycopg.OperationalError as error:
        raise BackupError(f"Dagster's database cannot be reached: {str(error).strip()}") from error


def _connection(url: str) -> tuple[str, dict[str, str]]:
    """A connection string without its password, which other users of the machine would see, and an environment with it."""
    values: dict[str, Any] = conninfo_to_dict(url)
    password = values.pop("password", None)
    return make_conninfo(**values), {**os.environ, **({} if password is None else {"PGPASSWORD": str(password)})}
