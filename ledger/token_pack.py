"""Packs: all calls of an ended rollout in one byte string, each token once, ids and logprobs exact. Pure.

Format version 1, little-endian: a header (magic, version, counts, frame lengths); the event ids of the calls, then of parents in other
packs; eight zstd frames; the CRC-32 of all that. Frames 0-1 are the low and high half-words of the directory, five int32 columns (parent,
shared, lengths of suffix, completion and logprobs; -1 is an absent array or no parent); frames 2-3 those of the ids, suffix then completion
call by call; frames 4-7 the byte planes of the logprobs.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from ledger.errors import TokenError
from ledger.token_calls import IDS, LOGPROBS, TokenCall, TokenRow
from ledger.token_columns import ABSENT, COLUMNS, TokenColumns, columns_of, in_lines
from ledger.token_link import Linker

MAGIC = b"TLYT"
VERSION = 1
LEVEL = 19
"""Half-words at this level come within a bit of the ids' order-0 entropy; 100,000 ids take about 0.1 s."""
MAX_CALLS = 2**20
MAX_TOKENS = 2**26
"""Of one pack, ids and logprobs each: what a hostile header can make a reader allocate is 256 MiB an array."""

_HEADER = struct.Struct("<4sB4I8I")
_CRC = struct.Struct("<I")
_HALF_WORDS, _BYTES = np.dtype("<u2"), np.dtype("u1")


def pack(calls: Sequence[TokenCall], *, earlier: Iterable[TokenCall] = ()) -> bytes:
    """The calls as one byte string, each linked to the best parent among all of them and the earlier ones; parents come first.

    Args:
        calls: one stream's calls in any order; ties between parents go to the later of equal prompt lengths.
        earlier: calls of the stream that are stored already, which may become parents and are not packed.

    Raises:
        TokenError: an event twice, or more than `MAX_CALLS` calls or `MAX_TOKENS` tokens.
    """
    return pack_rows(linked(calls, earlier=earlier))


def linked(calls: Sequence[TokenCall], *, earlier: Iterable[TokenCall] = ()) -> list[TokenRow]:
    """The calls as rows, each beside its best parent, in the order of `ledger.token_columns.in_lines`.

    A prompt that holds a completion is longer than the prompt that led to it, so by length every call meets its best parent already known.
    """
    linker = Linker()
    for call in sorted(earlier, key=_prompt_length):
        if call.prompt is not None:
            linker.add(call.event_id, call.prompt, call.sampled)
    rows: list[TokenRow] = []
    for call in sorted(calls, key=_prompt_length):
        if call.prompt is None:
            rows.append(TokenRow(call.event_id, None, 0, None, call.sampled, call.logprobs))
            continue
        link = linker.find(call.prompt)
        linker.add(call.event_id, call.prompt, call.sampled)
        rows.append(TokenRow(call.event_id, link.parent, link.shared, link.suffix, call.sampled, call.logprobs))
    return in_lines(rows)


def pack_rows(rows: Sequence[TokenRow]) -> bytes:
    """The rows as one byte string, in this order; a parent that is among them must come before its children.

    Raises:
        TokenError: an event twice, a parent after its child, or more than `MAX_CALLS` calls or `MAX_TOKENS` tokens.
    """
    columns = columns_of(rows)
    directory, event_ids = columns.directory, columns.event_ids
    counts = (len(rows), len(event_ids) - len(rows), len(columns.ids), len(columns.logprobs))
    _check_counts(counts)
    frames = [*_split(directory.reshape(-1), _HALF_WORDS), *_split(columns.ids, _HALF_WORDS), *_split(columns.logprobs, _BYTES)]
    header = _HEADER.pack(MAGIC, VERSION, *counts, *map(len, frames))
    body = b"".join((header, *map(_id_bytes, event_ids), *frames))
    return body + _CRC.pack(zlib.crc32(body))


def unpack(data: bytes) -> TokenColumns:
    """What a pack holds, parents first; arrays are read-only.

    Raises:
        TokenError: not a pack, of another version, damaged, cut short, or with lengths that do not fit together.
    """
    counts, frames, event_ids = _read_container(data)
    calls, outside, id_count, logprob_count = counts
    decompressor = zstandard.ZstdDecompressor()
    directory = _join(decompressor, frames[:2], calls * COLUMNS, _HALF_WORDS).view(IDS).reshape(COLUMNS, calls)
    ids = _join(decompressor, frames[2:4], id_count, _HALF_WORDS).view(IDS)
    logprobs = _join(decompressor, frames[4:], logprob_count, _BYTES).view(LOGPROBS)
    parent, lengths = directory[0], directory[2:]
    fits = ((parent >= ABSENT) & (parent < np.arange(calls))) | ((parent >= calls) & (parent < calls + outside))
    fits &= (lengths >= ABSENT).all(axis=0)
    if not fits.all():
        place = int(fits.argmin())
        raise TokenError(
            f"token pack: call {place} has parent {parent[place]} or a length below {ABSENT}; allowed: earlier or outside calls"
        )
    told = np.maximum(lengths, 0).sum(axis=1, dtype=np.int64)
    if (told[0] + told[1], told[2]) != (id_count, logprob_count):
        raise TokenError(
            f"token pack: its calls have {told[0] + told[1]} ids and {told[2]} logprobs, its header {id_count}, {logprob_count}"
        )
    return TokenColumns(event_ids, directory, ids, logprobs)


def _read_container(data: bytes) -> tuple[tuple[int, int, int, int], list[bytes], list[str]]:
    """Counts, compressed frames and event ids, after the checks that need nothing decompressed."""
    if len(data) < _HEADER.size + _CRC.size:
        raise TokenError(f"token pack of {len(data)} bytes; allowed: {_HEADER.size + _CRC.size} or more")
    magic, version, *numbers = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise TokenError(f"token pack begins with {magic!r}; allowed: {MAGIC!r}")
    if version != VERSION:
        raise TokenError(f"token pack of format version {version}; allowed: {VERSION}")
    counts, lengths = (numbers[0], numbers[1], numbers[2], numbers[3]), numbers[4:]
    _check_counts(counts)
    named = counts[0] + counts[1]
    expected = _HEADER.size + 16 * named + sum(lengths) + _CRC.size
    if len(data) != expected:
        raise TokenError(f"token pack of {len(data)} bytes; its header says {expected}")
    (crc,) = _CRC.unpack_from(data, expected - _CRC.size)
    if zlib.crc32(memoryview(data)[: -_CRC.size]) != crc:
        raise TokenError("token pack is damaged: its CRC-32 does not match its bytes")
    at = _HEADER.size
    event_ids = [_id_text(data[start : start + 16]) for start in range(at, at + 16 * named, 16)]
    if len(set(event_ids)) != named:
        raise TokenError(f"token pack names {len(set(event_ids))} events in {named} places; allowed: each event once")
    at += 16 * named
    frames: list[bytes] = []
    for length in lengths:
        frames.append(data[at : at + length])
        at += length
    return counts, frames, event_ids


def _check_counts(counts: tuple[int, int, int, int]) -> None:
    calls, outside, ids, logprobs = counts
    if calls > MAX_CALLS or outside > calls:
        raise TokenError(f"token pack of {calls} calls with {outside} parents elsewhere; allowed: up to {MAX_CALLS}, a parent a call")
    if max(ids, logprobs) > MAX_TOKENS:
        raise TokenError(f"token pack of {ids} ids and {logprobs} logprobs; allowed: up to {MAX_TOKENS} each")


def _split(array: NDArray[Any], part: np.dtype[Any]) -> list[bytes]:
    """One zstd frame for each part of the elements, lowest first (parts of one kind compress better apart); none for no elements."""
    parts = array.itemsize // part.itemsize
    if not len(array):
        return [b""] * parts
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    return [compressor.compress(column.tobytes()) for column in array.view(part).reshape(-1, parts).T]


def _join(decompressor: zstandard.ZstdDecompressor, frames: list[bytes], count: int, part: np.dtype[Any]) -> NDArray[Any]:
    """The 4-byte elements whose parts are in `frames`, as one row of parts."""
    table = np.empty((count, len(frames)), part)
    for column, frame in enumerate(frames):
        table[:, column] = np.frombuffer(_decompressed(decompressor, frame, count * part.itemsize), part)
    table.flags.writeable = False
    return table.reshape(-1)


def _decompressed(decompressor: zstandard.ZstdDecompressor, frame: bytes, size: int) -> bytes:
    if not frame and not size:
        return b""
    try:
        told = zstandard.frame_content_size(frame)
        if told != size:
            raise TokenError(f"token pack: a frame says that it holds {told} bytes; the directory says {size}")
        plain = decompressor.decompress(frame, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise TokenError(f"token pack: a frame cannot be decompressed ({error})") from error
    return plain


def _id_bytes(event_id: str) -> bytes:
    """A UUID's 16 bytes; only the usual text, which `_id_text` gives back, is one."""
    try:
        raw = bytes.fromhex(event_id.replace("-", ""))
    except ValueError:
        raw = b""
    if len(raw) != 16 or _id_text(raw) != event_id:
        raise TokenError(f"event id {event_id!r} cannot be packed; allowed: a UUID in lower case")
    return raw


def _id_text(raw: bytes) -> str:
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _prompt_length(call: TokenCall) -> int:
    return 0 if call.prompt is None else len(call.prompt)
