"""Looks a deployment over and says what is fine, what is worth a look and what is broken; changes nothing. Reads the database and disks."""

import platform
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from ledger import backup_dagster, blobs, embedded, measure, measure_server
from ledger import doctor_checks as judge
from ledger.connect import DATABASE
from ledger.doctor_checks import Check
from ledger.errors import EmbeddedPostgresError
from ledger.measure_server import Connection, Facts
from ledger.revisions import head_revision
from ledger.settings import Settings, public_settings, without_password

CONNECT_S = 10
Probe = tuple[str, Callable[[Connection], Check]]


def examine(settings: Settings, *, now: Callable[[], datetime], deep: bool = False) -> list[Check]:
    """Every check, in a fixed order; what could not be measured is `unknown`, with the reason.

    Args:
        settings: of the deployment; its embedded server is looked at, not started.
        now: this machine's clock.
        deep: whether to compare every index with its table, which reads all of both.
    """
    shown = ", ".join(f"{name} {value}" for name, value in public_settings(settings).items() if value is not None)
    checks = [Check("settings", "ok", shown), *_disks("disk of the data folder", settings.data_dir)]
    url, reached = _server(settings)
    if url is None:
        return [*checks, reached]
    try:
        conn = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_S, application_name="tally doctor")
    except psycopg.OperationalError as error:
        return [*checks, Check("server", "fail", f"{without_password(url)}: {str(error).strip()}", "start it, or mend TALLY_DATABASE_URL")]
    with conn:
        facts, here = measure_server.facts(conn), now()
        checks += [reached, *_of_server(facts, settings, here)]
        probes = [*_SERVER, *(_LOG if facts.revision == head_revision() else ()), *(_DEEP if deep else ())]
        checks += [_probed(conn, probe) for probe in probes]
    return [*checks, *_dagster(settings)]


def _server(settings: Settings) -> tuple[str | None, Check]:
    if settings.database_url is not None:
        return settings.database_url, Check("server", "ok", without_password(settings.database_url))
    try:
        found = embedded.status(settings.data_dir / "postgres")
        if found.state != "running":
            return None, Check("server", "fail", f"embedded, {found.state}: {found.detail}", "run `tally db start`")
        url = embedded.start(settings.data_dir / "postgres").url(DATABASE)
    except EmbeddedPostgresError as error:
        return None, Check("server", "fail", f"embedded: {error}", "see the end of its log below the data folder")
    return url, Check("server", "ok", f"embedded, running, pid {found.pid}: {found.detail}")


def _of_server(facts: Facts, settings: Settings, here: datetime) -> Iterator[Check]:
    software = {"Tallystick": version("tallystick"), "Python": platform.python_version(), "psycopg": psycopg.__version__}
    yield judge.versions(facts, software, head_revision())
    yield judge.durability(facts)
    yield judge.encoding(facts)
    yield judge.writable(facts)
    yield judge.clock(facts, here)
    folder = facts.settings.get("data_directory")
    # On another machine the path names nothing here, or something else: only our own server is surely local.
    if settings.database_url is None and folder is not None:
        yield from _disks("disk of the server", Path(folder))


def _disks(what: str, folder: Path) -> Iterator[Check]:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        yield Check(what, "unknown", f"{folder}: {error.strerror}")
        return
    yield judge.disk(what, usage.free, usage.total)


def _probed(conn: Connection, probe: Probe) -> Check:
    name, look = probe
    try:
        return look(conn)
    except psycopg.Error as error:
        return Check(name, "unknown", str(error).strip().splitlines()[0], "give this login the right to see it, or ask as its owner")


def _tables() -> tuple[str, ...]:
    from ledger.tables import APPEND_ONLY

    return APPEND_ONLY


def _sealing(conn: Connection) -> Check:
    return judge.sealing(measure.order(conn), measure.seal(conn))


def _read_models(conn: Connection) -> Check:
    return judge.read_models(measure.order(conn), measure.projections(conn))


_SERVER: tuple[Probe, ...] = (
    ("connections", lambda conn: judge.connections(measure_server.connections(conn))),
    ("sessions", lambda conn: judge.sessions(measure_server.sessions(conn))),
    ("pages", lambda conn: judge.pages(measure_server.checksum_failures(conn))),
)
_LOG: tuple[Probe, ...] = (
    ("login", lambda conn: judge.login(measure_server.login(conn, _tables()))),
    ("guards", lambda conn: judge.guards(measure_server.unguarded(conn, _tables()))),
    ("ordering", lambda conn: judge.ordering(measure.order(conn))),
    ("holes", lambda conn: judge.holes(measure.order(conn))),
    ("sealing", _sealing),
    ("read models", _read_models),
    ("tokens", lambda conn: judge.tokens(measure.staged(conn))),
    ("orphan blobs", lambda conn: judge.orphans(*blobs.orphans(conn))),
    ("partitions", lambda conn: judge.partitions(measure.room(conn))),
)
_DEEP: tuple[Probe, ...] = (("indexes", lambda conn: judge.indexes(measure_server.indexes(conn))),)


def _dagster(settings: Settings) -> list[Check]:
    home = settings.data_dir / "dagster"
    if not home.is_dir() and settings.dagster_database_url is None:
        return []
    try:
        url = backup_dagster.database(settings)
        if url is None:
            return [Check("dagster", "warn", f"{home}, and no database", "run `tally dagster` once; it makes its database")]
        with psycopg.connect(url, connect_timeout=CONNECT_S) as conn:
            row: Any = conn.execute(
                "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
            ).fetchone()
    except (psycopg.Error, EmbeddedPostgresError) as error:
        return [Check("dagster", "fail", str(error).strip(), "start its server, or mend TALLY_DAGSTER_DATABASE_URL")]
    return [Check("dagster", "ok", f"{home}, database {without_password(url)} with {row[0]} tables")]
