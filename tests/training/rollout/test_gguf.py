"""GGUF weights come out as the numbers that their blocks mean, and a damaged file is refused."""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ledger.errors import DownloadFailed
from training.rollout.gguf import open_gguf, read_weight
from training.rollout.pretrained import hf_weights


def text(value: str) -> bytes:
    """A GGUF string."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def write_gguf(path: Path, metadata: Mapping[str, int], weights: Mapping[str, tuple[tuple[int, ...], int, bytes]]) -> Path:
    """A GGUF v3 file of uint32 metadata and weights given as (row-major shape, ggml type, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(metadata))
    for key, value in metadata.items():
        head += text(key) + struct.pack("<II", 4, value)
    body = b""
    for name, (shape, kind, data) in weights.items():
        head += (
            text(name)
            + struct.pack("<I", len(shape))
            + struct.pack(f"<{len(shape)}Q", *reversed(shape))
            + struct.pack("<IQ", kind, len(body))
        )
        body += data + b"\0" * (-len(data) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path


def half(value: float) -> bytes:
    """A little-endian float16."""
    return np.float16(value).tobytes()


def test_q4_1_is_scale_times_nibble_plus_minimum_low_halves_first(tmp_path: Path) -> None:
    block = half(0.5) + half(-1.0) + bytes([0x20 | 0x03]) + bytes(15)
    file = open_gguf(write_gguf(tmp_path / "a.gguf", {}, {"w": ((1, 32), 3, block)}))
    values = read_weight(file, "w")
    assert values.shape == (1, 32)
    # 0.5 * 3 - 1, 0.5 * 2 - 1 and 0.5 * 0 - 1.
    assert (values[0, 0], values[0, 16], values[0, 1]) == (0.5, 0.0, -1.0)


def test_q8_0_is_scale_times_signed_byte(tmp_path: Path) -> None:
    block = half(0.25) + struct.pack("<32b", -128, 127, *([4] * 30))
    values = read_weight(open_gguf(write_gguf(tmp_path / "a.gguf", {}, {"w": ((32,), 8, block)})), "w")
    assert values[:3].tolist() == [-32.0, 31.75, 1.0]


def test_query_rows_change_from_interleaved_pairs_to_halves(tmp_path: Path) -> None:
    def plain(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, bytes]:
        return shape, 0, np.arange(np.prod(shape), dtype=np.float32).tobytes()

    names = {"attn_norm": (2,), "attn_q": (4, 2), "attn_k": (4, 2), "attn_v": (4, 2), "attn_output": (2, 4)}
    names |= {"ffn_norm": (2,), "ffn_gate": (3, 2), "ffn_up": (3, 2), "ffn_down": (2, 3)}
    weights = {f"blk.0.{name}.weight": plain(shape) for name, shape in names.items()}
    weights |= {"token_embd.weight": plain((5, 2)), "output_norm.weight": plain((2,))}
    metadata = {"llama.attention.head_count": 1, "llama.attention.head_count_kv": 1, "llama.block_count": 1}
    found = dict(hf_weights(open_gguf(write_gguf(tmp_path / "a.gguf", metadata, weights))))
    assert found["model.layers.0.self_attn.q_proj.weight"][:, 0].tolist() == [0.0, 4.0, 2.0, 6.0]
    assert found["model.layers.0.self_attn.v_proj.weight"][:, 0].tolist() == [0.0, 2.0, 4.0, 6.0]
    # No output layer in the file: the embedding is used, as a copy of its own.
    assert np.array_equal(found["lm_head.weight"], found["model.embed_tokens.weight"])
    assert not np.shares_memory(found["lm_head.weight"], found["model.embed_tokens.weight"])


def test_what_is_no_gguf_cut_short_or_of_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    good = write_gguf(tmp_path / "a.gguf", {"k": 1}, {"w": ((32,), 8, bytes(34))})
    with pytest.raises(DownloadFailed, match="no weight 'v'"):
        read_weight(open_gguf(good), "v")
    other = tmp_path / "b.gguf"
    other.write_bytes(b"PK\x03\x04" + bytes(60))
    with pytest.raises(DownloadFailed, match="starts with"):
        open_gguf(other)
    for keep in (30, 64, 97):
        other.write_bytes(good.read_bytes()[:keep])
        with pytest.raises(DownloadFailed):
            open_gguf(other)
    with pytest.raises(DownloadFailed, match="ggml type 14"):
        open_gguf(write_gguf(tmp_path / "c.gguf", {}, {"w": ((256,), 14, bytes(210))}))
