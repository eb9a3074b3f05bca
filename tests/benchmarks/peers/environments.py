"""Each peer in a virtual environment of its own, made once under `.bench/`, and its driver run by that environment's Python. Writes files, runs processes."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class PeerUnavailable(RuntimeError):
    """A peer cannot be measured here; the message says what failed."""


@dataclass(frozen=True)
class Peer:
    """What a peer is installed from: pinned requirements and the lowest Python that it takes."""

    requirements: tuple[str, ...]
    python: tuple[int, int] = (3, 11)


PEERS = {
    "eventsourcing": Peer(("eventsourcing==9.5.6", "psycopg[binary,pool]==3.3.9")),
    "mlflow": Peer(("mlflow==3.17.2", "psycopg2-binary==2.9.13")),
    "phoenix": Peer(("arize-phoenix[pg]==20.26.*", "psycopg[binary]==3.3.9")),
    "agentlightning": Peer(("agentlightning==1.0.2",), python=(3, 12)),
    "verifiers": Peer(("verifiers==0.4.0",)),
    "trl": Peer(("trl==1.16.0", "torch==2.13.0", "transformers==5.19.0")),
}


def peer_python(name: str, *, uv: Path | None = None) -> Path:
    """The Python of the peer's environment, which is made when it is missing or was made from other requirements.

    Args:
        name: one of `PEERS`.
        uv: the program; default: beside this Python.
    Raises:
        PeerUnavailable: no fitting Python, or the installation failed; with the end of what uv said.
    """
    peer, home = PEERS[name], ROOT / ".bench" / name
    python, marker = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join(peer.requirements)
    if python.exists() and marker.exists() and marker.read_text() == wanted:
        return python
    uv = uv or Path(sys.executable).parent / "uv"
    version = ".".join(map(str, peer.python))
    interpreter = sys.executable if sys.version_info[:2] >= peer.python else version
    _uv(name, [str(uv), "venv", "--quiet", "--clear", "--python", interpreter, str(home)])
    _uv(name, [str(uv), "pip", "install", "--quiet", "--python", str(python), *_pip_options(), *peer.requirements])
    marker.write_text(wanted)
    return python


def _uv(name: str, command: list[str]) -> None:
    # pyenv's interpreters are not on the path, and its shims answer only for the version that is switched on.
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, pyenv)])
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=1800)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"peer {name!r}: {shlex.join(command)}: {error}") from error
    if done.returncode != 0:
        raise PeerUnavailable(f"peer {name!r}: {shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()[-1500:]}")


def _pip_options() -> list[str]:
    """This machine's pip configuration as options of uv, which reads none of it."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    values: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", listed, re.M):
        values[key] = value.replace("\\n", " ").split()
    names = {
        "index-url": "--default-index",
        "extra-index-url": "--extra-index-url",
        "find-links": "--find-links",
        "constraint": "--constraints",
    }
    options = [part for key, name in names.items() for value in values.get(key, []) for part in (name, value)]
    return [*options, "--index-strategy", "unsafe-best-match"]


def driver(name: str, *arguments: str | int | float, uv: Path | None = None) -> list[str]:
    """The command of a peer's driver.

    Raises:
        PeerUnavailable: as `peer_python`.
    """
    return [str(peer_python(name, uv=uv)), str(HERE / f"drive_{name}.py"), *map(str, arguments)]


def measured(command: Sequence[str], *, cwd: Path | None = None, timeout_s: float = 300.0) -> dict[str, Any]:
    """What a driver that ends by itself printed: one JSON object on its last line.

    Raises:
        PeerUnavailable: it failed, took too long or printed nothing; with the end of its errors.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"{shlex.join(command)}: nothing within {timeout_s:g} s") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise PeerUnavailable(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()[-1500:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result
