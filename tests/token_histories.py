"""Token calls for tests: commitments of given calls, and random branching histories as Hypothesis draws them."""

import hashlib
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ledger.events.model_call import call_stream, called_key
from ledger.ids import event_id as derived_event_id
from ledger.ledger import LedgerHandle
from ledger.token_calls import IDS, LOGPROBS, CallCommitments, Commitment, Ids, TokenCall
from ledger.token_link import Link
from ledger.tokens import CapturedTokens, captured

SALT = b"salt of the subject"
KINDS = ("append", "compaction", "thinking stripped", "sub-agent", "same prompt", "retry", "re-tokenised tail", "fresh")


def event(n: int) -> str:
    """The n-th event's id."""
    return str(UUID(int=n + 1))


def ids(*values: int) -> Ids:
    return np.array(values, IDS)


def committed(array: NDArray[Any] | None, salt: bytes = SALT) -> Commitment | None:
    """What an event says of an array."""
    return None if array is None else Commitment(hashlib.sha256(salt + array.tobytes()).hexdigest(), len(array))


def commitments(calls: Iterable[TokenCall], salt: bytes = SALT) -> dict[str, CallCommitments]:
    """What the calls' events say."""
    return {
        call.event_id: CallCommitments(committed(call.prompt, salt), committed(call.sampled, salt), committed(call.logprobs, salt))
        for call in calls
    }


def plain(call: TokenCall) -> tuple[str, bytes | None, bytes | None, bytes | None]:
    """The call as bytes, so that -0.0 and 0.0 differ."""
    return (call.event_id, *(None if array is None else array.tobytes() for array in (call.prompt, call.sampled, call.logprobs)))


Arrays = tuple[bytes | None, bytes | None, bytes | None]
"""Prompt ids, sampled ids and logprobs, little-endian."""


def held(ledger: LedgerHandle, arrays: Arrays, rollout_id: str | None, call_id: str, link: Link | None = None) -> CapturedTokens:
    """A call's arrays as its event states them and as they are staged, under the project's subject."""
    event_id = derived_event_id(ledger.ledger_id, ledger.project, call_stream(rollout_id, call_id), called_key(call_id))
    return captured(arrays, event_id=event_id, subject=ledger.subject(ledger.subject_id), link=link)


_FEW = st.lists(st.integers(0, 3), max_size=6).map(lambda values: np.array(values, IDS))
_SCORES = st.sampled_from([0.0, -0.0, -1.1920929e-07, -0.5, -13.6, -3.4e38, float("-inf")])


@st.composite
def histories(draw: st.DrawFn, max_calls: int = 12) -> list[TokenCall]:
    """Calls of one stream, few distinct ids so that prefixes meet by chance as well."""
    calls: list[TokenCall] = []
    for n in range(draw(st.integers(0, max_calls))):
        prompt = _next_prompt(draw, [call for call in calls if call.prompt is not None])
        sampled = draw(st.none() | _FEW)
        logprobs = None
        if sampled is not None and draw(st.booleans()):
            logprobs = np.array(draw(st.lists(_SCORES, min_size=len(sampled), max_size=len(sampled))), LOGPROBS)
        calls.append(TokenCall(event(n), prompt, sampled, logprobs))
    return calls


def _next_prompt(draw: st.DrawFn, known: list[TokenCall]) -> Ids | None:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([None, np.array([2**31 - 1, 0, 70_000], IDS)]))
    kind = draw(st.sampled_from(KINDS))
    if not known or kind == "fresh":
        return draw(_FEW)
    before = draw(st.sampled_from(known))
    assert before.prompt is not None
    sampled = ids() if before.sampled is None else before.sampled
    cut = draw(st.integers(0, len(before.prompt)))
    match kind:
        case "append":
            parts = [before.prompt, sampled, draw(_FEW)]
        case "compaction":
            parts = [before.prompt[: cut // 2], draw(_FEW), before.prompt[cut:]]
        case "thinking stripped":
            parts = [before.prompt, sampled[len(sampled) // 2 :], draw(_FEW)]
        case "sub-agent":
            parts = [before.prompt[:cut], draw(_FEW)]
        case "re-tokenised tail":
            parts = [before.prompt, sampled[: max(0, len(sampled) - 1)], draw(_FEW)]
        case _:
            parts = [before.prompt]
    return np.concatenate(parts)
