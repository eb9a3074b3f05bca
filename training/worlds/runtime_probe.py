"""Program that tries each protection from inside a sandbox and prints, as JSON, those that did not hold with why. Standard library only."""

import errno
import json
import mmap
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial

SCRATCH = os.environ.get("SCRATCH", "")


def refused(action: Callable[[], object]) -> str:
    """Empty when the action was refused, else what happened instead."""
    try:
        found = action()
    except (OSError, ValueError):
        return ""
    return f"went through: {found!r:.80}"


def reading(given: dict) -> str:  # type: ignore[type-arg]
    """Files of the machine and of this program's own repository."""
    seen = [path for path in ("/etc/passwd", "/proc", "/sys", "/tmp", "/var", given["here"]) if os.path.lexists(path)]
    for path in seen:
        went = refused(partial(os.open, path, os.O_RDONLY))
        if went:
            return f"can read {path}"
    return f"contents are hidden, existence is not: {', '.join(seen)}" if seen else ""


def writing() -> str:
    """Folders of every kind but the scratch folder."""
    for folder in ("/", "/dev", "/dev/shm", "/etc", "/home", "/root", "/tmp", "/usr/lib", "/var/tmp", os.environ["TASK"]):
        if refused(partial(os.open, os.path.join(folder, "probe"), os.O_CREAT | os.O_WRONLY)):
            return f"wrote into {folder}"
    return ""


def scratch_size() -> str:
    """More files' bytes than the folder may hold."""

    def fill() -> None:
        for index in range(4):
            with open(f"{SCRATCH}/fill{index}", "wb") as file:
                file.write(b"x" * (1 << 20))

    went = refused(fill)
    for name in os.listdir(SCRATCH):
        os.unlink(f"{SCRATCH}/{name}")
    return went


def network() -> str:
    """A socket of each kind."""
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
        went = refused(partial(socket.socket, family, socket.SOCK_DGRAM))
        if went:
            return went
    return ""


def other_processes(given: dict) -> str:  # type: ignore[type-arg]
    """The process that started this one; a low number may be one of this sandbox's own."""
    if os.path.exists(f"/proc/{given['pid']}"):
        return "others can be seen in /proc"
    return refused(lambda: os.kill(given["pid"], 0)) if given["pid"] > 8 else ""


def group_kill() -> str:
    """A process namespace, whose numbers start at 1."""
    return f"no process namespace: this is process {os.getpid()} of the machine" if os.getpid() > 8 else ""


def privileges() -> str:
    """Another user, and root again."""
    if os.getuid() == 0:
        return "runs as root"
    return refused(lambda: os.setuid(0)) or refused(lambda: os.setgroups([0]))


def system_calls() -> str:
    """Memory that no limit counts."""
    return refused(lambda: os.memfd_create("probe"))


def process_count() -> str:
    """More children than allowed."""
    children: list[int] = []
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                time.sleep(5)
                os._exit(0)
            children.append(child)
        return f"started {len(children)} processes, allowed are 3"
    except OSError as error:
        return "" if error.errno == errno.EAGAIN else str(error)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def limit(name: str) -> str:
    """A limit that is in force and cannot be raised."""
    which = getattr(resource, f"RLIMIT_{name}")
    soft, hard = resource.getrlimit(which)
    if resource.RLIM_INFINITY in (soft, hard):
        return "no limit"
    return refused(lambda: resource.setrlimit(which, (hard + 1, hard + 1)))


def file_size() -> str:
    """A file larger than allowed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    fd = os.open(f"{SCRATCH}/large", os.O_CREAT | os.O_RDWR)
    try:
        return refused(lambda: os.ftruncate(fd, 64 << 20))
    finally:
        os.close(fd)
        os.unlink(f"{SCRATCH}/large")


def main() -> None:
    """Prints the protections that did not hold."""
    given = json.load(sys.stdin)
    found = {
        "reading": reading(given), "writing": writing(), "scratch_size": scratch_size(), "network": network(),
        "other_processes": other_processes(given), "group_kill": group_kill(), "privileges": privileges(),
        "system_calls": system_calls(), "process_count": process_count(), "cpu": limit("CPU"),
        "memory": limit("AS") or refused(lambda: mmap.mmap(-1, 512 << 20)), "file_size": file_size(),
    }  # fmt: skip
    print(json.dumps({name: went for name, went in found.items() if went}))


if __name__ == "__main__":
    main()
