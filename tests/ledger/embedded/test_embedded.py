"""The life of an embedded server: made, attached to, stopped, asked, and what it promises to those who connect."""

import concurrent.futures
import os
import socket
import subprocess
from pathlib import Path

import psycopg
import pytest

from ledger import embedded
from ledger.embedded import Server
from ledger.errors import EmbeddedPostgresError


def setting(server: Server, name: str) -> str:
    with psycopg.connect(server.url("postgres")) as connection:
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])


def test_start_is_idempotent_and_keeps_its_port(place):
    home = place.home()
    assert embedded.status(home).state == "absent"
    first = place.start(home)
    running = embedded.status(home)
    assert (running.state, running.port) == ("running", first.port)
    assert place.start(home) == first
    assert embedded.status(home).pid == running.pid
    assert embedded.stop(home) is True
    assert embedded.status(home).state == "stopped"
    assert embedded.stop(home) is False
    again = place.start(home)
    assert again == first
    assert embedded.status(home).pid != running.pid


def test_an_absent_home_is_not_made_by_looking_at_it_or_stopping_it(tmp_path):
    home = tmp_path / "none"
    assert embedded.status(home).state == "absent"
    assert embedded.stop(home) is False
    assert embedded.destroy(home) is False
    assert not home.exists()


def test_destroy_leaves_nothing_of_the_server(place_18):
    home = place_18.made_home()
    place_18.start(home)
    pid = embedded.status(home).pid
    assert embedded.destroy(home) is True
    assert not home.exists()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("data_checksums", "on"),
        ("max_connections", "200"),
        ("shared_buffers", "256MB"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("password_encryption", "scram-sha-256"),
        ("TimeZone", "UTC"),
    ],
)
def test_the_settings_that_promises_rest_on_hold(server, name, value):
    assert setting(server, name) == value


def test_alter_system_cannot_undo_durability(server):
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SELECT pg_sleep(0.3)")
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        connection.execute("ALTER SYSTEM RESET fsync")


def test_the_version_is_the_servers_own(server):
    assert setting(server, "server_version").split()[0] == server.version


def test_text_is_ordered_by_code_point(server):
    with psycopg.connect(server.url("postgres")) as connection:
        rows = connection.execute("SELECT t FROM unnest(ARRAY['ä', 'b', 'B', 'a', 'z']) t ORDER BY t").fetchall()
    assert [row[0] for row in rows] == ["B", "a", "b", "z", "ä"]


@pytest.mark.parametrize("password", ["wrong", ""])
def test_a_wrong_password_is_refused(server, password):
    wrong = Server(server.data_dir, server.host, server.port, server.user, password, server.version)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(wrong.url("postgres"), passfile="/nonexistent")
    with pytest.raises(EmbeddedPostgresError, match="cannot create database"):
        embedded.ensure_database(wrong, "other")


def test_no_line_of_the_access_rules_trusts(server):
    lines = (server.data_dir / "pg_hba.conf").read_text().splitlines()
    methods = {line.split()[-1] for line in lines if line.strip() and not line.startswith("#")}
    assert methods == {"scram-sha-256"}


def test_only_the_owner_may_read_what_is_private(server):
    home = server.data_dir.parent
    private = [home / "password", home / "server.json", home / "log", server.data_dir]
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in private}
    assert modes == {"password": "0o600", "server.json": "0o600", "pgdata": "0o700", "log": "0o700"}


def test_the_password_is_not_shown_by_repr(server):
    assert server.password not in repr(server)


def test_text_of_a_failing_statement_stays_out_of_the_log(server):
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS once (word text PRIMARY KEY)")
        connection.execute("INSERT INTO once VALUES ('private-word') ON CONFLICT DO NOTHING")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO once VALUES ('private-word')")
    log = (server.data_dir.parent / "log" / "postgres.log").read_text()
    assert "duplicate key" in log
    assert "private-word" not in log


@pytest.mark.parametrize("name", ["tally", "with space", 'quo"te', "a/b?c=d@e:f%41", "Größe", "x" * 63])
def test_ensure_database_makes_any_name_once_and_its_url_leads_there(server, name):
    url = embedded.ensure_database(server, name)
    assert embedded.ensure_database(server, name) == url
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == (name,)


@pytest.mark.parametrize("name", ["", "x" * 64, "ö" * 32, "a\0b"])
def test_ensure_database_refuses_names_that_postgresql_would_cut(server, name):
    with pytest.raises(EmbeddedPostgresError, match="expected 1 to 63 bytes"):
        embedded.ensure_database(server, name)


def test_ensure_database_by_many_at_once_makes_one(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        urls = list(pool.map(lambda _: embedded.ensure_database(server, "crowd"), range(8)))
    assert len(set(urls)) == 1


def test_two_processes_that_start_one_home_get_one_server(place):
    home = place.home()
    processes = [place.popen("start", home) for _ in range(2)]
    printed = {process.communicate(timeout=60)[0].splitlines()[-1] for process in processes}
    assert [process.returncode for process in processes] == [0, 0], printed
    found = embedded.status(home)
    assert printed == {f"running 127.0.0.1:{found.port} PostgreSQL {place.start(home).version} pid {found.pid}"}


def test_variables_of_the_callers_environment_change_nothing(place_18):
    home = place_18.made_home()
    odd = {"PGHOSTADDR": "192.0.2.1", "PGOPTIONS": "-c nonsense=1", "PGDATA": "/none", "PGSSLMODE": "verify-full", "TZ": "Asia/Tokyo"}
    command = place_18.command("start", home)
    done = subprocess.run(command, cwd=Path(__file__).parents[3], env=os.environ | odd, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_remembered_port_that_is_taken_is_replaced(place_18):
    home = place_18.made_home()
    port = place_18.start(home).port
    embedded.stop(home)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        moved = place_18.start(home).port
        assert moved != port
    embedded.stop(home)
    assert place_18.start(home).port == moved


def test_a_server_that_cannot_start_is_reported_with_the_end_of_its_log(place):
    home = place.made_home()
    server = place.start(home)
    embedded.stop(home)
    settings = server.data_dir / "postgresql.conf"
    good = settings.read_text()
    settings.write_text(good + "\nnonsense_setting = 1\n")
    with pytest.raises(EmbeddedPostgresError, match='unrecognized configuration parameter "nonsense_setting"'):
        place.start(home)
    settings.write_text(good)
    assert place.start(home).port == server.port


def test_a_long_start_is_waited_for_and_said(place_18):
    home = place_18.made_home()
    server = place_18.start(home)
    embedded.stop(home)
    slow = place_18.path / "slow" / "bin"
    slow.mkdir(parents=True)
    (slow / "initdb").symlink_to(place_18.binaries / "initdb")
    (slow / "postgres").write_text(f'#!/bin/sh\n[ "$1" = --version ] || sleep 2.5\nexec {place_18.binaries}/postgres "$@"\n')
    (slow / "postgres").chmod(0o755)
    place_18.said.clear()
    assert place_18.start(home, slow).port == server.port
    assert f"PostgreSQL on {server.data_dir} is starting, 1 s" in place_18.said[0]


def test_data_of_another_major_version_is_refused_by_name(place_18):
    other = embedded.system_binaries(15)
    if other is None:
        pytest.skip("PostgreSQL 15 of the operating system is not installed")
    home = place_18.made_home()
    place_18.start(home)
    assert place_18.start(home, other).version.startswith("18."), "a running server is attached to, whatever the programs"
    embedded.stop(home)
    with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 18, but .*/15/bin is 15\."):
        place_18.start(home, other)


def test_a_folder_without_the_programs_is_refused_by_name(place_18):
    with pytest.raises(EmbeddedPostgresError, match=f"{place_18.path} lacks postgres and initdb"):
        place_18.start(place_18.home(), place_18.path)
