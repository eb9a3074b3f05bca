"""Token arrays as a writer gives them: exact int32 ids and float32 logprobs, committed to and made ready to be staged. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ledger import token_codec
from ledger.arrays import uuid_bytes
from ledger.errors import InvalidEvent, TokenError
from ledger.events.model_call import TokenArray
from ledger.prepared import StagedTokens
from ledger.subjects import Subject
from ledger.token_calls import IDS, LOGPROBS
from ledger.token_link import Link

_ENTRY_BYTES = 4


@dataclass(frozen=True)
class CapturedTokens:
    """A call's arrays as its event states them, and as they are staged beside it; all None where there are none."""

    prompt_ids: TokenArray | None = None
    sampled_ids: TokenArray | None = None
    logprobs: TokenArray | None = None
    staged: StagedTokens | None = None


def captured(
    arrays: tuple[bytes | None, bytes | None, bytes | None], *, event_id: str, subject: Subject, link: Link | None = None
) -> CapturedTokens:
    """What the event of a model call says of its arrays, and their bytes for the same append.

    Args:
        arrays: prompt ids, sampled ids and logprobs, little-endian int32, int32 and float32; None for one that was not captured.
        event_id: of the ModelCalled event, which follows from its stream and key.
        subject: whose they are.
        link: where the prompt begins like an earlier call of the same stream that is durable; None to stage the whole prompt.
    Raises:
        TokenError: bytes that are no whole number of entries, or a link to more tokens than the prompt has.
    """
    for name, data in zip(("prompt ids", "sampled ids", "logprobs"), arrays, strict=True):
        if data is not None and len(data) % _ENTRY_BYTES:
            raise TokenError(f"{name} of {len(data)} bytes; allowed: a multiple of {_ENTRY_BYTES}")
    if all(data is None for data in arrays):
        return CapturedTokens()
    prompt, sampled, logprobs = arrays
    parent, shared = (None, 0) if link is None else (link.parent, link.shared)
    if shared and (prompt is None or shared * _ENTRY_BYTES > len(prompt)):
        raise TokenError(f"a prompt of {len(prompt or b'') // _ENTRY_BYTES} tokens shares {shared}; allowed: up to all")
    ident = uuid_bytes(event_id)
    rest = None if prompt is None else prompt[shared * _ENTRY_BYTES :]
    columns = [
        None if data is None else token_codec.encode(subject, name, ident, data)
        for name, data in (("prompt", rest), ("sampled", sampled), ("logprobs", logprobs))
    ]
    staged = StagedTokens(subject.subject_id, parent, shared, *columns)
    return CapturedTokens(_stated(subject, prompt), _stated(subject, sampled), _stated(subject, logprobs), staged)


def ids_bytes(token_ids: Sequence[int]) -> bytes:
    """Little-endian int32 of token ids.

    Raises:
        InvalidEvent: an id outside 0 .. 2^31 - 1.
    """
    array = np.asarray(token_ids, dtype=np.int64)
    if array.size and (array.min() < 0 or array.max() >= 2**31):
        raise InvalidEvent(f"token ids span {array.min()}..{array.max()}; allowed: 0..2147483647")
    return array.astype(IDS).tobytes()


def logprob_bytes(logprobs: Sequence[float]) -> bytes:
    """Little-endian float32 of log-probabilities in nats.

    Raises:
        InvalidEvent: a value that is not a number or is above 0 by more than rounding.
    """
    array = np.asarray(logprobs, dtype=np.float64)
    if np.isnan(array).any() or (array > 1e-4).any():
        raise InvalidEvent(f"logprobs hold {array[np.isnan(array) | (array > 1e-4)][0]}; allowed: numbers up to 0")
    return array.astype(LOGPROBS).tobytes()


def _stated(subject: Subject, data: bytes | None) -> TokenArray | None:
    if data is None:
        return None
    if subject.destroyed_at is not None:
        raise TokenError(f"the salt of subject {subject.subject_id!r} was destroyed; allowed: another subject")
    return TokenArray(count=len(data) // _ENTRY_BYTES, commitment=hashlib.sha256(subject.salt + data).hexdigest())
