"""Batches as events: each rollout's reward, part, advantage and weight, in parts that fit an event. Writes the ledger."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import save

from ledger.events import BatchAssembled, BatchRow
from ledger.events.training import TrainingRow
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.limits import LIMITS
from training.optimise.batch import Assembled
from training.view import Floats

PART_BYTES = LIMITS.body_bytes * 3 // 4
"""Most bytes that the rows and exclusions of one event take, which leaves room for what every part repeats."""


@dataclass(frozen=True)
class BatchName:
    """What a batch is of.

    Attributes:
        run_id, stage, round: where it belongs; rounds are numbered through the whole run.
        model_version: the version that its update starts from.
    """

    run_id: str
    stage: str
    round: int
    model_version: str

    def batch_id(self, rollout_ids: Sequence[str], methods: Mapping[str, Sequence[str]]) -> str:
        """The batch's id: the same rollouts by the same methods in the same place are the same batch."""
        return derived_id(
            "batch", self.run_id, self.stage, self.round, self.model_version, sorted(rollout_ids), {k: list(v) for k, v in methods.items()}
        )


def record(ledger: LedgerHandle, name: BatchName, made: Assembled, methods: Mapping[str, Sequence[str]]) -> str:
    """The id of the batch, which is an event from now on; recording it again adds nothing.

    Raises:
        IdempotencyConflict: the same rollouts and methods gave another batch before.
    """
    view = made.round.view
    rows, exclusions = batch_rows(made)
    return record_rows(ledger, name, rows, exclusions, batch_id=name.batch_id(view.rollout_id_R, methods), methods=methods,
                       counters=made.counters, columns=columns(made))  # fmt: skip


def record_rows(
    ledger: LedgerHandle,
    name: BatchName,
    rows: Sequence[BatchRow],
    exclusions: Mapping[str, Sequence[str]],
    *,
    batch_id: str,
    methods: Mapping[str, Sequence[str]],
    counters: Mapping[str, float],
    columns: bytes | None = None,
) -> str:
    """As `record`, of rows that are made already."""
    blob = None if columns is None else ledger.pending(columns, media="application/safetensors")
    parts = list(_packed(rows, exclusions))
    events = []
    for number, (kept, left) in enumerate(parts):
        body = BatchAssembled(
            batch_id=batch_id, run_id=name.run_id, round=name.round, part=number, parts=len(parts), rows=kept, exclusions=left,
            model_version=name.model_version, stage=name.stage, methods={k: list(v) for k, v in methods.items() if v},
            columns=None if blob is None else blob.ref, counters=dict(counters) if number == 0 else {},
        )  # fmt: skip
        events.append(ledger.new(body, *([] if blob is None else [blob]), correlation_id=name.run_id))
    ledger.append(events)
    return batch_id


def batch_rows(made: Assembled) -> tuple[list[BatchRow], dict[str, list[str]]]:
    """The rollouts that vote or train, and the ids of the others by reason; together exactly the rollouts of the round."""
    view, stand, weight_T = made.round.view, made.stand, made.weight_T
    rows_of = _training_rows(made, weight_T)
    trained_T = view.mask_T & stand.trains_R[view.rollout_T]
    count_R = np.bincount(view.rollout_T[trained_T], minlength=view.rollouts)
    sum_R = np.bincount(view.rollout_T, weights=made.adv_T, minlength=view.rollouts)
    rows: list[BatchRow] = []
    exclusions: dict[str, list[str]] = {}
    for r, rollout_id in enumerate(view.rollout_id_R):
        votes, trains = bool(stand.votes_R[r]), bool(stand.trains_R[r])
        if not votes and not trains:
            exclusions.setdefault(stand.reason_R[r], []).append(rollout_id)
            continue
        rows.append(
            BatchRow(
                rollout_id=rollout_id, reward_id=made.round.reward_id_R[r], votes=votes, trains=trains, group_id=view.group_id_R[r],
                reward=made.round.reward.value_R[r], advantage=float(sum_R[r] / count_R[r]) if trains else None,
                path=made.path_R[r] if trains else None, reason=None if trains else stand.reason_R[r], rows=rows_of.get(r, []),
            )
        )  # fmt: skip
    return rows, exclusions


def columns(made: Assembled) -> bytes | None:
    """Advantage and weight of every token as safetensors; None where each is one number a row, so that the rows say it all."""
    view, weight_T = made.round.view, made.weight_T
    covered_T = view.mask_T & made.stand.trains_R[view.rollout_T]
    if all(_constant_by_row(values[covered_T], view.row_T[covered_T]) for values in (made.adv_T, weight_T)):
        return None
    return save({"adv_T": made.adv_T, "weight_T": weight_T, "row_T": view.row_T, "rollout_Q": view.rollout_Q})


def _constant_by_row(values: Floats, rows: Any) -> bool:
    same = rows[1:] == rows[:-1]
    return bool(np.all(values[1:][same] == values[:-1][same]))


def _training_rows(made: Assembled, weight_T: Floats) -> dict[int, list[TrainingRow]]:
    view = made.round.view
    rows = len(view.rollout_Q)
    trained_T = view.mask_T & made.stand.trains_R[view.rollout_T]
    tokens = np.bincount(view.row_T, minlength=rows)
    trained = np.bincount(view.row_T[trained_T], minlength=rows)
    weight = np.bincount(view.row_T, weights=weight_T, minlength=rows)
    credit = np.bincount(view.row_T, weights=np.abs(weight_T * made.adv_T), minlength=rows)
    found: dict[int, list[TrainingRow]] = {}
    for q, r in enumerate(view.rollout_Q):
        if made.stand.trains_R[r]:
            found.setdefault(int(r), []).append(
                TrainingRow(
                    index=made.round.index_Q[q], open_reason=made.round.open_reason_Q[q], tokens=int(tokens[q]), trained=int(trained[q]),
                    weight=float(weight[q]), credit=float(credit[q]),
                )
            )  # fmt: skip
    return found


def _packed(rows: Sequence[BatchRow], exclusions: Mapping[str, Sequence[str]]) -> Iterator[tuple[list[BatchRow], dict[str, list[str]]]]:
    """The rows, then the exclusions, in runs that fit one event each; one empty run when there is neither."""
    kept: list[BatchRow] = []
    left: dict[str, list[str]] = {}
    used = 0
    items: list[BatchRow | tuple[str, str]] = [*rows, *((reason, ident) for reason, ids in exclusions.items() for ident in ids)]
    for item in items:
        size = len(item.model_dump_json()) + 1 if isinstance(item, BatchRow) else sum(map(len, item)) + 10
        if used + size > PART_BYTES:
            yield kept, left
            kept, left, used = [], {}, 0
        used += size
        if isinstance(item, BatchRow):
            kept.append(item)
        else:
            left.setdefault(item[0], []).append(item[1])
    yield kept, left
