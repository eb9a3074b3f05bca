"""What the embedded server survives: killed starters, killed servers, reused process ids, zombies, copies and moves of its home."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from ledger import embedded
from ledger.embedded.process import end_children, find_children, find_postmaster, is_alive, read_pid_file
from ledger.errors import EmbeddedPostgresError


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row is not None
    return int(row[0])


def pid_of(home: Path) -> int:
    pid = embedded.status(home).pid
    assert pid is not None
    return pid


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGHUP])
def test_the_server_outlives_its_starter_and_the_signals_of_its_terminal(place_18, number, until):
    home = place_18.made_home()
    code = f"import pathlib, time, ledger.embedded as e; e.start(pathlib.Path({str(home)!r})); print(1, flush=True); time.sleep(60)"
    starter = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, process_group=0)
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"1\n"
    pid = pid_of(home)
    os.killpg(starter.pid, number)
    starter.wait()
    starter.stdout.close()
    time.sleep(0.2)
    assert is_alive(pid)
    place_18.start(home)
    assert pid_of(home) == pid
    assert embedded.stop(home) is True
    assert not is_alive(pid)


def test_a_starter_killed_while_it_makes_the_data_leaves_nothing_that_is_used(place, until):
    home = place.home()
    starter = place.popen("start", home)
    until(lambda: list(home.glob(".initdb-*/data/base/1")))
    starter.kill()
    starter.communicate()
    assert embedded.status(home).state == "absent"
    server = place.start(home)
    assert embedded.ensure_database(server, "whole") == server.url("whole")
    until(lambda: not list(home.glob(".initdb-*")))
    assert starter.returncode == -signal.SIGKILL


def test_a_starter_killed_while_the_server_comes_up_is_followed_by_the_next(place_18, until):
    home = place_18.made_home()
    starter = place_18.popen("start", home)
    until(lambda: find_postmaster(home / "pgdata"))
    starter.kill()
    starter.communicate()
    pid = find_postmaster(home / "pgdata")
    place_18.start(home)
    assert pid_of(home) == pid


def test_rows_survive_a_killed_postmaster(place, write_rows, until):
    home = place.made_home()
    server = place.start(home)
    url = write_rows(server, 25)
    pid = pid_of(home)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    assert embedded.status(home).state == "stale"
    assert place.start(home) == server
    assert count(url) == 25
    assert pid_of(home) != pid


def test_rows_survive_the_death_of_all_processes_at_once(place, write_rows, until):
    home = place.made_home()
    server = place.start(home)
    url = write_rows(server, 25)
    every = [pid_of(home), *find_children(server.data_dir)]
    assert len(every) > 4
    for pid in every:
        os.kill(pid, signal.SIGKILL)
    place.start(home)
    assert count(url) == 25


def test_stop_after_a_killed_postmaster_leaves_no_process_and_no_pid_file(place_18, until):
    home = place_18.made_home()
    server = place_18.start(home)
    pid = pid_of(home)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    embedded.stop(home)
    assert find_children(server.data_dir) == []
    assert embedded.status(home).state == "stopped"
    # Only a start frees the shared memory of the killed one.
    assert place_18.start(home) == server


def test_a_child_that_cannot_notice_its_postmasters_death_is_ended(place_18, until):
    home = place_18.made_home()
    server = place_18.start(home)
    stuck = find_children(server.data_dir)[0]
    os.kill(stuck, signal.SIGSTOP)
    pid = pid_of(home)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    assert is_alive(stuck)
    assert end_children(server.data_dir, grace_s=0.3) >= 1
    assert not is_alive(stuck)
    assert place_18.start(home) == server


@pytest.mark.parametrize("arguments", ["plain", "names the data"])
def test_a_foreign_process_with_the_noted_pid_is_neither_believed_nor_killed(place_18, arguments, as_owner):
    home = place_18.made_home()
    server = place_18.start(home)
    embedded.stop(home)
    # Both have the owner of the data, one even its path among its arguments.
    command = ["sleep", "60"] if arguments == "plain" else ["tail", "-f", str(server.data_dir / "PG_VERSION")]
    foreign = subprocess.Popen(command, stdout=subprocess.DEVNULL, **as_owner(server.data_dir))
    try:
        (server.data_dir / "postmaster.pid").write_text(f"{foreign.pid}\n{server.data_dir}\n0\n{server.port}\n\n127.0.0.1\n0 0\nready   \n")
        assert embedded.status(home).state == "stale"
        assert embedded.stop(home) is False
        assert foreign.poll() is None
        (server.data_dir / "postmaster.pid").write_text(f"{foreign.pid}\n{server.data_dir}\n0\n{server.port}\n\n127.0.0.1\n0 0\nready   \n")
        assert place_18.start(home) == server
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_a_zombie_with_the_noted_pid_is_not_taken_for_the_server(place, until, as_owner):
    home = place.made_home()
    data_dir = home / "pgdata"
    # It has the server's own command line until it is dead: only its state tells.
    command = ["postgres", "-c", "sleep 60; :", "-D", str(data_dir)]
    dead = subprocess.Popen(command, executable="/bin/sh", process_group=0, **as_owner(data_dir))
    (data_dir / "postmaster.pid").write_text(f"{dead.pid}\n{data_dir}\n0\n0\n\n127.0.0.1\n0 0\nready   \n")
    assert find_postmaster(data_dir) == dead.pid
    os.killpg(dead.pid, signal.SIGKILL)
    until(lambda: " Z " in Path(f"/proc/{dead.pid}/stat").read_text())
    assert embedded.status(home).state == "stale"
    place.start(home)
    assert pid_of(home) != dead.pid
    dead.wait()


@pytest.mark.parametrize("content", ["", "\n", "not a number\n", "4194304999\n"])
def test_a_damaged_pid_file_does_not_hinder_a_start(place_18, content):
    home = place_18.made_home()
    (home / "pgdata" / "postmaster.pid").write_text(content)
    assert place_18.start(home).port


def test_a_server_whose_pid_file_was_deleted_is_still_found_and_stopped(place_18):
    home = place_18.made_home()
    server = place_18.start(home)
    pid = pid_of(home)
    (server.data_dir / "postmaster.pid").unlink()
    assert embedded.status(home).pid == pid
    assert embedded.stop(home) is True
    assert not is_alive(pid)


def test_a_copy_of_a_running_home_is_a_server_of_its_own(place_18, write_rows):
    home = place_18.made_home()
    server = place_18.start(home)
    write_rows(server, 5)
    pid = pid_of(home)
    subprocess.run(["cp", "-a", home, place_18.home("copy")], check=True)
    copy = place_18.path / "copy"
    assert embedded.status(copy).state == "stale"
    other = place_18.start(copy)
    assert other.port != server.port
    assert pid_of(copy) != pid
    assert embedded.stop(copy) is True
    assert is_alive(pid)
    assert count(server.url("kept")) == 5


def test_a_home_that_is_moved_takes_its_running_server_along(place_18):
    home = place_18.made_home()
    server = place_18.start(home)
    pid = pid_of(home)
    moved = place_18.home("moved")
    home.rename(moved)
    assert pid_of(moved) == pid
    assert place_18.start(moved).port == server.port
    assert embedded.stop(moved) is True
    assert not is_alive(pid)


def test_an_impatient_stop_ends_the_server_at_once_and_keeps_what_was_committed(place_18, write_rows):
    home = place_18.made_home()
    server = place_18.start(home)
    url = write_rows(server, 5)
    checkpointer = next(pid for pid in find_children(server.data_dir) if b"checkpointer" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(checkpointer, signal.SIGSTOP)

    def say(text: str) -> None:
        place_18.said.append(text)
        if len(place_18.said) == 2:
            os.kill(checkpointer, signal.SIGCONT)

    assert embedded.stop(home, say=say, patience_s=1.2) is True
    assert all("is stopping" in text for text in place_18.said)
    assert len(place_18.said) >= 2
    place_18.start(home)
    assert count(url) == 5


def test_a_single_user_server_is_left_alone(place_18, as_owner):
    home = place_18.made_home()
    data_dir = home / "pgdata"
    command = [str(place_18.binaries / "postgres"), "--single", "-D", str(data_dir), "postgres"]
    single = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", **as_owner(data_dir))
    assert single.stdin is not None
    assert single.stdout is not None
    single.stdout.read(10)
    with pytest.raises(EmbeddedPostgresError, match=f"single-user server, pid {single.pid}"):
        place_18.start(home)
    single.stdin.close()
    single.wait()
    single.stdout.close()
    assert read_pid_file(data_dir) is None
    assert place_18.start(home).port


@pytest.mark.slow
def test_a_recovery_of_a_gigabyte_is_waited_for_and_no_committed_row_is_lost(place, until):
    home = place.made_home()
    server = place.start(home)
    url = embedded.ensure_database(server, "large")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n int, filler text)")
        for _ in range(10):
            connection.execute("INSERT INTO kept SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 90000) n")
    for pid in [pid_of(home), *find_children(server.data_dir)]:
        os.kill(pid, signal.SIGKILL)
    place.start(home)
    assert count(url) == 900_000
