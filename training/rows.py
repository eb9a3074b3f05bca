"""Training rows: runs of tokens whose real prefix holds, with a mask that is exactly the sampled tokens. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
OpenReason = Literal[
    "start", "template", "retokenise", "compaction", "truncation", "parser", "history_rewritten", "parallel", "participant"
]
"""Why a row was opened: `start` for a conversation of its own, `participant` for another participant's first one, `parallel` for a sibling
sample of one prompt or another branch from the same samples, the others where a prompt does not go on from what had been sampled."""


@dataclass(frozen=True, eq=False)
class SampledTokens:
    """One model call as rows are built from it.

    Attributes:
        call_id: the ledger's id of the call.
        index: its place in the rollout by dispatch order.
        participant, role: who asked.
        prompt_ids: the tokens that the engine saw, shape (prompt tokens,).
        sampled_ids: the tokens that it sampled, shape (sampled tokens,).
        logprobs: behaviour log-probabilities in nats, same shape as `sampled_ids`; None where the engine gave none.
        trainable: whether its sampled tokens may be trained on.
        model_versions: versions that sampled its tokens, oldest first.
        retry_of: the call that it repeats.
        finish_reason: as the upstream said.
        rewritten: why the harness had changed the history before this call, from `HistoryRewritten`; None where it had not.
        logprobs_mode: `raw_logprobs`, `processed_logprobs`, or None without logprobs.
        processed: whether sampling differed from the plain distribution (temperature, top-p, guided decoding, ...).
    """

    call_id: str
    index: int
    participant: str
    role: str
    prompt_ids: Ids
    sampled_ids: Ids
    logprobs: Floats | None
    trainable: bool
    model_versions: tuple[str, ...] = ()
    retry_of: str | None = None
    finish_reason: str | None = None
    rewritten: str | None = None
    logprobs_mode: str | None = None
    processed: bool = False


@dataclass(frozen=True, eq=False)
class Row:
    """A run of tokens of one rollout, as the engine saw and sampled them: nothing re-tokenised, nothing padded in.

    Attributes:
        rollout_id: whose.
        index: number of the row in its rollout, from 0.
        participant: whose tokens are sampled in it.
        ids_T: token ids.
        mask_T: True exactly on sampled tokens of trainable participants that no other row trains.
        logprob_T: behaviour log-probabilities in nats, NaN where not sampled or not known.
        step_T: for each token the position in `call_ids` of the call that sampled it, -1 where it was not sampled.
        call_ids: the calls whose samples are in the row, in order.
        open_reason: why the row was opened.
        diverges_at: for a row opened because a prompt did not go on: index of the prompt's first token that is not in the row it left.
        left_row: number of that row; None, as `diverges_at`, for a conversation of its own.
        text_only: tokenised from text that nobody sampled as tokens: supervised objectives alone may use it.
    """

    rollout_id: str
    index: int
    participant: str
    ids_T: Ids
    mask_T: Bools
    logprob_T: Floats
    step_T: NDArray[np.int32]
    call_ids: tuple[str, ...]
    open_reason: OpenReason
    diverges_at: int | None = None
    left_row: int | None = None
    text_only: bool = False


@dataclass(frozen=True)
class BuiltRows:
    """The rows of one rollout and what was counted on the way.

    Attributes:
        rows: in order of their first call.
        counters: rows by reason as `rows_opened:<reason>`, samples left out as `left_out:<why>`; every fallback counts itself.
    """

    rows: tuple[Row, ...]
    counters: dict[str, int] = field(default_factory=dict)


def token_count(rows: Sequence[Row]) -> int:
    """Number of tokens in all rows together."""
    return sum(len(row.ids_T) for row in rows)
