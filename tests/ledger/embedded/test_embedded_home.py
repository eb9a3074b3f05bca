"""Where an embedded server's files may lie and who may run it: closed directories, ordinary users, full and read-only disks."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from ledger import embedded
from ledger.errors import EmbeddedPostgresError

ORDINARY = 65534


def modes(*roots: Path) -> dict[str, int]:
    """The mode of each directory on the way to the roots, and of everything in them."""
    above = {path for root in roots for path in root.parents}
    below = {path for root in roots for path in [root, *root.rglob("*")]}
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for path in above | below}


def user_of(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("\nUid:")[2].split()[1])


def as_user(user_id: int, work: Callable[[], str]) -> str:
    """What `work` returns, or the text of the EmbeddedPostgresError it raises, in a process of that user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(user_id, user_id, user_id)
            os.setresuid(user_id, user_id, user_id)
            try:
                text = work()
            except EmbeddedPostgresError as error:
                text = f"EmbeddedPostgresError: {error}"
            os.write(writing, text.encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read().decode()
    assert os.waitpid(child, 0)[1] == 0, said
    return said


@pytest.fixture
def closed(place_18) -> Path:
    """A directory of mode 0700, as /root is."""
    path = place_18.path / "closed"
    path.mkdir(0o700)
    return path


@pytest.fixture
def tiny_disk(place_18, as_root) -> Iterator[Path]:
    """A file system of 12 MiB, too small for a data directory."""
    path = place_18.path / "tiny"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "tmpfs", path], check=False).returncode != 0:
        pytest.skip("mount is not permitted here")
    yield path
    subprocess.run(["umount", path], check=True)


def test_root_serves_a_home_and_programs_below_a_closed_directory_and_changes_no_mode(place_18, closed, as_root):
    package = place_18.binaries.parents[1]
    shutil.copytree(package, closed / "venv" / package.name, ignore=shutil.ignore_patterns("include", "__pycache__"))
    shutil.copytree(package.with_name(f"{package.name}.libs"), closed / "venv" / f"{package.name}.libs")
    before = modes(closed)
    home = place_18.home("closed/home")
    server = place_18.start(home, closed / "venv" / package.name / "pginstall" / "bin")
    assert {path: mode for path, mode in modes(closed).items() if path in before} == before
    assert server.data_dir.is_relative_to(place_18.elsewhere)
    assert user_of(embedded.status(home).pid) == server.data_dir.stat().st_uid != 0
    command = Path(f"/proc/{embedded.status(home).pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    assert command.startswith(str(place_18.elsewhere / "binaries-"))
    assert place_18.start(home) == server
    with psycopg.connect(server.url("postgres")) as connection:
        # The language's library and the extension's files must have come along.
        connection.execute("DO $$ BEGIN NULL; END $$")
        connection.execute("CREATE EXTENSION pg_trgm")


def test_data_elsewhere_is_removed_with_its_home(place_18, closed, as_root):
    home = place_18.home("closed/home")
    data_dir = place_18.start(home).data_dir
    assert data_dir.is_dir()
    assert embedded.destroy(home) is True
    assert not data_dir.parent.exists()


def test_a_copied_home_does_not_get_hold_of_the_data_of_its_original(place_18, closed, as_root):
    home = place_18.home("closed/home")
    place_18.start(home)
    shutil.copytree(home, closed / "copy")
    with pytest.raises(EmbeddedPostgresError, match=f"closed/copy is a copy of {home}"):
        place_18.start(closed / "copy")
    moved = place_18.home("closed/moved")
    home.rename(moved)
    assert place_18.start(moved).port == embedded.status(moved).port


def test_a_home_whose_data_elsewhere_is_gone_says_so(place_18, closed, as_root):
    home = place_18.home("closed/home")
    server = place_18.start(home)
    embedded.stop(home)
    away = place_18.path / "away"
    server.data_dir.parent.rename(away)
    with pytest.raises(EmbeddedPostgresError, match="removed or is not mounted"):
        place_18.start(home)
    away.rename(server.data_dir.parent)
    assert place_18.start(home) == server


def test_a_home_that_is_closed_later_says_what_shuts_the_server_out(place_18, as_root):
    folder = place_18.path / "open"
    folder.mkdir(0o755)
    home = place_18.made_home("open/home")
    folder.chmod(0o700)
    with pytest.raises(EmbeddedPostgresError, match=f"{home} is closed to tallystick"):
        place_18.start(home)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_ordinary_user_makes_uses_and_stops_a_server_below_a_closed_directory_of_its_own(place, as_root):
    folder = place.path / "own"
    folder.mkdir(0o700)
    os.chown(folder, ORDINARY, ORDINARY)
    home = place.home("own/home")
    assert as_user(ORDINARY, lambda: embedded.ensure_database(place.start(home), "mine")).endswith("/mine")
    assert user_of(embedded.status(home).pid) == ORDINARY
    assert {path.stat().st_uid for path in [home, *home.rglob("*")]} == {ORDINARY}
    # What root starts in that home stays the user's own.
    pid = embedded.status(home).pid
    assert place.start(home).port == embedded.status(home).port
    assert embedded.status(home).pid == pid
    embedded.stop(home)
    place.start(home)
    assert user_of(embedded.status(home).pid) == ORDINARY
    assert as_user(ORDINARY, lambda: str(embedded.stop(home))) == "True"
    assert as_user(ORDINARY, lambda: embedded.status(home).state) == "stopped"


def test_an_ordinary_user_is_told_which_path_it_may_not_write(place_18, as_root):
    assert as_user(ORDINARY, lambda: str(place_18.start(place_18.path / "home"))) == (
        f"EmbeddedPostgresError: {place_18.path}/home: Permission denied"
    )


def test_an_ordinary_user_cannot_read_or_join_the_server_of_root(place_18, as_root):
    home = place_18.made_home()
    place_18.start(home)
    for work in (lambda: str(place_18.start(home)), lambda: str(embedded.status(home)), lambda: str(embedded.stop(home))):
        assert "Permission denied" in as_user(ORDINARY, work)


def test_a_full_disk_is_named(place_18, tiny_disk):
    with pytest.raises(EmbeddedPostgresError, match=f"(?s){tiny_disk}/home/pgdata.*No space left on device"):
        place_18.start(place_18.home("tiny/home"))
    assert sorted(path.name for path in (tiny_disk / "home").iterdir()) == ["lock", "password", "server.json"]


def test_a_home_below_a_file_is_named(place_18):
    (place_18.path / "file").write_text("")
    with pytest.raises(EmbeddedPostgresError, match=f"{place_18.path}/file: .*(exists|Not a directory)"):
        place_18.start(place_18.path / "file" / "home")


def test_a_home_that_is_a_file_is_named(place_18):
    (place_18.path / "file").write_text("")
    with pytest.raises(EmbeddedPostgresError, match=f"{place_18.path}/file is no directory"):
        place_18.start(place_18.path / "file")


def test_a_link_in_the_place_of_the_log_is_refused(place_18):
    home = place_18.made_home()
    target = place_18.path / "target"
    target.write_text("kept")
    (home / "log" / "postgres.log").unlink()
    (home / "log" / "postgres.log").symlink_to(target)
    with pytest.raises(EmbeddedPostgresError, match=r"postgres\.log"):
        place_18.start(home)
    assert target.read_text() == "kept"


def test_a_lost_password_is_reported_before_anything_is_started(place_18):
    home = place_18.made_home()
    (home / "password").unlink()
    with pytest.raises(EmbeddedPostgresError, match=f"{home}/password is missing"):
        place_18.start(home)
    assert embedded.status(home).state == "stopped"


@pytest.mark.parametrize("content", ["", "{}", '{"data_dir": "pgdata", "port": "x", "version": ""}', "[1]"])
def test_a_damaged_state_file_is_named(place_18, content):
    home = place_18.path / "home"
    home.mkdir()
    (home / "server.json").write_text(content)
    for action in (place_18.start, embedded.status, embedded.stop):
        with pytest.raises(EmbeddedPostgresError, match=f"{home}/server.json is damaged"):
            action(home)


def test_a_directory_that_is_no_cluster_is_not_filled_or_used(place_18):
    home = place_18.made_home()
    (home / "pgdata" / "global" / "pg_control").unlink()
    with pytest.raises(EmbeddedPostgresError, match=f"{home}/pgdata is no complete data directory"):
        place_18.start(home)


def test_a_large_log_is_kept_as_one_older_generation(place_18):
    home = place_18.made_home()
    log = home / "log" / "postgres.log"
    log.write_bytes(b"x" * (16 * 2**20 + 1))
    place_18.start(home)
    assert log.stat().st_size < 10_000
    assert (home / "log" / "postgres.log.1").stat().st_size > 16 * 2**20
