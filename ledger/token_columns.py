"""The calls of a stream side by side: few arrays for all of them, ordered so that calls which extend one another lie together. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.errors import TokenError
from ledger.token_calls import IDS, LOGPROBS, Ids, Logprobs, TokenRow

ABSENT = -1
COLUMNS = 5
_NO_IDS, _NO_LOGPROBS = np.empty(0, IDS), np.empty(0, LOGPROBS)


@dataclass(frozen=True, slots=True, eq=False)
class TokenColumns:
    """Rows of one stream, parents before their children.

    Attributes:
        event_ids: of the calls, then of parents that are elsewhere.
        directory: int32, shape (5, calls): the parent's place in `event_ids` or -1, shared tokens, and the lengths of suffix, completion
            and logprobs, -1 for an array that is absent.
        ids: suffix then completion, call by call.
        logprobs: call by call.
    """

    event_ids: list[str]
    directory: Ids
    ids: Ids
    logprobs: Logprobs

    @property
    def calls(self) -> int:
        """How many."""
        return int(self.directory.shape[1])

    def rows(self) -> list[TokenRow]:
        """The same as rows, whose arrays are views."""
        rows: list[TokenRow] = []
        id_at = logprob_at = 0
        for place, (parent, shared, suffix, sampled, scored) in enumerate(zip(*self.directory.tolist(), strict=True)):
            middle = id_at + max(suffix, 0)
            end, scored_end = middle + max(sampled, 0), logprob_at + max(scored, 0)
            rows.append(
                TokenRow(
                    self.event_ids[place],
                    None if parent == ABSENT else self.event_ids[parent],
                    shared,
                    None if suffix == ABSENT else self.ids[id_at:middle],
                    None if sampled == ABSENT else self.ids[middle:end],
                    None if scored == ABSENT else self.logprobs[logprob_at:scored_end],
                )
            )
            id_at, logprob_at = end, scored_end
        return rows


def columns_of(rows: Sequence[TokenRow]) -> TokenColumns:
    """The rows side by side, in this order.

    Raises:
        TokenError: an event twice, or a parent after its child.
    """
    index = {row.event_id: place for place, row in enumerate(rows)}
    if len(index) != len(rows):
        raise TokenError(f"{len(rows)} calls name {len(index)} events; allowed: each event once")
    for place, row in enumerate(rows):
        if row.parent is not None:
            parent = index.setdefault(row.parent, len(index))
            if place <= parent < len(rows):
                raise TokenError(f"call {row.event_id} comes before its parent {row.parent}; allowed: parents first")
    directory = np.array(
        [
            [ABSENT if row.parent is None else index[row.parent] for row in rows],
            [row.shared for row in rows],
            [_length(row.suffix) for row in rows],
            [_length(row.sampled) for row in rows],
            [_length(row.logprobs) for row in rows],
        ],
        IDS,
    )
    ids = np.concatenate([_NO_IDS, *(array for row in rows for array in (row.suffix, row.sampled) if array is not None)])
    logprobs = np.concatenate([_NO_LOGPROBS, *(row.logprobs for row in rows if row.logprobs is not None)])
    # Calls share these buffers: what one reader wrote would be another call's prompt.
    ids.flags.writeable = logprobs.flags.writeable = False
    return TokenColumns(list(index), directory, ids, logprobs)


def in_lines(rows: Sequence[TokenRow]) -> list[TokenRow]:
    """The rows so that each follows its parent, and comes next to it where it continues all of it.

    A parent that is not among them is taken to be elsewhere. Rows that are their own ancestors are left out.
    """
    size = {row.event_id: 0 if row.suffix is None else row.shared + len(row.suffix) + max(_length(row.sampled), 0) for row in rows}
    children: dict[str | None, list[TokenRow]] = {}
    for row in rows:
        children.setdefault(row.parent if row.parent in size else None, []).append(row)
    ordered: list[TokenRow] = []
    waiting = children.get(None, [])[::-1]
    while waiting:
        row = waiting.pop()
        ordered.append(row)
        mine = children.pop(row.event_id, [])
        goes_on = next((child for child in mine if child.shared == size[row.event_id]), None)
        waiting += [child for child in reversed(mine) if child is not goes_on]
        if goes_on is not None:
            waiting.append(goes_on)
    return ordered


def _length(array: NDArray[Any] | None) -> int:
    return ABSENT if array is None else len(array)
