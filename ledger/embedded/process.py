"""Says from /proc which processes serve a PostgreSQL data directory, starts one and signals them; a pid alone is never believed."""

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ledger.embedded.account import ENVIRONMENT, Account
from ledger.errors import EmbeddedPostgresError

_POLL_S = 0.02


@dataclass(frozen=True)
class PidFile:
    """What postmaster.pid says: the pid (negative in single-user mode), the port or None, and starting, ready, stopping or ''."""

    pid: int
    port: int | None
    state: str


def read_pid_file(data_dir: Path) -> PidFile | None:
    """The content of postmaster.pid, or None when it is missing or has no pid in it."""
    try:
        lines = (data_dir / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    try:
        pid = int(lines[0])
    except (IndexError, ValueError):
        return None
    port = int(lines[3]) if len(lines) > 3 and lines[3].strip().isdigit() else None
    return PidFile(pid, port, lines[7].strip() if len(lines) > 7 else "")


def mark(data_dir: Path) -> str:
    """The cluster name of a data directory, made of device and inode: a moved directory keeps it, a copied one has its own."""
    at = data_dir.stat()
    return f"tally-{at.st_dev:x}-{at.st_ino:x}"


def is_alive(pid: int) -> bool:
    """True when the process exists and is no zombie; pid 1 of a container may leave zombies for long."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X", b"x")


def find_postmaster(data_dir: Path) -> int | None:
    """The pid of the live postmaster of this directory, or None; found through postmaster.pid, else among all processes."""
    if not data_dir.is_dir():
        return None
    noted = read_pid_file(data_dir)
    if noted is not None and noted.pid > 0 and is_postmaster(noted.pid, data_dir):
        return noted.pid
    found = [pid for pid in _pids() if is_postmaster(pid, data_dir)]
    # A child keeps its parent's command line until it has set its own title.
    return next((pid for pid in found if _parent(pid) not in found), None)


def find_children(data_dir: Path) -> list[int]:
    """The pids of live server processes of this directory other than a postmaster."""
    if not data_dir.is_dir():
        return []
    return [pid for pid in _pids() if is_child(pid, data_dir)]


def find_makers(work_dir: Path) -> list[int]:
    """The pids of live initdb processes that fill a directory below `work_dir`."""
    return [pid for pid in _pids() if is_maker(pid, work_dir)]


def is_postmaster(pid: int, data_dir: Path) -> bool:
    """True when the process is a live postmaster of this directory: its owner, its program and its arguments all say so."""
    argv = _arguments(pid, data_dir)
    if len(argv) < 2 or os.path.basename(argv[0]) not in ("postgres", "postmaster") or "--single" in argv or "--boot" in argv:
        return False
    if f"cluster_name={mark(data_dir)}" in argv:
        return True
    named = [Path(value) for option, value in itertools.pairwise(argv) if option == "-D"]
    return any(path.is_dir() and path.samefile(data_dir) for path in named)


def is_child(pid: int, data_dir: Path) -> bool:
    """True when the process is a live child of a postmaster of this directory, by its owner and its title."""
    argv = _arguments(pid, data_dir)
    return bool(argv) and argv[0].startswith(f"postgres: {mark(data_dir)}: ")


def is_single_user(pid: int, data_dir: Path) -> bool:
    """True when the process is a live single-user backend owned by the owner of this directory."""
    argv = _arguments(pid, data_dir)
    return bool(argv) and os.path.basename(argv[0]) == "postgres" and "--single" in argv


def is_maker(pid: int, work_dir: Path) -> bool:
    """True when the process is a live initdb, owned by the owner of `work_dir`, that was told a path below it."""
    argv = _arguments(pid, work_dir)
    return bool(argv) and os.path.basename(argv[0]) == "initdb" and any(str(work_dir) in part for part in argv[1:])


def spawn(command: list[str], account: Account | None, log: int) -> int:
    """The pid of the command, started in a session of its own as the child of init, with both outputs on the descriptor `log`.

    Raises:
        EmbeddedPostgresError: the shell that starts it failed.
    """
    # The shell ends at once, so the server never becomes a zombie of a caller that does not reap it; a new session keeps Ctrl-C away.
    # A shell that does not exist any more cannot pass signals on either: the pid printed is the server's own.
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&2 & echo $!', "sh", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        cwd="/",
        env=ENVIRONMENT,
        start_new_session=True,
        umask=0o077,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        check=False,
    )
    text = done.stdout.decode().strip()
    if done.returncode != 0 or not text.isdigit():
        raise EmbeddedPostgresError(f"cannot start {command[0]}: /bin/sh ended with {done.returncode} and printed {text!r}, expected a pid")
    return int(text)


def signal_if(pid: int, number: signal.Signals, still: Callable[[int], bool]) -> None:
    """Sends the signal to the process if `still(pid)` holds; the pid cannot pass to another process between the question and the signal."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:
        # Kernels before 5.3 and some sandboxes have no pidfd; there the gap is the time between two system calls.
        if still(pid):
            _kill(pid, number)
        return
    try:
        if still(pid):
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def end_makers(work_dir: Path) -> None:
    """Kills each initdb that still fills `work_dir`; the backends it drives end by themselves when its pipe closes."""
    found = find_makers(work_dir)
    for pid in found:
        signal_if(pid, signal.SIGKILL, lambda pid: is_maker(pid, work_dir))
    wait_until_gone(found, 5.0)


def end_children(data_dir: Path, grace_s: float = 5.0) -> int:
    """How many server processes without a postmaster were found; all are gone on return.

    Args:
        data_dir: the data directory they serve.
        grace_s: seconds they get to notice that their postmaster died, before SIGQUIT, and again before SIGKILL.

    Raises:
        EmbeddedPostgresError: one survives SIGKILL, for example in an uninterruptible disk wait.
    """
    found = find_children(data_dir)
    for number in (signal.SIGQUIT, signal.SIGKILL):
        if wait_until_gone(found, grace_s):
            return len(found)
        for pid in found:
            signal_if(pid, number, lambda pid: is_child(pid, data_dir))
    if not wait_until_gone(found, grace_s):
        raise EmbeddedPostgresError(f"server processes {find_children(data_dir)} of {data_dir} survive SIGKILL; expected none")
    return len(found)


def wait_until_gone(pids: list[int], limit_s: float) -> bool:
    """True when none of the processes is alive within `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _arguments(pid: int, owned: Path) -> list[str]:
    """The argument vector of a live process whose owner is the owner of `owned`; empty otherwise."""
    try:
        uids = Path(f"/proc/{pid}/status").read_text(errors="replace").partition("\nUid:")[2].split(maxsplit=2)
        if not is_alive(pid) or len(uids) < 2 or uids[1] != str(owned.stat().st_uid):
            return []
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
