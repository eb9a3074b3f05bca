"""Servers of the tests of the embedded PostgreSQL: places everyone can pass, programs of two versions, and their removal."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import embedded

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Place:
    """A directory that the server's account can enter, the programs to use, a stopped server to copy, and what was started there."""

    path: Path
    binaries: Path
    made: Path | None = None
    homes: list[Path] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def elsewhere(self) -> Path:
        """Where data goes that cannot lie in its home."""
        return self.path / "elsewhere"

    def home(self, name: str = "home") -> Path:
        """A path whose server is destroyed after the test."""
        self.homes.append(self.path / name)
        return self.path / name

    def made_home(self, name: str = "home") -> Path:
        """The same with a server in it that was made and stopped; copying one takes a tenth of the time of making it."""
        assert self.made is not None
        shutil.copytree(self.made, self.path / name, copy_function=_copy_owned, symlinks=True)
        for folder, _, _ in os.walk(self.made):
            _give(folder, self.path / name / os.path.relpath(folder, self.made))
        return self.home(name)

    def start(self, home: Path, binaries: Path | None = None) -> embedded.Server:
        """The server of the home, with what it said while it waited kept in `said`."""
        return embedded.start(home, binaries=binaries or self.binaries, elsewhere=self.elsewhere, say=self.said.append)

    def command(self, action: str, home: Path) -> list[str]:
        """The command line that does the action in a process of its own."""
        options = ["--binaries", str(self.binaries), "--elsewhere", str(self.elsewhere)]
        return [sys.executable, "-m", "ledger.embedded", action, str(home), *options]

    def popen(self, action: str, home: Path) -> subprocess.Popen[str]:
        """That process, running, in a process group of its own."""
        return subprocess.Popen(
            self.command(action, home), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
        )


def _give(source: str, target: Path) -> None:
    status = os.stat(source)
    os.chown(target, status.st_uid, status.st_gid)


def _copy_owned(source: str, target: str) -> str:
    shutil.copy2(source, target)
    _give(source, Path(target))
    return target


def make_place(binaries: Path, made: Path | None = None) -> Iterator[Place]:
    """A place that other accounts can pass, as they cannot pass pytest's own; in memory where possible, to wait for no disk."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 2**30
    path = Path(tempfile.mkdtemp(prefix="tally-embedded-", dir=memory if roomy else "/var/tmp"))
    path.chmod(0o755)
    place = Place(path, binaries, made)
    yield place
    for home in place.homes:
        embedded.destroy(home)
    shutil.rmtree(path)


def programs(major: int) -> Path:
    """The programs of this major version; skips the test where they are not installed."""
    if major == 18:
        return embedded.bundled_binaries()
    found = embedded.system_binaries(major)
    if found is None:
        pytest.skip(f"PostgreSQL {major} of the operating system is not installed")
    return found


@pytest.fixture(scope="session")
def made_18() -> Iterator[Path]:
    """The home of a server of the bundled version that was made and stopped."""
    yield from _make(18)


@pytest.fixture(scope="session")
def made_15() -> Iterator[Path]:
    """The home of a server of the oldest supported version that was made and stopped."""
    yield from _make(15)


def _make(major: int) -> Iterator[Path]:
    for place in make_place(programs(major)):
        home = place.home()
        place.start(home)
        embedded.stop(home)
        yield home


@pytest.fixture(params=[18, 15])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place for each of the two versions."""
    yield from make_place(programs(request.param), request.getfixturevalue(f"made_{request.param}"))


@pytest.fixture
def place_18(made_18: Path) -> Iterator[Place]:
    """A place with the bundled programs, for rules that no version changes."""
    yield from make_place(programs(18), made_18)


@pytest.fixture
def as_root() -> None:
    """Skips a test about switching accounts where the caller is not root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def as_owner() -> Callable[[Path], dict[str, Any]]:
    """A function that gives the arguments with which subprocess runs a command as the owner of a path."""

    def switch(path: Path) -> dict[str, Any]:
        owner = path.stat()
        return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}

    return switch


@pytest.fixture(scope="module", params=[18, 15])
def server(request: pytest.FixtureRequest) -> Iterator[embedded.Server]:
    """One running server a version, for tests that only look at it."""
    for place in make_place(programs(request.param), request.getfixturevalue(f"made_{request.param}")):
        yield place.start(place.made_home())


@pytest.fixture
def write_rows() -> Callable[[embedded.Server, int], str]:
    """A function that commits rows one by one to a table of a new database and returns the database's URL."""

    def write(server: embedded.Server, count: int) -> str:
        url = embedded.ensure_database(server, "kept")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (n int)")
            for n in range(count):
                connection.execute("INSERT INTO kept VALUES (%s)", [n])
        return url

    return write


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """A function that waits at most 20 s for a condition."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "the condition did not hold within 20 s"
            time.sleep(0.01)

    return wait
