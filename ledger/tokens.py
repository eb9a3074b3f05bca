"""Token arrays: exact int32 ids and float32 logprobs, little-endian, each with the SHA-256 of its bytes."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ledger.errors import BlobError, InvalidEvent
from ledger.events.model_call import TokenArray

INT32 = "int32"
FLOAT32 = "float32"
_DTYPES = {INT32: "<i4", FLOAT32: "<f4"}


def ids_bytes(token_ids: Sequence[int]) -> bytes:
    """Little-endian int32 of token ids.

    Raises:
        InvalidEvent: an id outside 0 .. 2^31 - 1.
    """
    array = np.asarray(token_ids, dtype=np.int64)
    if array.size and (array.min() < 0 or array.max() >= 2**31):
        raise InvalidEvent(f"token ids span {array.min()}..{array.max()}; allowed: 0..2147483647")
    return array.astype("<i4").tobytes()


def logprob_bytes(logprobs: Sequence[float]) -> bytes:
    """Little-endian float32 of log-probabilities in nats.

    Raises:
        InvalidEvent: a value that is not a number or is above 0 by more than rounding.
    """
    array = np.asarray(logprobs, dtype=np.float64)
    if np.isnan(array).any() or (array > 1e-4).any():
        raise InvalidEvent(f"logprobs hold {array[np.isnan(array) | (array > 1e-4)][0]}; allowed: numbers up to 0")
    return array.astype("<f4").tobytes()


def array_of(array: TokenArray, data: bytes) -> NDArray[np.int32] | NDArray[np.float32]:
    """The array in a blob's bytes, shape (count,), checked against its hash and count.

    Raises:
        BlobError: the bytes are not what the event committed to.
    """
    if hashlib.sha256(data).hexdigest() != array.sha256:
        raise BlobError(f"token array {array.data.blob_id}: bytes do not match their SHA-256 {array.sha256}")
    result = np.frombuffer(data, dtype=_DTYPES[array.data.media])
    if len(result) != array.count:
        raise BlobError(f"token array {array.data.blob_id}: {len(result)} entries, {array.count} recorded")
    return result
