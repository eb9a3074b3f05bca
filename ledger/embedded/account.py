"""Says which account runs the embedded server and what it can reach; root makes that account if missing and opens no directory to it."""

import errno
import os
import pwd
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ledger.errors import EmbeddedPostgresError

SYSTEM_ACCOUNT = "tallystick"
# Messages are matched in English and times are read in UTC; the caller's PG* variables must not reach the server.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True)
class Account:
    """An unprivileged account of this machine: name, user id, group id."""

    name: str
    uid: int
    gid: int


def account_for(home: Path, data_dir: Path | None) -> Account | None:
    """The account that must run the server, or None when the caller is not root and runs it as itself.

    The owner of the data directory, else the owner of `home` unless that is root, else the system account `tallystick`, made if missing.

    Raises:
        EmbeddedPostgresError: the data directory belongs to root, or the account can neither be found nor made.
    """
    if os.geteuid() != 0:
        return None
    made = data_dir is not None and data_dir.is_dir()
    owned = data_dir.stat() if made and data_dir is not None else home.stat()
    if owned.st_uid != 0:
        try:
            return Account(pwd.getpwuid(owned.st_uid).pw_name, owned.st_uid, owned.st_gid)
        except KeyError:
            return Account(str(owned.st_uid), owned.st_uid, owned.st_gid)
    if made:
        raise EmbeddedPostgresError(f"{data_dir} belongs to root; PostgreSQL needs an owner that is not root, such as {SYSTEM_ACCOUNT}")
    return _system_account()


def reaches(account: Account | None, directory: Path) -> bool:
    """True when the account can enter the directory; asked of the kernel in a process of that account, so every parent counts."""
    if account is None:
        return os.access(directory, os.X_OK)
    return run_as(account, ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(directory)]).returncode == 0


def run_as(account: Account | None, command: list[str]) -> subprocess.CompletedProcess[str]:
    """The finished command, run as the account, with both outputs together in `stdout`; return code 126 when it may not be executed.

    Raises:
        EmbeddedPostgresError: this process may not switch to the account, or there is no such program.
    """
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env=ENVIRONMENT,
            umask=0o077,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            check=False,
        )
    except OSError as error:
        if error.errno == errno.EACCES:
            return subprocess.CompletedProcess(command, 126, stdout=f"{command[0]}: {error.strerror}")
        who = account.name if account else "this user"
        raise EmbeddedPostgresError(
            f"cannot run {command[0]} as {who}: {error.strerror}; a caller that is not root needs no other account"
        ) from error


def _system_account() -> Account:
    """The account `tallystick`, of its own so that no other daemon's user can read the data."""
    said = "no useradd or adduser on this machine"
    for _ in range(5):
        try:
            found = pwd.getpwnam(SYSTEM_ACCOUNT)
        except KeyError:
            said = _make_system_account() or said
            # The user database may be locked by another process that makes the same account.
            time.sleep(0.2)
            continue
        if found.pw_uid == 0:
            raise EmbeddedPostgresError(f"the account {SYSTEM_ACCOUNT} has user id 0; PostgreSQL needs one that is not root")
        return Account(found.pw_name, found.pw_uid, found.pw_gid)
    raise EmbeddedPostgresError(f"cannot make the system account {SYSTEM_ACCOUNT!r} ({said}); make it or run as an ordinary user")


def _make_system_account() -> str:
    """What the tool that makes accounts printed; '' when it succeeded or there is none."""
    if useradd := shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        command = [useradd, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    elif adduser := shutil.which("adduser", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        command = [adduser, "-S", "-D", "-H", "-s", "/sbin/nologin"]
    else:
        return ""
    done = run_as(None, [*command, SYSTEM_ACCOUNT])
    return "" if done.returncode == 0 else done.stdout.strip()
