"""GGUF files read as data: metadata and weights, without llama.cpp.

Source: the GGUF v3 container and the block layouts of Q4_1 and Q8_0 as documented by ggml.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.errors import DownloadFailed

_MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# ggml type code: (name, bytes a block, values a block)
_LAYOUTS = {0: ("F32", 4, 1), 1: ("F16", 2, 1), 3: ("Q4_1", 20, 32), 8: ("Q8_0", 34, 32)}


@dataclass(frozen=True)
class Weight:
    """One tensor's place in the file: shape in row-major order, ggml type code, first byte."""

    name: str
    shape: tuple[int, ...]
    type_code: int
    offset: int


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file's metadata and the places of its weights."""

    path: Path
    metadata: Mapping[str, Any]
    weights: Mapping[str, Weight]


class _Cursor:
    """A position in the file's bytes that reads little-endian values one after another."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        """The next value of the struct format `code`."""
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self) -> str:
        """The next length-prefixed UTF-8 string."""
        length = self.scalar("Q")
        raw = bytes(self.data[self.at : self.at + length])
        self.at += length
        return raw.decode("utf-8")

    def value(self, kind: int) -> Any:
        """The next metadata value of the given kind (a list for arrays)."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            item_kind, count = self.scalar("I"), self.scalar("Q")
            return [self.value(item_kind) for _ in range(count)]
        return self.scalar(_SCALARS[kind])


def open_gguf(path: Path) -> GgufFile:
    """The metadata and weight places of the GGUF file at `path`.

    Raises:
        DownloadFailed: not a GGUF v3 file, cut short, or a weight is stored in a layout that is not read here.
    """
    cursor = _Cursor(np.memmap(path, dtype=np.uint8, mode="r").data)
    if bytes(cursor.data[:4]) != _MAGIC:
        raise DownloadFailed(f"{path} starts with {bytes(cursor.data[:4])!r}; a GGUF file starts with {_MAGIC!r}")
    cursor.at = 4
    try:
        return _parse(path, cursor)
    except (struct.error, KeyError, UnicodeDecodeError) as damage:
        raise DownloadFailed(f"{path} is not readable as GGUF at byte {cursor.at}: {damage!r}") from damage


def _parse(path: Path, cursor: _Cursor) -> GgufFile:
    version = cursor.scalar("I")
    if version != 3:
        raise DownloadFailed(f"{path} is GGUF version {version}; read here: 3")
    weight_count, metadata_count = cursor.scalar("Q"), cursor.scalar("Q")
    metadata: dict[str, Any] = {}
    for _ in range(metadata_count):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.scalar("I"))
    headers: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(weight_count):
        name = cursor.text()
        # ggml lists the fastest axis first.
        shape = tuple(reversed([int(cursor.scalar("Q")) for _ in range(cursor.scalar("I"))]))
        type_code, relative = cursor.scalar("I"), cursor.scalar("Q")
        if type_code not in _LAYOUTS:
            raise DownloadFailed(f"weight {name} of {path} has ggml type {type_code}; read here: {sorted(_LAYOUTS)}")
        headers.append((name, shape, type_code, relative))
    alignment = int(metadata.get("general.alignment", 32))
    start = -(-cursor.at // alignment) * alignment
    weights = {name: Weight(name, shape, type_code, start + relative) for name, shape, type_code, relative in headers}
    for weight in weights.values():
        if weight.offset + _stored_bytes(weight) > len(cursor.data):
            raise DownloadFailed(f"{path} ends at byte {len(cursor.data)}, before the end of weight {weight.name}")
    return GgufFile(path, metadata, weights)


def _stored_bytes(weight: Weight) -> int:
    _, block_bytes, block_values = _LAYOUTS[weight.type_code]
    return int(np.prod(weight.shape)) // block_values * block_bytes


def read_weight(file: GgufFile, name: str) -> NDArray[np.float32]:
    """The weight `name` as float32 in row-major shape, dequantised exactly.

    Raises:
        DownloadFailed: the file has no such weight.
    """
    if name not in file.weights:
        raise DownloadFailed(f"{file.path} has no weight {name!r}; it has {len(file.weights)}, such as {sorted(file.weights)[:3]}")
    weight = file.weights[name]
    raw = np.fromfile(file.path, dtype=np.uint8, count=_stored_bytes(weight), offset=weight.offset)
    layout, block_bytes, _ = _LAYOUTS[weight.type_code]
    if layout == "F32":
        return raw.view(np.float32).reshape(weight.shape)
    if layout == "F16":
        return raw.view(np.float16).astype(np.float32).reshape(weight.shape)
    blocks = raw.reshape(-1, block_bytes)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if layout == "Q8_0":
        values = scale * blocks[:, 2:].view(np.int8).astype(np.float32)
    else:
        minimum = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
        packed = blocks[:, 4:]
        # The low halves of the 16 bytes are values 0 to 15, the high halves are values 16 to 31.
        nibbles = np.concatenate([packed & 0x0F, packed >> 4], axis=1).astype(np.float32)
        values = scale * nibbles + minimum
    return np.ascontiguousarray(values, dtype=np.float32).reshape(weight.shape)
