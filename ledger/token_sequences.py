"""Whole arrays of every call of a stream from its stored rows, each checked against what its event committed to. Pure.

Calls that extend one another lie together, so their prompts are views of one run of ids, and one hasher goes along it: a prompt's digest is
taken where the prompt ends. Where another call leaves that run, a copy of the hasher waits for it. So every stored token is hashed once as
part of a prompt, however many prompts hold it.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.errors import TokenError
from ledger.token_calls import IDS, CallCommitments, Commitment, Ids, TokenCall, TokenRow
from ledger.token_columns import ABSENT, TokenColumns, columns_of, in_lines

_ENTRY = IDS.itemsize


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """The calls by event, with what it took: runs of ids, the ids in them, and ids hashed as parts of prompts."""

    calls: dict[str, TokenCall]
    buffers: int
    buffered_ids: int
    hashed_ids: int


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Of each call what its row says, where its ids and logprobs begin and end, and how it lies to the others.

    Attributes:
        goes_on, followed: whether it continues the call before it, and whether the next one continues it.
        line_end: of the first call of a line of these, where the ids of the line end.
        base: of a call that leaves another line, the call that the last shared token belongs to.
        stops: where others leave a call.
    """

    parent: list[int]
    shared: list[int]
    begins: list[int]
    middle: list[int]
    end: list[int]
    prompt_size: list[int]
    sampled: list[int]
    scored: list[int]
    scores_end: list[int]
    goes_on: list[bool]
    followed: list[bool]
    line_end: list[int]
    base: dict[int, int]
    stops: dict[int, set[int]]


def reconstruct(rows: Iterable[TokenRow] | TokenColumns, commitments: Mapping[str, CallCommitments], salt: bytes) -> Reconstruction:
    """Every call of one stream, whole and verified.

    Args:
        rows: all rows of the stream, from its packs and its live rows, in any order; fastest as its only pack.
        commitments: what each of these events committed to, no more and no fewer events.
        salt: the subject's.

    Raises:
        TokenError: a row or a commitment without the other, an event twice, a parent that is missing or an ancestor of itself, a row that
            shares more than its parent has, or an array that is not what its event committed to; the message names the event.
    """
    columns = rows if isinstance(rows, TokenColumns) else columns_of(_ordered(list(rows)))
    layout = _layout(columns)
    if layout is None:
        columns = columns_of(_ordered(columns.rows()))
        layout = _layout(columns)
        assert layout is not None
    calls = columns.event_ids[: columns.calls]
    for event_id in calls:
        if event_id not in commitments:
            raise TokenError(f"call {event_id} has stored tokens, but its event commits to none")
    if len(calls) != len(commitments):
        missing = next(iter(commitments.keys() - set(calls)))
        raise TokenError(f"call {missing} has no stored tokens, but its event commits to some")
    if not calls:
        return Reconstruction({}, 0, 0, 0)
    walk = _Walk(columns, layout, hashlib.sha256(salt))
    return Reconstruction(walk.calls(commitments), walk.buffers, walk.buffered_ids, walk.hashed_ids)


def _ordered(rows: list[TokenRow]) -> list[TokenRow]:
    """The rows so that calls which extend one another lie together."""
    by_id: dict[str, TokenRow] = {}
    for row in rows:
        if by_id.setdefault(row.event_id, row) is not row:
            raise TokenError(f"call {row.event_id} is stored twice")
    for row in rows:
        if row.parent is not None and row.parent not in by_id:
            raise TokenError(f"call {row.event_id} continues call {row.parent}, which is not stored in this stream")
    ordered = in_lines(rows)
    if len(ordered) < len(rows):
        left = by_id.keys() - {row.event_id for row in ordered}
        raise TokenError(f"call {min(left)} is an ancestor of itself")
    return ordered


def _layout(columns: TokenColumns) -> _Layout | None:
    """Where everything lies; None where a call that continues another does not lie next to it, or a parent is elsewhere."""
    calls = columns.calls
    if len(columns.event_ids) > calls:
        return None
    parent, shared, suffix, sampled, scored = columns.directory.astype(np.int64)
    own = np.maximum(suffix, 0) + np.maximum(sampled, 0)
    end = np.cumsum(own)
    prompt_size = shared + np.maximum(suffix, 0)
    size = np.where(suffix == ABSENT, 0, shared + own)
    of_parent = size[parent]
    child = parent >= 0
    fits = (child == (shared > 0)) & (shared >= 0) & ((suffix >= 0) | (shared == 0)) & (~child | (shared <= of_parent))
    if not fits.all():
        place = int(fits.argmin())
        of = f"call {columns.event_ids[parent[place]]}, which has {of_parent[place]}" if child[place] else "no call"
        raise TokenError(f"call {columns.event_ids[place]} shares {shared[place]} tokens with {of}; allowed: 1 up to all, or neither")
    whole = child & (shared == of_parent)
    goes_on = whole & (parent == np.arange(calls) - 1)
    followed = np.append(goes_on[1:], False)
    if (whole & ~goes_on & ~followed[parent]).any():
        return None
    starts = np.flatnonzero(~goes_on)
    line_end = np.zeros(calls, np.int64)
    line_end[starts] = end[np.append(starts[1:], calls) - 1] if calls else 0
    parents, shares = parent.tolist(), shared.tolist()
    base: dict[int, int] = {}
    stops: dict[int, set[int]] = {}
    for call in np.flatnonzero(child & ~goes_on).tolist():
        at, ancestor = shares[call], parents[call]
        while at <= shares[ancestor]:
            ancestor = parents[ancestor]
        base[call] = ancestor
        stops.setdefault(ancestor, set()).add(at)
    return _Layout(
        parents, shares, (end - own).tolist(), (end - np.maximum(sampled, 0)).tolist(), end.tolist(),
        np.where(suffix == ABSENT, ABSENT, prompt_size).tolist(), sampled.tolist(), scored.tolist(),
        np.cumsum(np.maximum(scored, 0)).tolist(), goes_on.tolist(),
        followed.tolist(), line_end.tolist(), base, stops,
    )  # fmt: skip


class _Walk:
    """Goes over the calls once, parents first."""

    def __init__(self, columns: TokenColumns, layout: _Layout, salted: Any) -> None:
        self.columns, self.layout, self.salted = columns, layout, salted
        self.octets, self.scores = _octets(columns.ids), _octets(columns.logprobs)
        self.buffers = self.buffered_ids = self.hashed_ids = 0
        self._states: dict[tuple[int, int], Any] = {}
        # Of each call an array that begins with its prompt, and whether it goes on with its completion.
        self._runs: list[Ids] = []
        self._whole: list[bool] = []

    def calls(self, commitments: Mapping[str, CallCommitments]) -> dict[str, TokenCall]:
        """The calls by event."""
        layout, ids, logprobs, octets, scores, salted = (
            self.layout, self.columns.ids, self.columns.logprobs, self.octets, self.scores, self.salted
        )  # fmt: skip
        found: dict[str, TokenCall] = {}
        run, whole, hasher = ids, False, salted
        each = zip(
            self.columns.event_ids, layout.begins, layout.middle, layout.end, layout.prompt_size, layout.sampled, layout.scored,
            layout.scores_end, layout.goes_on, layout.followed, strict=True,
        )  # fmt: skip
        for place, (event_id, begins, middle, end, prompt_size, sampled, scored, scores_end, goes_on, followed) in enumerate(each):
            said = commitments[event_id]
            if not goes_on:
                run, whole, hasher = self._new_run(place)
            self._runs.append(run)
            self._whole.append(whole)
            told, prompt = said.prompt, None
            if told is not None and told.count == prompt_size:
                if place in layout.stops:
                    digest = self._hash_with_stops(place, hasher)
                else:
                    hasher.update(octets[_ENTRY * begins : _ENTRY * middle])
                    digest = hasher.hexdigest()
                    self.hashed_ids += middle - begins
                    if followed:
                        hasher.update(octets[_ENTRY * middle : _ENTRY * end])
                        self.hashed_ids += end - middle
                if digest != told.sha256:
                    raise _mismatch(event_id, "prompt_ids", told)
                prompt = run[:prompt_size]
            elif told is not None or prompt_size != ABSENT:
                raise _wrong_size(event_id, "prompt_ids", prompt_size, told)
            if (told := said.sampled) is not None and told.count == sampled:
                each_array = salted.copy()
                each_array.update(octets[_ENTRY * middle : _ENTRY * end])
                if each_array.hexdigest() != told.sha256:
                    raise _mismatch(event_id, "sampled_ids", told)
            elif told is not None or sampled != ABSENT:
                raise _wrong_size(event_id, "sampled_ids", sampled, told)
            if (told := said.logprobs) is not None and told.count == scored:
                each_array = salted.copy()
                each_array.update(scores[_ENTRY * (scores_end - scored) : _ENTRY * scores_end])
                if each_array.hexdigest() != told.sha256:
                    raise _mismatch(event_id, "logprobs", told)
            elif told is not None or scored != ABSENT:
                raise _wrong_size(event_id, "logprobs", scored, told)
            found[event_id] = TokenCall(
                event_id, prompt, None if sampled == ABSENT else ids[middle:end],
                None if scored == ABSENT else logprobs[scores_end - scored : scores_end],
            )  # fmt: skip
        return found

    def _new_run(self, place: int) -> tuple[Ids, bool, Any]:
        """The array that a call which goes on from no other one begins, whether it holds its completion, and the hasher up to it."""
        layout, shared = self.layout, self.layout.shared[place]
        own = self.columns.ids[layout.begins[place] : layout.line_end[place]]
        if not shared:
            self._count(own)
            return own, True, self.salted.copy()
        hasher = self._states[layout.base[place], shared].copy()
        before = self._up_to(layout.parent[place], shared)
        if layout.begins[place] == layout.middle[place] and not layout.followed[place]:
            return before, False, hasher
        run = np.concatenate([before[:shared], own])
        run.flags.writeable = False
        self._count(run)
        return run, True, hasher

    def _up_to(self, place: int, shared: int) -> Ids:
        """An array that begins with the first `shared` tokens of a call's prompt and completion."""
        size, layout = self.layout.prompt_size[place], self.layout
        if shared > size and not self._whole[place]:
            run = np.concatenate([self._runs[place][:size], self.columns.ids[layout.middle[place] : layout.end[place]]])
            run.flags.writeable = False
            self._count(run)
            self._runs[place], self._whole[place] = run, True
        return self._runs[place]

    def _count(self, run: Ids) -> None:
        self.buffers += 1
        self.buffered_ids += len(run)

    def _hash_with_stops(self, place: int, hasher: Any) -> str:
        """The digest of a call's prompt; leaves a copy of the hasher wherever another call leaves this one."""
        layout, octets = self.layout, self.octets
        begins, middle, end = layout.begins[place], layout.middle[place], layout.end[place]
        at, digest = begins, ""
        points = sorted(begins + stop - layout.shared[place] for stop in layout.stops[place])
        for point in sorted({*points, middle, *([end] if layout.followed[place] else [])}):
            hasher.update(octets[_ENTRY * at : _ENTRY * point])
            at = point
            if point == middle:
                digest = hasher.hexdigest()
            if point in points:
                self._states[place, point - begins + layout.shared[place]] = hasher.copy()
        self.hashed_ids += at - begins
        return str(digest)


def _octets(array: NDArray[Any]) -> memoryview:
    return array.data.cast("B") if len(array) else memoryview(b"")


def _mismatch(event_id: str, name: str, told: Commitment) -> TokenError:
    return TokenError(f"call {event_id}: {name} do not match the SHA-256 {told.sha256} that its event committed to")


def _wrong_size(event_id: str, name: str, size: int, told: Commitment | None) -> TokenError:
    has, said = (None if size == ABSENT else size), (None if told is None else told.count)
    return TokenError(f"call {event_id}: {name} has {has} entries; its event committed to {said}")
