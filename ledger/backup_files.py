"""The files of a backup: compressed, each with its SHA-256 in a manifest, which is written last. Writes and reads a folder."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import zstandard

from ledger.errors import BackupError
from ledger.log_root import LogProof, Published

FORMAT = "tallystick/backup/1"
MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"
LEVEL = 3
PIECE_BYTES = 128 * 1024
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Table:
    """A table's rows in PostgreSQL's binary COPY format."""

    file: str
    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Filed:
    """A file as it lies in the backup."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What a backup holds.

    Attributes:
        revision: of the schema.
        partition_width: numbers in a partition.
        log: what the restored log must be.
        tables, sequences: by name.
        files: path within the folder to what it must be.
        settings: of the deployment, without passwords.
        left_out: what is not in the backup and why.
    """

    software: str
    made_at: str
    postgresql: str
    revision: str
    partition_width: int
    log: LogProof
    tables: dict[str, Table]
    sequences: dict[str, int]
    files: dict[str, Filed]
    settings: dict[str, Any]
    left_out: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(filed.bytes for filed in self.files.values())


class Writer:
    """Writes files below a folder, and remembers what they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, Filed] = {}

    @contextmanager
    def file(self, name: str) -> Iterator[Callable[[bytes], Any]]:
        """A function that writes bytes to a new compressed file; the file is on disk when the block ends."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as raw:
            sink = _Hashed(raw.write)
            with zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).stream_writer(sink, closefd=False) as stream:  # type: ignore[arg-type]
                yield stream.write
            raw.flush()
            os.fsync(raw.fileno())
        self.files[name] = Filed(sink.digest.hexdigest(), sink.size)


class _Hashed:
    def __init__(self, write: Callable[[bytes], int]) -> None:
        self._write, self.digest, self.size = write, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._write(data)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A private folder beside `folder` that takes its name when the block ends, and is gone when it fails.

    Raises:
        BackupError: there is something of that name, or its parent cannot be written.
    """
    if folder.exists():
        raise BackupError(f"{folder} exists; expected the name of a folder that does not")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise BackupError(f"{error.filename or folder}: {error.strerror or error}") from error
    try:
        yield work
        work.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise BackupError(f"{error.filename or folder}: {error.strerror or error}; nothing is left of this backup") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def sync(folder: Path) -> None:
    """Have the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest and its own SHA-256."""
    text = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1, sort_keys=True) + "\n"
    for name, content in ((MANIFEST, text), (DIGEST, f"{hashlib.sha256(text.encode()).hexdigest()}  {MANIFEST}\n")):
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup.

    Raises:
        BackupError: there is none, it is damaged, or it has another format.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
        noted = (folder / DIGEST).read_text().split()[0]
        value = json.loads(text)
        seen = value.pop("format")
    except (OSError, ValueError, LookupError, AttributeError) as error:
        raise BackupError(f"{folder} is no backup: {error!r}; expected a folder with {MANIFEST} and {DIGEST}") from error
    if hashlib.sha256(text).hexdigest() != noted:
        raise BackupError(f"{folder / MANIFEST} has SHA-256 {hashlib.sha256(text).hexdigest()}; {DIGEST} says {noted}")
    if seen != FORMAT:
        raise BackupError(f"{folder} has format {seen!r}; this release reads {FORMAT}")
    log = value.pop("log")
    checkpoint = log.pop("checkpoint")
    return Manifest(
        log=LogProof(**log, checkpoint=None if checkpoint is None else Published(**checkpoint)),
        tables={name: Table(item["file"], tuple(item["columns"]), item["rows"]) for name, item in value.pop("tables").items()},
        files={name: Filed(**item) for name, item in value.pop("files").items()},
        left_out=tuple(value.pop("left_out")),
        **value,
    )


def check_files(folder: Path, manifest: Manifest, *, progress: Progress = lambda done, total: None) -> None:
    """Return when every file is there and as it was written.

    Raises:
        BackupError: the first file that is not.
    """
    done = 0
    for name, filed in sorted(manifest.files.items()):
        digest = hashlib.sha256()
        try:
            with (folder / name).open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
                    done += len(piece)
                    progress(done, manifest.bytes)
        except OSError as error:
            raise BackupError(f"{folder / name}: {error.strerror or error}; the backup is not whole") from error
        if digest.hexdigest() != filed.sha256:
            raise BackupError(f"{folder / name} has SHA-256 {digest.hexdigest()}; the manifest says {filed.sha256}")


def pieces(path: Path) -> Iterator[bytes]:
    """The uncompressed bytes of a file, in pieces.

    Raises:
        BackupError: it cannot be read or decompressed.
    """
    try:
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            while piece := stream.read(PIECE_BYTES):
                yield piece
    except (OSError, zstandard.ZstdError) as error:
        raise BackupError(f"{path}: {error}") from error
