"""What of a stream's stored tokens still is what its events committed to, when not all of it is. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.token_calls import CallCommitments, Commitment, Ids, TokenCall, TokenRow


def salvage(
    rows: Iterable[TokenRow], commitments: Mapping[str, CallCommitments], salt: bytes
) -> tuple[dict[str, TokenCall], list[tuple[str, str]]]:
    """Calls by event with the arrays that match, and event id and fault of everything else.

    Args:
        rows, commitments, salt: as for `ledger.token_sequences.reconstruct`, which is faster and refuses all if anything does not fit.
    """
    by_id: dict[str, TokenRow] = {}
    faults: list[tuple[str, str]] = []
    for row in rows:
        if by_id.setdefault(row.event_id, row) is not row:
            faults.append((row.event_id, f"call {row.event_id} is stored twice"))
    prompts = _prompts(by_id)
    calls: dict[str, TokenCall] = {}
    for event_id, said in commitments.items():
        if event_id not in by_id:
            faults.append((event_id, f"call {event_id} has no stored tokens, but its event commits to some"))
            continue
        stored = (prompts[event_id], by_id[event_id].sampled, by_id[event_id].logprobs)
        arrays: list[NDArray[Any] | None] = []
        for name, array, told in zip(
            ("prompt_ids", "sampled_ids", "logprobs"), stored, (said.prompt, said.sampled, said.logprobs), strict=True
        ):
            fits = _fits(array, told, salt)
            arrays.append(array if fits else None)
            if not fits:
                faults.append((event_id, f"call {event_id}: {name} do not match what its event committed to"))
        calls[event_id] = TokenCall(event_id, *arrays)
    extra = [event_id for event_id in by_id if event_id not in commitments]
    faults += [(event_id, f"call {event_id} has stored tokens, but its event commits to none") for event_id in extra]
    return calls, faults


def _prompts(by_id: Mapping[str, TokenRow]) -> dict[str, Ids | None]:
    """Every row's whole prompt; None where its parent is not here, has too few tokens or is its descendant."""
    whole: dict[str, Ids | None] = {}
    for event_id in by_id:
        waiting: dict[str, TokenRow] = {}
        name: str | None = event_id
        while name is not None and name in by_id and name not in whole and name not in waiting:
            waiting[name] = by_id[name]
            name = by_id[name].parent
        for row in reversed(waiting.values()):
            whole[row.event_id] = _prompt(row, whole, by_id)
    return whole


def _prompt(row: TokenRow, whole: Mapping[str, Ids | None], by_id: Mapping[str, TokenRow]) -> Ids | None:
    if row.parent is None or row.suffix is None:
        return row.suffix
    before = whole.get(row.parent)
    if before is None:
        return None
    sampled = by_id[row.parent].sampled
    known = before if sampled is None else np.concatenate([before, sampled])
    return np.concatenate([known[: row.shared], row.suffix]) if 0 <= row.shared <= len(known) else None


def _fits(array: NDArray[Any] | None, told: Commitment | None, salt: bytes) -> bool:
    if array is None or told is None:
        return array is None and told is None
    return len(array) == told.count and hashlib.sha256(salt + array.tobytes()).hexdigest() == told.sha256
