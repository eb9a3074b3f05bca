"""The rows of one rollout as people are shown them, with the text around each first divergent token. Reads the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ledger.decoders import Decoder
from ledger.ledger import LedgerHandle
from ledger.rollout_reading import read_rollouts
from training.captured import captured_calls
from training.row_builder import build_rows
from training.row_reasons import Text
from training.rows import BuiltRows, Row, SampledTokens

BEFORE, AFTER = 12, 24
"""Tokens that are shown before and from the first divergent one on."""


@dataclass(frozen=True)
class Excerpt:
    """Some tokens; `text` is None where no tokenizer is at hand."""

    token_ids: tuple[int, ...]
    text: str | None


@dataclass(frozen=True)
class Divergence:
    """Where a prompt left a row.

    Attributes:
        left_row: number of the row that it left.
        at: index of the first token that differs.
        sampled_by: index of the call that had sampled the row's token there; None where it was not sampled.
        shared: the last tokens that agree.
        held: what the row held from there on.
        prompt: what the next prompt held from there on; empty where the prompt ends.
    """

    left_row: int
    at: int
    sampled_by: int | None
    shared: Excerpt
    held: Excerpt
    prompt: Excerpt


@dataclass(frozen=True)
class RowLine:
    """One row: which calls it is made of (by their index), how long it is, how much of it is trained, and why it was opened."""

    index: int
    participant: str
    calls: tuple[int, ...]
    tokens: int
    trained: int
    open_reason: str
    divergence: Divergence | None


@dataclass(frozen=True)
class RowsShown:
    """The rows of a rollout, with what was counted on the way and how sampling differed from the plain distribution."""

    rollout_id: str
    rows: tuple[RowLine, ...]
    counters: Mapping[str, int]
    processed: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "rollout_id": self.rollout_id, "rows": [_line_json(row) for row in self.rows], "counters": dict(self.counters),
            "processed": list(self.processed),
        }  # fmt: skip


def rollout_rows(ledger: LedgerHandle, rollout_id: str, decode: Decoder | None) -> RowsShown:
    """The rows of one rollout that is in the read models.

    Args:
        decode: text of token ids; asked with the model version that sampled the rollout.
    Raises:
        UnknownId: no such rollout.
        TokenError: stored tokens are damaged.
    """
    found = read_rollouts(ledger, [rollout_id])
    captured = captured_calls(found.events[rollout_id], found.tokens)
    text = _text_of(captured.calls, decode)
    built = build_rows(rollout_id, captured.calls, text=text)
    counters = {**captured.left_out, **built.counters}
    return RowsShown(rollout_id, shown_rows(built, captured.calls, text), dict(sorted(counters.items())), captured.processed)


def _text_of(calls: Sequence[SampledTokens], decode: Decoder | None) -> Text | None:
    versions = [version for call in calls for version in call.model_versions]
    if decode is None or not versions or decode(versions[0], []) is None:
        return None
    return lambda token_ids: decode(versions[0], token_ids) or ""


def shown_rows(built: BuiltRows, calls: Sequence[SampledTokens], text: Text | None) -> tuple[RowLine, ...]:
    """A line for each row.

    Args:
        built: the rows.
        calls: those that they are made of.
        text: token ids to text, None where no tokenizer is at hand.
    """
    index_of = {call.call_id: call.index for call in calls}
    return tuple(
        RowLine(
            index=row.index, participant=row.participant, calls=tuple(index_of[call_id] for call_id in row.call_ids),
            tokens=len(row.ids_T), trained=int(row.mask_T.sum()), open_reason=row.open_reason,
            divergence=_divergence(row, built.rows, index_of, text),
        )
        for row in built.rows
    )  # fmt: skip


def _divergence(row: Row, rows: Sequence[Row], index_of: Mapping[str, int], text: Text | None) -> Divergence | None:
    if row.left_row is None or row.diverges_at is None:
        return None
    left, at = rows[row.left_row], row.diverges_at
    prompt = int(np.argmax(row.step_T >= 0))
    step = int(left.step_T[at]) if at < len(left.ids_T) else -1

    def excerpt(ids: Sequence[int]) -> Excerpt:
        return Excerpt(tuple(ids), None if text is None else text(ids))

    return Divergence(
        left_row=left.index, at=at, sampled_by=None if step < 0 else index_of[left.call_ids[step]],
        shared=excerpt(left.ids_T[max(0, at - BEFORE) : at].tolist()), held=excerpt(left.ids_T[at : at + AFTER].tolist()),
        prompt=excerpt(row.ids_T[at : min(prompt, at + AFTER)].tolist()),
    )  # fmt: skip


def _line_json(row: RowLine) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "index": row.index, "participant": row.participant, "calls": list(row.calls), "tokens": row.tokens, "trained": row.trained,
        "open_reason": row.open_reason, "left_row": None, "diverges_at": None,
    }  # fmt: skip
    if row.divergence is not None:
        told = row.divergence
        shown |= {"left_row": told.left_row, "diverges_at": told.at, "sampled_by": told.sampled_by}
        for name in ("shared", "held", "prompt"):
            excerpt: Excerpt = getattr(told, name)
            shown[name] = {"token_ids": list(excerpt.token_ids), "text": excerpt.text}
    return shown
