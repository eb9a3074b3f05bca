"""Virtual environments of foreign packages, one for each list of pinned requirements, made once with uv. Writes files, runs processes."""

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ledger.errors import SettingsError, VenvFailed

INSTALL_S = 1800.0
_PIP_TO_UV = {
    "index-url": "--default-index",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "constraint": "--constraints",
}
_PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[A-Za-z0-9,._-]+\])?==[A-Za-z0-9.!+_-]+")


@dataclass(frozen=True)
class PackageVenv:
    """A virtual environment that is ready.

    Attributes:
        python: its interpreter.
        frozen: what is installed in it, one `name==version` a line, sorted; the requirements and what they needed.
    """

    python: Path
    frozen: str


def package_venv(
    name: str, requirements: Sequence[str], folder: Path, *, imports: Sequence[str] = (), uv: Path | None = None
) -> PackageVenv:
    """The environment with these requirements, made when it is not there yet; several processes may ask at once.

    Args:
        name: readable name, part of the folder's name.
        requirements: pinned, such as `gymnasium==1.4.0`.
        folder: where environments are kept.
        imports: modules that must import there; doing so once keeps their bytecode, which workers do not write.
        uv: the program; default: beside this Python, or on the path.
    Raises:
        SettingsError: a requirement is not pinned.
        VenvFailed: the environment cannot be made; nothing of it is kept as ready.
    """
    loose = [requirement for requirement in requirements if not _PINNED.fullmatch(requirement)]
    if loose:
        raise SettingsError(f"requirement {loose[0]!r} of {name!r} is not pinned; allowed: name==version")
    wanted = "\n".join([f"python {sys.version_info[0]}.{sys.version_info[1]}", *sorted(requirements)])
    home = folder / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    ready = home / "frozen.txt"
    if not ready.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{home.name}.lock"):
            if not ready.exists():
                _make(home, requirements, imports, uv or _uv())
    return PackageVenv(home / "bin" / "python", ready.read_text())


def _make(home: Path, requirements: Sequence[str], imports: Sequence[str], uv: Path) -> None:
    python = str(home / "bin" / "python")
    _run([str(uv), "venv", "--quiet", "--clear", "--python", sys.executable, str(home)])
    _run([str(uv), "pip", "install", "--quiet", "--python", python, *pip_options(), *requirements])
    if imports:
        # The variable would forbid what this is for; empty is as if it were not set.
        _run([python, "-P", "-s", "-c", f"import {', '.join(imports)}"], cwd=home, PYTHONDONTWRITEBYTECODE="")
    frozen = _run([str(uv), "pip", "freeze", "--quiet", "--python", python])
    partial = home / "frozen.partial"
    partial.write_text("\n".join(sorted(frozen.split("\n"))).strip() + "\n")
    partial.replace(home / "frozen.txt")


@cache
def pip_options() -> tuple[str, ...]:
    """This machine's pip configuration as options of uv, which reads none of it."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    values: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", listed, re.M):
        values[key] = value.replace("\\n", " ").split()
    options = [part for key, name in _PIP_TO_UV.items() for value in values.get(key, []) for part in (name, value)]
    return (*options, "--index-strategy", "unsafe-best-match")


def _uv() -> Path:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise VenvFailed(f"no program uv beside {sys.executable} or on the path; `pip install uv` brings it")
    return Path(found)


def _run(command: list[str], *, cwd: Path | None = None, **environment: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, cwd=cwd, env={**os.environ, **environment}
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VenvFailed(f"{shlex.join(command)}: {error}") from error
    if done.returncode != 0:
        raise VenvFailed(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()[-1500:]}")
    return done.stdout


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
