"""What a model call says in tokens: whole, as stored beside its parent, and as committed to; event ids are UUIDs as text. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Logprobs = NDArray[np.float32]

IDS = np.dtype("<i4")
LOGPROBS = np.dtype("<f4")


@dataclass(frozen=True, slots=True, eq=False)
class TokenCall:
    """A call's whole arrays; None is an array that the upstream did not give, which is not an empty one."""

    event_id: str
    prompt: Ids | None
    sampled: Ids | None
    logprobs: Logprobs | None


@dataclass(frozen=True, slots=True, eq=False)
class TokenRow:
    """A call as stored: its prompt is the first `shared` tokens of the parent's prompt and completion, then `suffix`."""

    event_id: str
    parent: str | None
    shared: int
    suffix: Ids | None
    sampled: Ids | None
    logprobs: Logprobs | None


@dataclass(frozen=True, slots=True)
class Commitment:
    """What an event says of one array: hex SHA-256 over the subject's salt and the little-endian bytes, and the number of entries."""

    sha256: str
    count: int


@dataclass(frozen=True, slots=True)
class CallCommitments:
    """What an event says of its three arrays; None where there is none."""

    prompt: Commitment | None
    sampled: Commitment | None
    logprobs: Commitment | None
