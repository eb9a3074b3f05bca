"""Makes a PostgreSQL data directory in one visible step and says how its server is to be run."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from ledger.embedded.account import Account, run_as
from ledger.embedded.binaries import Binaries
from ledger.embedded.home import Layout, sync_directory
from ledger.embedded.process import end_makers, mark
from ledger.errors import EmbeddedPostgresError

SUPERUSER = "tallystick"
HOST = "127.0.0.1"
_PREFIX = ".initdb-"

# What a person may change in postgresql.conf; what the ledger's promises need is on the command line, where ALTER SYSTEM cannot undo it.
_TUNABLE = """
# Tallystick
max_connections = 200
shared_buffers = '256MB'
effective_cache_size = '1GB'
work_mem = '16MB'
maintenance_work_mem = '128MB'
max_wal_size = '2GB'
wal_compression = pglz
max_locks_per_transaction = 256
random_page_cost = 1.1
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] '
"""

# Statements, parameters and DETAIL lines stay out of the log: they would hold text that the ledger must be able to make unreadable.
_FIXED = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "logging_collector": "off",
    "log_destination": "stderr",
    "lc_messages": "C",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


def initialise(layout: Layout, binaries: Binaries, password: str) -> None:
    """Makes the data directory under another name and renames it when it is complete, so that half of one is never used.

    Raises:
        EmbeddedPostgresError: initdb failed; its last lines say why.
    """
    parent = layout.data_dir.parent
    for left in parent.glob(f"{_PREFIX}*"):
        _discard(left)
    work = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        fresh, secret = work / "data", work / "password"
        fresh.mkdir(0o700)
        secret.touch(0o600)
        secret.write_text(password + "\n")
        for path in (secret, fresh, work):
            _give(path, layout.account)
        done = run_as(layout.account, _initdb_command(binaries, fresh, secret))
        if done.returncode != 0:
            last = "\n".join(done.stdout.strip().splitlines()[-12:])
            raise EmbeddedPostgresError(f"initdb for {layout.data_dir} ended with {done.returncode}:\n{last}")
        with (fresh / "postgresql.conf").open("a") as file:
            file.write(_TUNABLE)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(layout.data_dir)
        sync_directory(parent)
    finally:
        _discard(work)


def check_cluster(data_dir: Path, binaries: Binaries) -> None:
    """Refuses a directory that is no data directory or that another major version made.

    Raises:
        EmbeddedPostgresError: with the version or the file that is wrong.
    """
    version = data_dir / "PG_VERSION"
    if not version.is_file() or not (data_dir / "global" / "pg_control").is_file():
        raise EmbeddedPostgresError(f"{data_dir} is no complete data directory: PG_VERSION or global/pg_control is missing")
    made_by = version.read_text().strip()
    if made_by != str(binaries.major):
        raise EmbeddedPostgresError(f"{data_dir} was made by PostgreSQL {made_by}, but {binaries.folder} is {binaries.version}")


def server_command(layout: Layout, binaries: Binaries, port: int) -> list[str]:
    """The command line of the server: programs, data directory, port, name in the process list, and the settings that must hold."""
    settings = {**_FIXED, "port": str(port), "cluster_name": mark(layout.data_dir)}
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return [str(binaries.folder / "postgres"), "-D", str(layout.data_dir), *flags]


def _initdb_command(binaries: Binaries, fresh: Path, secret: Path) -> list[str]:
    command = [str(binaries.folder / "initdb"), "-D", str(fresh), "-U", SUPERUSER, f"--pwfile={secret}", "--auth=scram-sha-256"]
    command += ["--encoding=UTF8", "--locale=C", "--text-search-config=english", "--data-checksums", "--no-instructions"]
    # The builtin provider orders by code point like C, yet knows the case of all letters, whatever locales the machine has.
    return [*command, "--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if binaries.major >= 17 else command


def _discard(work: Path) -> None:
    """Removes what initdb left; what cannot be removed now goes at the next attempt and is never used."""
    end_makers(work)
    deadline = time.monotonic() + 5.0
    shutil.rmtree(work, ignore_errors=True)
    # A backend whose initdb was killed may write for a moment more.
    while work.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
        shutil.rmtree(work, ignore_errors=True)


def _give(path: Path, account: Account | None) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)
