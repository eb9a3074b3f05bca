"""What sealing keeps outside the database: the signing key, the note it signed last, the witness file. Reads and writes files."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from ledger import proof
from ledger.errors import CheckpointError, SealRefused
from ledger.proof import Checkpoint, VerifierKey
from ledger.settings import Settings

_NOTE = re.compile(r"\n\n(?:— [^\n]*\n)+\n*")


@dataclass(frozen=True)
class SealFiles:
    """Where they are.

    Attributes:
        key: PEM of the Ed25519 key, mode 0600.
        witness: published notes one after another; None when none are kept.
    """

    key: Path
    witness: Path | None

    @property
    def signed(self) -> Path:
        """The note that was signed last, beside the key."""
        return self.key.with_suffix(".signed")


def seal_files(settings: Settings) -> SealFiles:
    """Where the settings put them."""
    return SealFiles(settings.seal_key, settings.witness)


def make_key(path: Path) -> Ed25519PrivateKey:
    """A new signing key, written where nobody else can read it.

    Raises:
        SealRefused: there is a key already.
    """
    key = Ed25519PrivateKey.generate()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Under another name until it is whole, so that a process that is killed here leaves no broken key in its place.
    handle, whole = mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            stream.flush()
            os.fsync(stream.fileno())
        os.link(whole, path)
    except FileExistsError:
        raise SealRefused(f"{path} holds a key already; a log sealed with it can only go on with it") from None
    finally:
        os.unlink(whole)
    _sync_folder(path.parent)
    return key


def read_key(path: Path) -> Ed25519PrivateKey:
    """The signing key.

    Raises:
        SealRefused: it is missing, others may read it, or it is no Ed25519 key.
    """
    try:
        mode, data = path.stat().st_mode & 0o777, path.read_bytes()
    except OSError as error:
        raise SealRefused(f"no signing key: {error}; `tally seal --init` makes one, or TALLY_SEAL_KEY_FILE names it") from error
    if mode & 0o077:
        raise SealRefused(f"{path} has mode {mode:o}, so others may read the signing key; allowed: 600 (chmod 600 {path})")
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:
        raise SealRefused(f"{path} is not a PEM key without a password: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SealRefused(f"{path} holds a {type(key).__name__}; allowed: Ed25519")
    return key


def named(key: Ed25519PrivateKey | VerifierKey, origin: str) -> VerifierKey:
    """The verifier key under the name of a log: a log and its forks share the key and differ in the name."""
    public = key.public_key if isinstance(key, VerifierKey) else key.public_key().public_bytes_raw()
    return VerifierKey(origin, proof.key_id(origin, public), public)


def opened(note: str, key: Ed25519PrivateKey | VerifierKey, where: str) -> Checkpoint:
    """The checkpoint in a note that this key signed under the name of the note's own log.

    Raises:
        CheckpointError: it did not; the message says where the note is.
    """
    try:
        return proof.open_checkpoint(note, named(key, note.partition("\n")[0]))
    except (proof.ProofError, proof.KeyFault) as error:
        raise CheckpointError(f"{where}: {error}") from error


def write_signed(path: Path, note: str) -> None:
    """Keep the note that was signed last; durable when this returns, and never half written."""
    draft = path.with_suffix(".signed-draft")
    with draft.open("w", encoding="utf-8") as stream:
        stream.write(note)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)
    _sync_folder(path.parent)


def read_signed(path: Path) -> str | None:
    """The note that was signed last; None when none was."""
    return path.read_text(encoding="utf-8") if path.exists() else None


def read_notes(path: Path) -> list[str]:
    """The notes in a witness file; none when there is no such file.

    Raises:
        CheckpointError: it holds anything else.
    """
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    try:
        return proof.split_notes(text) if text.strip() else []
    except proof.ProofError as error:
        raise CheckpointError(f"{path}: {error}") from error


def append_notes(path: Path, notes: Iterable[str]) -> None:
    """Add notes at the end of a witness file; durable when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.exists()
    with path.open("a", encoding="utf-8") as stream:
        stream.write("".join(notes))
        stream.flush()
        os.fsync(stream.fileno())
    if fresh:
        _sync_folder(path.parent)


def mend(path: Path, known: Sequence[str]) -> bool:
    """Whether the end of a witness file was cut off: the beginning of a known note, which a crash left there.

    Raises:
        CheckpointError: the file ends in something else.
    """
    data = path.read_bytes() if path.exists() else b""
    ends = [match.end() for match in re.finditer(_NOTE.pattern.encode(), data)]
    at = ends[-1] if ends else 0
    # A signature line may have lost its end too, and then looks whole only if its newline is there, so what is left is exactly a beginning.
    rest = data[at:]
    if not rest.strip():
        return False
    if not any(note.encode().startswith(rest) for note in known):
        raise CheckpointError(f"{path} ends in {rest[-60:]!r}; allowed: notes, each ending in signature lines")
    with path.open("r+b") as stream:
        stream.truncate(at)
        os.fsync(stream.fileno())
    return True


def _sync_folder(folder: Path) -> None:
    with _folder(folder) as handle:
        os.fsync(handle)


@contextmanager
def _folder(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)
