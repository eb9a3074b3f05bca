"""Process groups of inference servers: starts one apart from its starter, knows it again and ends it; a pid alone is never believed."""

import os
import shlex
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from ledger.errors import EngineFailed

_POLL_S = 0.05
_DEAD = ("Z", "X", "x")


@dataclass(frozen=True)
class Identity:
    """A process that cannot be confused with a later one of the same pid: pid, start time in clock ticks since boot, boot id."""

    pid: int
    start_ticks: int
    boot_id: str


def launch(command: list[str], *, environment: dict[str, str], log: Path, birth: Path) -> int:
    """The pid of the command, leader of a session of its own, with both outputs in `log`.

    The child itself writes who it is into `birth` before the command runs, so the note exists even if the starter is killed at once.
    """
    # $$ keeps its value through exec, and field 22 of stat is the start time of the process, not of the program.
    whole, part = shlex.quote(str(birth)), shlex.quote(f"{birth}.part")
    note = f"cat /proc/$$/stat /proc/sys/kernel/random/boot_id > {part} && mv {part} {whole}"
    script = f"{note} && exec {shlex.join(command)}"
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    default = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE]
    return os.posix_spawn("/bin/sh", ["sh", "-c", script], environment, file_actions=files, setsid=True, setsigdef=default)


def read_birth(birth: Path) -> Identity | None:
    """Who the child said it was, or None when it has said nothing yet."""
    try:
        stat, boot_id = birth.read_text(encoding="ascii", errors="replace").splitlines()
        return Identity(int(stat.split()[0]), int(_after_name(stat)[19]), boot_id)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def is_alive(identity: Identity) -> bool:
    """True when exactly this process exists and is no zombie."""
    fields = _stat(identity.pid)
    return _same_boot(identity) and fields is not None and fields[0] not in _DEAD and int(fields[19]) == identity.start_ticks


def members(identity: Identity) -> list[int]:
    """The pids of all live processes in the session that this process leads or led; empty when the pid is another's by now."""
    leader = _stat(identity.pid)
    if not _same_boot(identity) or (leader is not None and int(leader[19]) != identity.start_ticks):
        return []
    # While a session has a member, the kernel gives its id to no new process.
    found = []
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else None
        if fields is not None and fields[0] not in _DEAD and int(fields[3]) == identity.pid:
            found.append(int(name))
    return found


def end(identity: Identity, *, patience_s: float = 15.0) -> bool:
    """True when something was alive and had to be ended; nothing of the session is alive on return.

    Raises:
        EngineFailed: a process survives SIGKILL.
    """
    found = members(identity)
    if not found:
        reap(identity.pid)
        return False
    for number, limit_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        for pid in members(identity):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + limit_s
        while members(identity) and time.monotonic() < deadline:
            reap(identity.pid)
            time.sleep(_POLL_S)
    left = members(identity)
    if left:
        raise EngineFailed(f"processes {left} of the server {identity.pid} survive SIGKILL")
    reap(identity.pid)
    return True


def reap(pid: int) -> None:
    """Takes note of the end of a child of this process, so that it does not stay a zombie; any other pid is left alone."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _same_boot(identity: Identity) -> bool:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() == identity.boot_id


def _stat(pid: int) -> list[str] | None:
    try:
        return _after_name(Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def _after_name(stat: str) -> list[str]:
    # The process name is in parentheses and may itself hold blanks and parentheses: state is the first field after it.
    return stat.rpartition(")")[2].split()
