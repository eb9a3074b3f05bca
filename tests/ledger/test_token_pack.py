"""Packs: exact round trips, each token once, damage of any byte found, and format version 1 for ever."""

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import TokenError
from ledger.token_calls import IDS, LOGPROBS, TokenCall, TokenRow
from ledger.token_pack import MAX_CALLS, MAX_TOKENS, pack, pack_rows, unpack
from ledger.token_sequences import reconstruct
from tests.token_histories import SALT, commitments, event, histories, ids, plain

GOLDEN = Path(__file__).parent / "golden" / "token_pack_1.bin"
HEADER = struct.Struct("<4sB4I8I")


def golden_calls() -> list[TokenCall]:
    """A chain, a sub-agent, a second sample, an empty completion, a call without arrays and one whose parent lies elsewhere."""
    first, second = ids(1, 70_000, 2**31 - 1, 4), ids(5, 6)
    scores = np.array([-0.0, float("-inf")], LOGPROBS)
    return [
        TokenCall(event(0), first, second, scores),
        TokenCall(event(1), np.concatenate([first, second, ids(7)]), ids(), np.array([], LOGPROBS)),
        TokenCall(event(2), np.concatenate([first[:2], ids(9)]), ids(8), None),
        TokenCall(event(3), first, ids(5, 0), np.array([-0.25, -1.1920929e-07], LOGPROBS)),
        TokenCall(event(4), None, None, None),
        TokenCall(event(5), ids(30, 31, 32), None, None),
    ]


EARLIER = TokenCall(event(9), ids(30, 31), None, None)


def unpacked(data: bytes) -> list[TokenRow]:
    return unpack(data).rows()


def bare(row: TokenRow) -> tuple[object, ...]:
    arrays = (None if array is None else array.tolist() for array in (row.suffix, row.sampled))
    return (row.event_id, row.parent, row.shared, *arrays, None if row.logprobs is None else row.logprobs.tobytes())


def sections(data: bytes) -> tuple[tuple[object, ...], bytes, list[bytes]]:
    """Magic, version and counts; event ids; frames decompressed: what version 1 fixes, whatever zstd makes of it."""
    fields = HEADER.unpack_from(data)
    at = HEADER.size + 16 * (fields[2] + fields[3])
    frames = []
    for length in fields[6:]:
        frames.append(zstandard.ZstdDecompressor().decompress(data[at : at + length]) if length else b"")
        at += length
    assert data[at:] == struct.pack("<I", zlib.crc32(data[:at]))
    return fields[:6], data[HEADER.size : HEADER.size + 16 * (fields[2] + fields[3])], frames


def signed(body: bytes) -> bytes:
    """The bytes with a true CRC-32."""
    return body + struct.pack("<I", zlib.crc32(body))


def test_version_1_reads_as_it_always_did() -> None:
    rows = unpacked(GOLDEN.read_bytes())
    assert [bare(row) for row in rows] == [
        (event(4), None, 0, None, None, None),
        (event(2), None, 0, [1, 70_000, 9], [8], None),
        (event(5), event(9), 2, [32], None, None),
        (event(0), event(2), 2, [2**31 - 1, 4], [5, 6], b"\x00\x00\x00\x80\x00\x00\x80\xff"),
        (event(3), event(0), 4, [], [5, 0], b"\x00\x00\x80\xbe\x00\x00\x00\xb4"),
        (event(1), event(0), 6, [7], [], b""),
    ]


def test_version_1_is_written_as_it_always_was() -> None:
    assert sections(pack_rows(unpacked(GOLDEN.read_bytes()))) == sections(GOLDEN.read_bytes())


def test_calls_that_extend_one_another_lie_together() -> None:
    rows = unpacked(pack(golden_calls(), earlier=[EARLIER]))
    assert [row.event_id for row in rows] == [event(n) for n in (4, 2, 0, 1, 3, 5)]


@given(histories())
def test_a_pack_gives_back_every_call(calls: list[TokenCall]) -> None:
    whole = reconstruct(unpacked(pack(calls)), commitments(calls), SALT)
    assert {plain(call) for call in whole.calls.values()} == {plain(call) for call in calls}


@given(histories(), st.integers(0, 12))
def test_late_calls_make_a_second_pack_whose_parents_lie_in_the_first(calls: list[TokenCall], late: int) -> None:
    packs = [pack(calls[:late]), pack(calls[late:], earlier=calls[:late])]
    whole = reconstruct([row for data in packs for row in unpacked(data)], commitments(calls), SALT)
    assert {plain(call) for call in whole.calls.values()} == {plain(call) for call in calls}


@given(histories().flatmap(lambda calls: st.tuples(st.just(calls), st.permutations(calls))))
def test_the_order_of_the_calls_does_not_change_how_many_tokens_are_stored(both: tuple[list[TokenCall], list[TokenCall]]) -> None:
    counts = [sum(len(row.suffix) for row in unpacked(pack(calls)) if row.suffix is not None) for calls in both]
    assert counts[0] == counts[1]


def test_a_chain_stores_each_token_once_even_when_the_last_call_comes_first() -> None:
    whole = np.arange(100_000, dtype=IDS)
    calls = [TokenCall(event(n), whole[: 90_000 + 40 * n], whole[90_000 + 40 * n : 90_000 + 40 * n + 30], None) for n in range(250)]
    rows = unpacked(pack(calls[::-1]))
    assert sum(len(row.suffix) + len(row.sampled) for row in rows) == 90_000 + 249 * 40 + 30


def test_nothing_packs_and_an_event_packs_once() -> None:
    assert unpacked(pack([])) == []
    with pytest.raises(TokenError, match="each event once"):
        pack([golden_calls()[0], golden_calls()[0]])


@pytest.mark.parametrize("bad", ["", "x" * 36, event(0).upper() + "00", str(event(10)).upper(), "{" + event(0) + "}"])
def test_an_event_id_that_would_come_back_otherwise_is_refused(bad: str) -> None:
    with pytest.raises(TokenError, match="a UUID in lower case"):
        pack([TokenCall(bad, None, None, None)])


def test_rows_must_come_parents_first_and_within_the_limits() -> None:
    child = TokenRow(event(0), event(1), 1, ids(), None, None)
    with pytest.raises(TokenError, match="parents first"):
        pack_rows([child, TokenRow(event(1), None, 0, ids(1), None, None)])
    with pytest.raises(TokenError, match=f"up to {MAX_TOKENS}"):
        pack_rows([TokenRow(event(1), None, 0, np.broadcast_to(ids(1), MAX_TOKENS + 1), None, None)])


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_found(mask: int) -> None:
    data = bytearray(GOLDEN.read_bytes())
    for place in range(len(data)):
        data[place] ^= mask
        with pytest.raises(TokenError):
            unpacked(bytes(data))
        data[place] ^= mask


def test_a_forger_who_mends_the_checksum_meets_the_commitments() -> None:
    calls = [*golden_calls(), EARLIER]
    told, true = commitments(calls), {plain(call) for call in calls}
    parent = unpacked(pack([EARLIER]))
    body = bytearray(GOLDEN.read_bytes()[:-4])
    refused = 0
    for place in range(len(body)):
        for bit in range(8):
            body[place] ^= 1 << bit
            try:
                whole = reconstruct([*unpacked(signed(bytes(body))), *parent], told, SALT)
            except TokenError:
                refused += 1
            else:
                # A bit that zstd does not read, or another true parent: the arrays are the committed ones all the same.
                assert {plain(call) for call in whole.calls.values()} == true
            body[place] ^= 1 << bit
    assert refused > 0.95 * 8 * len(body)


def test_a_pack_cut_short_or_lengthened_is_refused() -> None:
    data = GOLDEN.read_bytes()
    for size in range(len(data)):
        with pytest.raises(TokenError):
            unpacked(data[:size])
    with pytest.raises(TokenError, match="its header says"):
        unpacked(data + b"\0")


def test_another_magic_and_another_version_are_named() -> None:
    data = GOLDEN.read_bytes()
    with pytest.raises(TokenError, match="begins with b'PACK'"):
        unpacked(b"PACK" + data[4:])
    with pytest.raises(TokenError, match="format version 2; allowed: 1"):
        unpacked(data[:4] + b"\x02" + data[5:])


@given(st.binary(max_size=300), st.booleans())
def test_foreign_bytes_are_refused(data: bytes, dressed: bool) -> None:
    with pytest.raises(TokenError):
        unpacked(signed(b"TLYT\x01" + data) if dressed else data)


def _with_counts(**counts: int) -> bytes:
    data = GOLDEN.read_bytes()
    fields = list(HEADER.unpack_from(data))
    for name, value in counts.items():
        fields[("magic", "version", "calls", "outside", "ids", "logprobs").index(name)] = value
    return signed(HEADER.pack(*fields) + data[HEADER.size : -4])


@pytest.mark.parametrize("counts", [{"calls": MAX_CALLS + 1}, {"ids": MAX_TOKENS + 1}, {"logprobs": 2**32 - 1}, {"outside": 7}])
def test_absurd_counts_are_refused(counts: dict[str, int]) -> None:
    with pytest.raises(TokenError, match="allowed: up to"):
        unpacked(_with_counts(**counts))


def _bomb(say_size: bool) -> bytes:
    """The golden pack with 64 MiB of zeros as the low half-words of its ids."""
    compressor = zstandard.ZstdCompressor(write_content_size=say_size)
    frame = compressor.compress(bytes(64 * 2**20))
    data = GOLDEN.read_bytes()
    fields = list(HEADER.unpack_from(data))
    at = HEADER.size + 16 * (fields[2] + fields[3]) + fields[6] + fields[7]
    body = data[HEADER.size : at] + frame + data[at + fields[8] : -4]
    fields[8] = len(frame)
    return signed(HEADER.pack(*fields) + body)


@pytest.mark.parametrize("make", [lambda: _bomb(True), lambda: _bomb(False)])
def test_a_decompression_bomb_is_not_decompressed(make: Callable[[], bytes]) -> None:
    data = make()
    tracemalloc.start()
    with pytest.raises(TokenError, match="a frame says that it holds"):
        unpacked(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def _with_directory(**columns: list[int]) -> bytes:
    """A golden pack of three calls (a chain) with other directory columns."""
    first = ids(1, 2, 3)
    data = pack([TokenCall(event(n), first[: n + 1], None, None) for n in range(3)])
    fields, event_ids, frames = sections(data)
    directory = (np.frombuffer(frames[0], "<u2").astype("<u4") | np.frombuffer(frames[1], "<u2").astype("<u4") << 16).astype("<u4")
    table = directory.view("<i4").reshape(5, 3)
    for name, values in columns.items():
        table[("parent", "shared", "suffix", "sampled", "logprobs").index(name)] = values
    halves = np.ascontiguousarray(table).view("<u2").reshape(-1, 2).T
    made = [zstandard.compress(half.tobytes()) for half in halves]
    old = HEADER.unpack_from(data)
    rest = data[HEADER.size + len(event_ids) + old[6] + old[7] : -4]
    return signed(HEADER.pack(*fields, len(made[0]), len(made[1]), *old[8:]) + event_ids + b"".join(made) + rest)


def test_a_chain_has_the_directory_that_the_next_test_damages() -> None:
    rows = unpacked(_with_directory(parent=[-1, 0, 1], shared=[0, 1, 2], suffix=[1, 1, 1]))
    assert [bare(row) for row in rows] == [
        (event(0), None, 0, [1], None, None),
        (event(1), event(0), 1, [2], None, None),
        (event(2), event(1), 2, [3], None, None),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"parent": [-1, 1, 1]},
        {"parent": [-1, 2, 1]},
        {"parent": [-1, 3, 1]},
        {"parent": [-2, 0, 1]},
        {"suffix": [1, 1, 2]},
        {"suffix": [1, 1, -1]},
        {"suffix": [1, -2, 2]},
        {"sampled": [-1, 1, -1]},
        {"sampled": [-1, -2, -1]},
        {"logprobs": [1, -1, -1]},
        {"logprobs": [-(2**31), -1, -1]},
    ],
)
def test_a_directory_that_contradicts_itself_or_the_header_is_refused(columns: dict[str, list[int]]) -> None:
    with pytest.raises(TokenError, match="token pack: "):
        unpacked(_with_directory(**columns))


def test_an_event_named_twice_is_refused() -> None:
    body = bytearray(GOLDEN.read_bytes()[:-4])
    body[HEADER.size + 16 : HEADER.size + 32] = body[HEADER.size : HEADER.size + 16]
    with pytest.raises(TokenError, match="each event once"):
        unpacked(signed(bytes(body)))
