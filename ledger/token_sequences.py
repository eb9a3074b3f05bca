"""Whole arrays of every call of a stream from its stored rows, each checked against what its event committed to. Pure.

Prompts are views of a few shared buffers, one a line of calls that extend one another. The hasher of a prompt resumes from a copy of the
hasher that stood where the call leaves its parent, so every stored token is hashed once however many prompts hold it.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.errors import TokenError
from ledger.token_calls import IDS, CallCommitments, Commitment, Ids, TokenCall, TokenRow

_EMPTY = np.empty(0, IDS)
_NO_OCTETS = memoryview(b"")
_ID_BYTES = IDS.itemsize


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """The calls by event, with what it took: ids put into buffers and ids hashed as parts of prompts."""

    calls: dict[str, TokenCall]
    buffers: int
    buffered_ids: int
    hashed_ids: int


@dataclass(slots=True, eq=False)
class _Line:
    """One buffer in the making: the first `kept` ids of another line, then pieces."""

    before: "_Line | None"
    kept: int
    size: int
    pieces: list[Ids] = field(default_factory=list)
    data: Ids = field(default_factory=lambda: _EMPTY)
    octets: memoryview = field(default_factory=lambda: _NO_OCTETS)

    def append(self, ids: Ids) -> None:
        self.pieces.append(ids)
        self.size += len(ids)

    def fill(self) -> None:
        pieces = self.pieces if self.before is None else [self.before.data[: self.kept], *self.pieces]
        self.data = np.concatenate(pieces) if pieces else _EMPTY
        # Calls share the buffer: what one reader wrote would be another call's prompt.
        self.data.flags.writeable = False
        self.octets = self.data.data.cast("B") if self.size else _NO_OCTETS


@dataclass(slots=True, eq=False)
class _Placed:
    """A row and its place.

    `base` is the call that the last shared token belongs to; `line` holds the prompt, and the completion after it if `whole`; `hashers` has
    a key wherever another call leaves this one, and in the end what hashed the tokens up to there.
    """

    row: TokenRow
    base: "_Placed | None"
    prompt_size: int
    size: int
    line: _Line
    whole: bool
    hashers: dict[int, Any] = field(default_factory=dict)


def reconstruct(rows: Iterable[TokenRow], commitments: Mapping[str, CallCommitments], salt: bytes) -> Reconstruction:
    """Every call of one stream, whole and verified.

    Args:
        rows: all rows of the stream, from its packs and its live rows, in any order.
        commitments: what each of these events committed to, no more and no fewer events.
        salt: the subject's.

    Raises:
        TokenError: a row or a commitment without the other, an event twice, a parent that is missing or an ancestor of itself, a row that
            shares more than its parent has, or an array that is not what its event committed to; the message names the event.
    """
    lines: list[_Line] = []
    placed: dict[str, _Placed] = {}
    for row in _parents_first(rows):
        if row.event_id not in commitments:
            raise TokenError(f"call {row.event_id} has stored tokens, but its event commits to none")
        call = _place(row, placed, lines)
        _check_size(row.event_id, "prompt_ids", None if row.suffix is None else call.prompt_size, commitments[row.event_id].prompt)
        placed[row.event_id] = call
    for event_id in commitments:
        if event_id not in placed:
            raise TokenError(f"call {event_id} has no stored tokens, but its event commits to some")
    for line in lines:
        line.fill()
    salted = hashlib.sha256(salt)
    hashed = 0
    calls: dict[str, TokenCall] = {}
    for event_id, call in placed.items():
        told = commitments[event_id]
        hashed += _check_prompt(call, told.prompt, salted)
        _check_array(event_id, "sampled_ids", call.row.sampled, told.sampled, salted)
        _check_array(event_id, "logprobs", call.row.logprobs, told.logprobs, salted)
        prompt = None if call.row.suffix is None else call.line.data[: call.prompt_size]
        calls[event_id] = TokenCall(event_id, prompt, call.row.sampled, call.row.logprobs)
    return Reconstruction(calls, len(lines), sum(line.size for line in lines), hashed)


def _parents_first(rows: Iterable[TokenRow]) -> list[TokenRow]:
    """The rows so that each follows its parent."""
    by_id: dict[str, TokenRow] = {}
    for row in rows:
        if by_id.setdefault(row.event_id, row) is not row:
            raise TokenError(f"call {row.event_id} is stored twice")
    ordered: dict[str, TokenRow] = {}
    for event_id, row in by_id.items():
        if row.parent is None or row.parent in ordered:
            ordered[event_id] = row
            continue
        waiting: dict[str, TokenRow] = {}
        while event_id not in ordered:
            if event_id in waiting:
                raise TokenError(f"call {event_id} is an ancestor of itself")
            waiting[event_id] = row
            if row.parent is None:
                break
            if row.parent not in by_id:
                raise TokenError(f"call {event_id} continues call {row.parent}, which is not stored in this stream")
            event_id, row = row.parent, by_id[row.parent]
        ordered.update(reversed(waiting.items()))
    return list(ordered.values())


def _place(row: TokenRow, placed: Mapping[str, _Placed], lines: list[_Line]) -> _Placed:
    """The row's place on a line: at the end of its base's line where that is free, on a line of its own otherwise."""
    suffix = _EMPTY if row.suffix is None else row.suffix
    sampled = _EMPTY if row.sampled is None or row.suffix is None else row.sampled
    prompt_size = row.shared + len(suffix)
    base = _base(row, placed)
    if base is None:
        line = _Line(None, 0, 0)
        lines.append(line)
    else:
        base.hashers[row.shared] = None
        if not base.whole:
            # Its prompt lies on a line that goes on otherwise; now that another call continues its completion, it needs its own.
            base.line, base.whole = _Line(base.line, base.prompt_size, base.prompt_size), True
            base.line.append(_EMPTY if base.row.sampled is None else base.row.sampled)
            lines.append(base.line)
        line = base.line
    whole = line.size == row.shared
    if not whole and len(suffix):
        line, whole = _Line(line, row.shared, row.shared), True
        lines.append(line)
    if whole:
        line.append(suffix)
        line.append(sampled)
    return _Placed(row, base, prompt_size, prompt_size + len(sampled), line, whole)


def _base(row: TokenRow, placed: Mapping[str, _Placed]) -> _Placed | None:
    """The ancestor among whose own tokens the last shared one is; None when nothing is shared."""
    if (row.parent is None) != (row.shared == 0) or row.shared < 0 or (row.suffix is None and row.shared):
        raise TokenError(f"call {row.event_id} shares {row.shared} tokens with parent {row.parent}; allowed: 1 or more, or neither")
    if row.parent is None:
        return None
    base: _Placed | None = placed[row.parent]
    if base is not None and row.shared > base.size:
        raise TokenError(f"call {row.event_id} shares {row.shared} tokens with call {row.parent}, which has {base.size}")
    while base is not None and row.shared <= base.row.shared:
        base = base.base
    return base


def _check_prompt(call: _Placed, told: Commitment | None, salted: Any) -> int:
    """The number of ids hashed; leaves a hasher wherever another call leaves this one."""
    if told is None:
        return 0
    row, octets, at, end = call.row, call.line.octets, call.row.shared, call.prompt_size
    hasher = (salted if call.base is None else call.base.hashers[at]).copy()
    stops = sorted(call.hashers)
    while stops and stops[0] < end:
        stop = stops.pop(0)
        hasher.update(octets[at * _ID_BYTES : stop * _ID_BYTES])
        call.hashers[stop] = hasher.copy()
        at = stop
    hasher.update(octets[at * _ID_BYTES : end * _ID_BYTES])
    if hasher.hexdigest() != told.sha256:
        raise TokenError(f"call {row.event_id}: prompt_ids do not match the SHA-256 {told.sha256} that its event committed to")
    at = end
    for stop in stops:
        if row.sampled is not None:
            hasher.update(row.sampled[at - end : stop - end])
        call.hashers[stop] = hasher.copy()
        at = stop
    return at - row.shared


def _check_size(event_id: str, name: str, size: int | None, told: Commitment | None) -> None:
    if size != (None if told is None else told.count):
        raise TokenError(f"call {event_id}: {name} has {size} entries; its event committed to {None if told is None else told.count}")


def _check_array(event_id: str, name: str, array: NDArray[Any] | None, told: Commitment | None, salted: Any) -> None:
    _check_size(event_id, name, None if array is None else len(array), told)
    if array is None or told is None:
        return
    hasher = salted.copy()
    hasher.update(array)
    if hasher.hexdigest() != told.sha256:
        raise TokenError(f"call {event_id}: {name} do not match the SHA-256 {told.sha256} that its event committed to")
