"""Keeps the files of an embedded server: home, lock, password, state, log, and the data directory, which may have to lie elsewhere."""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.embedded.account import Account, account_for, reaches
from ledger.errors import EmbeddedPostgresError

# Not /var/tmp: systemd removes what lies there untouched for 30 days.
ELSEWHERE = Path("/var/lib/tallystick")
SAY_EVERY_S = 5.0
_FIRST_SAY_S = 1.0
_LARGE_LOG = 16 * 2**20


@dataclass(frozen=True)
class State:
    """What a home remembers: the data directory (relative to the home, or absolute), the last port (0: none yet), the server's version."""

    data_dir: str
    port: int = 0
    version: str = ""


@dataclass(frozen=True)
class Layout:
    """Where one server's files lie and which account runs it (None: the caller's)."""

    home: Path
    data_dir: Path
    account: Account | None
    state: State

    @property
    def log(self) -> Path:
        """The file that the server writes its messages to."""
        return self.home / "log" / "postgres.log"

    def remember(self, port: int, version: str) -> None:
        """Stores the port and the version for the next start."""
        write_state(self.home, replace(self.state, port=port, version=version))


class Pacer:
    """Calls `say` after one second and then every five, with the seconds that a wait has taken so far."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = time.monotonic()
        self._due = self._began + _FIRST_SAY_S

    @property
    def waited_s(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._began

    def tick(self, text: Callable[[int], str]) -> None:
        """Says `text(seconds)` if it is time to; sleeps 20 ms in any case."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + SAY_EVERY_S
            self._say(text(round(now - self._began)))
        time.sleep(0.02)


@contextlib.contextmanager
def disk_errors(home: Path) -> Iterator[None]:
    """Turns every OSError inside into an EmbeddedPostgresError that names the path and the reason."""
    try:
        yield
    except OSError as error:
        raise EmbeddedPostgresError(f"{error.filename or home}: {error.strerror or error}") from error


def make_home(home: Path) -> None:
    """Makes the directory if missing: private, but passable for the server's account when the caller is root."""
    if home.is_dir():
        return
    home.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        home.mkdir(0o700)
        if os.geteuid() == 0:
            home.chmod(0o711)
    if not home.is_dir():
        raise EmbeddedPostgresError(f"{home} is no directory; expected one, or nothing")


@contextlib.contextmanager
def held_lock(home: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds the home's lock inside; the kernel drops it when its holder dies, however it dies."""
    pacer = Pacer(say)
    while (handle := _try_lock(home / "lock")) is None:
        pacer.tick(lambda seconds: f"waiting for another process that starts or stops the server in {home}, {seconds} s")
    try:
        yield
    finally:
        # A forked child may share the descriptor; unlocking frees it for all of them, closing would not.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def read_state(home: Path) -> State | None:
    """What the home remembers, or None when no server was ever started in it.

    Raises:
        EmbeddedPostgresError: the file is damaged.
    """
    path = home / "server.json"
    try:
        found = json.loads(path.read_text())
        return State(data_dir=str(found["data_dir"]), port=int(found["port"]), version=str(found["version"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedPostgresError(f"{path} is damaged ({error!r}); expected data_dir, port and version") from error


def write_state(home: Path, state: State) -> None:
    """Replaces what the home remembers, in one step."""
    _write_private(home / "server.json", json.dumps({"data_dir": state.data_dir, "port": state.port, "version": state.version}))


def layout_of(home: Path) -> Layout | None:
    """Where the files of this home lie, without changing anything; None when no server was ever started in it."""
    state = read_state(home) if home.is_dir() else None
    if state is None:
        return None
    data_dir = home / state.data_dir
    return Layout(home, data_dir, account_for(home, data_dir) if data_dir.is_dir() else None, state)


def settle(home: Path, elsewhere: Path) -> Layout:
    """Where the files of this home lie; decided at the first start and remembered.

    The data directory is `pgdata` in the home, or, when the server's account cannot pass a parent directory of the home, in a directory of
    its own below `elsewhere`, which records the home it belongs to.

    Raises:
        EmbeddedPostgresError: the account cannot reach the place, or the home is a copy of one whose data lies elsewhere.
    """
    state = read_state(home)
    if state is None:
        account = account_for(home, home / "pgdata")
        if reaches(account, home):
            state = State("pgdata")
        else:
            name = re.sub(r"[^A-Za-z0-9._]+", "_", f"{home.parent.name}-{home.name}")[-60:]
            place = elsewhere / f"{name}-{secrets.token_hex(6)}"
            make_elsewhere(elsewhere)
            place.mkdir(0o711)
            place.chmod(0o711)
            (place / "home").write_text(str(home))
            state = State(str(place / "pgdata"))
        write_state(home, state)
    data_dir = home / state.data_dir
    if data_dir.parent != home:
        _check_belongs(home, data_dir)
    account = account_for(home, data_dir)
    if not reaches(account, data_dir.parent):
        who = account.name if account else "this user"
        raise EmbeddedPostgresError(f"{data_dir.parent} is closed to {who}, who runs the server: it or a directory above lacks the x bit")
    return Layout(home, data_dir, account, state)


def make_elsewhere(elsewhere: Path) -> None:
    """Makes the directory for what cannot lie in a home; readable for all, since each home's part in it guards itself."""
    if not elsewhere.is_dir():
        elsewhere.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            elsewhere.mkdir(0o755)
            elsewhere.chmod(0o755)


def read_password(layout: Layout) -> str:
    """The superuser's password; made at random before the first start.

    Raises:
        EmbeddedPostgresError: the data directory exists and its password is gone.
    """
    path = layout.home / "password"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        if layout.data_dir.exists():
            raise EmbeddedPostgresError(f"{path} is missing, but {layout.data_dir} exists and needs it; restore the file") from None
    password = secrets.token_urlsafe(24)
    _write_private(path, password + "\n")
    return password


@contextlib.contextmanager
def opened_log(layout: Layout) -> Iterator[int]:
    """A descriptor that appends to the log; a large log is first kept as one older generation."""
    layout.log.parent.mkdir(0o700, exist_ok=True)
    if layout.log.is_file() and layout.log.stat().st_size > _LARGE_LOG:
        layout.log.replace(layout.log.with_suffix(".log.1"))
    handle = _open_owned(layout.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        yield handle
    finally:
        os.close(handle)


def log_size(layout: Layout) -> int:
    """The bytes that the log holds now."""
    return layout.log.stat().st_size if layout.log.is_file() else 0


def log_tail(layout: Layout, since: int = 0) -> str:
    """The last 20 lines that the log got after byte `since`."""
    if not layout.log.is_file():
        return ""
    with layout.log.open("rb") as file:
        file.seek(max(since, log_size(layout) - 16_384))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-20:])


def forget(layout: Layout) -> None:
    """Deletes the data, the password, the log and the state of a home, and the home itself when nothing else is in it."""
    home, data_dir = layout.home, layout.data_dir
    if data_dir.parent != home:
        _check_belongs(home, data_dir)
    for directory in (data_dir, home / "log", *([data_dir.parent] if data_dir.parent != home else [])):
        if directory.is_dir():
            shutil.rmtree(directory)
    for name in ("password", "server.json", "lock"):
        (home / name).unlink(missing_ok=True)
    if not any(home.iterdir()):
        home.rmdir()


def sync_directory(directory: Path) -> None:
    """Makes the names in the directory durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_belongs(home: Path, data_dir: Path) -> None:
    """A copied home points to the data of its original; a moved one takes its data along."""
    note = data_dir.parent / "home"
    if not note.is_file():
        raise EmbeddedPostgresError(f"{note} is missing; {home} keeps its data there, so it was removed or is not mounted")
    owner = Path(note.read_text())
    if owner == home:
        return
    other = read_state(owner) if owner.is_dir() else None
    if other is not None and other.data_dir == str(data_dir):
        remedy = "remove the copy's server.json and password for a new, empty server"
        raise EmbeddedPostgresError(f"{home} is a copy of {owner}, whose data lies in {data_dir}; {remedy}")
    note.write_text(str(home))


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock of the file at this path, or None when another has it or has just deleted the file."""
    handle = _open_owned(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None


def _open_owned(path: Path, flags: int) -> int:
    """A descriptor of a private file; made by root in another user's home, it belongs to that user. Links are refused."""
    handle = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        if os.fstat(handle).st_uid != owner.st_uid:
            os.fchown(handle, owner.st_uid, owner.st_gid)
    return handle


def _write_private(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = _open_owned(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(handle)
    fresh.replace(path)
    sync_directory(path.parent)
