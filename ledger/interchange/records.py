"""Records of an export in its two carriers, JSON lines (plain or zstd) and Parquet, each with a check sum. Reads and writes files.

A record has the same columns in both carriers; absent ones are left out of a JSON line and null in Parquet. Its line is its canonical JSON,
bytes in base64; its `sum` covers its number and that line, so a changed, lost, doubled or moved record is named by itself.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson
import zstandard

from ledger.errors import ExportFault
from ledger.proof import ProofError, b64, unb64

Record = dict[str, Any]
COLUMNS: dict[str, type] = {
    "record": str, "position": int, "ledger_id": str, "project": str, "event_id": str, "stream": str, "version": int, "kind": str,
    "schema_version": int, "canonicaliser": str, "occurred_at": str, "actor_id": str, "correlation_id": str, "causation_id": str,
    "key": str, "body": bytes, "leaf": bytes, "inclusion": bytes, "blob_id": bytes, "subject_id": str, "size": int, "codec": int,
    "chunk": int, "chunks": int, "data": bytes, "salt": bytes, "secret": bytes, "destroyed_at": str, "calls": int, "parent": str,
    "shared": int, "prompt": bytes, "sampled": bytes, "logprobs": bytes, "text": str,
}  # fmt: skip
SUFFIXES = (".jsonl", ".jsonl.zst", ".parquet")
ROWS = 1000
SUM_DIGITS = 16
PARQUET_BYTES = 32 * 1024 * 1024
"""Records are written to Parquet by the thousand, or sooner when they hold so many bytes."""


class Writer(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None:
        """Add one."""


def line_of(record: Record) -> bytes:
    """The canonical JSON of a record, without its sum."""
    plain = {name: b64(value) if isinstance(value, bytes) else value for name, value in record.items()}
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)


def sum_of(number: int, line: bytes) -> str:
    """The check sum of record `number`, counted from 1."""
    return sha256(b"%d\n%s" % (number, line)).hexdigest()[:SUM_DIGITS]


def unit(path: Path) -> str:
    """What a record is called in this file."""
    return "row" if path.name.endswith(".parquet") else "line"


def check_suffix(path: Path) -> None:
    """None when the name says which carrier it is.

    Raises:
        ExportFault: it does not.
    """
    if not path.name.endswith(SUFFIXES):
        raise ExportFault(f"{path.name}: ends in none of {', '.join(SUFFIXES)}")


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """A writer of a new file, which appears under its name once all is written and on the disk."""
    check_suffix(path)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as raw:
            if path.name.endswith(".parquet"):
                with _parquet_writer(raw) as parquet:
                    yield parquet
            elif path.name.endswith(".zst"):
                with zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False) as stream:
                    yield _Lines(stream.write)
            else:
                yield _Lines(raw.write)
            raw.flush()
            os.fsync(raw.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class _Lines:
    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self._write, self._count = write, 0

    def write(self, record: Record) -> None:
        self._count += 1
        line = line_of(record)
        self._write(orjson.dumps({**orjson.loads(line), "sum": sum_of(self._count, line)}, option=orjson.OPT_SORT_KEYS) + b"\n")


class _Parquet:
    def __init__(self, flush: Callable[[list[Record]], None]) -> None:
        self._flush, self._count, self._bytes = flush, 0, 0
        self._held: list[Record] = []

    def write(self, record: Record) -> None:
        self._count += 1
        line = line_of(record)
        self._held.append({**record, "sum": sum_of(self._count, line)})
        self._bytes += len(line)
        if len(self._held) >= ROWS or self._bytes >= PARQUET_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self._flush(self._held)
            self._held, self._bytes = [], 0


@contextmanager
def _parquet_writer(raw: BinaryIO) -> Iterator[_Parquet]:
    # Half a second to load, and only this carrier needs it.
    import pyarrow as pa
    from pyarrow import parquet

    schema = _schema()
    with parquet.ParquetWriter(raw, schema, compression="zstd") as writer:
        made = _Parquet(lambda rows: writer.write_table(pa.Table.from_pylist(rows, schema=schema)))
        yield made
        made.flush()


def _schema() -> Any:
    import pyarrow as pa

    kinds = {str: pa.string(), int: pa.int64(), bytes: pa.binary()}
    return pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()] + [("sum", pa.string())])


def reading(path: Path) -> Iterator[tuple[int, Record, bytes]]:
    """Number, record and line of each record, its sum checked.

    Raises:
        ExportFault: a record is not one, or is not the one that was written there.
    """
    check_suffix(path)
    name = unit(path)
    for number, record, written in _rows(path) if name == "row" else _lines(path):
        line = line_of(record)
        if written != sum_of(number, line):
            raise ExportFault(f"{name} {number}: its sum is {str(written)[:40]!r}; what it holds gives {sum_of(number, line)}")
        yield number, record, line


def _lines(path: Path) -> Iterator[tuple[int, Record, str]]:
    number = 0
    try:
        with path.open("rb") as raw:
            stream = zstandard.ZstdDecompressor().stream_reader(raw) if path.name.endswith(".zst") else raw
            for number, text in enumerate(io.BufferedReader(stream), 1):
                yield number, *_parsed(number, text)
    except zstandard.ZstdError as error:
        raise ExportFault(f"line {number + 1}: the compressed file is damaged here or before: {error}") from error


def _parsed(number: int, text: bytes) -> tuple[Record, str]:
    try:
        content = orjson.loads(text)
        written = content.pop("sum")
        record = {}
        for name, value in content.items():
            kind = COLUMNS[name]
            record[name] = unb64(value, name) if kind is bytes else value
            if not isinstance(record[name], kind) or isinstance(value, bool):
                raise TypeError(f"{name} is {str(value)[:40]!r}; allowed: {kind.__name__}")
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ProofError) as error:
        raise ExportFault(f"line {number}: not a record of an export: {error}; seen {text[:60]!r}") from error
    if text != orjson.dumps({**content, "sum": written}, option=orjson.OPT_SORT_KEYS) + b"\n":
        raise ExportFault(f"line {number}: it is not written in canonical form")
    return record, written


def _rows(path: Path) -> Iterator[tuple[int, Record, str]]:
    import pyarrow as pa
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            if not file.schema_arrow.equals(_schema()):
                seen, wanted = (", ".join(f"{field.name} {field.type}" for field in schema) for schema in (file.schema_arrow, _schema()))
                raise ExportFault(f"row 1: the file has columns {seen[:400]}; allowed: {wanted}")
            for batch in file.iter_batches(batch_size=ROWS):
                for row in batch.to_pylist():
                    number += 1
                    record = {name: value for name, value in row.items() if value is not None}
                    yield number, record, record.pop("sum", "")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ExportFault(f"row {number + 1}: the file is damaged here or in the rows up to {number + ROWS}: {error}") from error
