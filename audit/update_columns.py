"""The rows of a batch beside the rows that captured tokens give, with what was recorded of their tokens. Reads blobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from audit.update_subject import TrainedRow
from ledger.errors import BlobError
from ledger.events import BatchAssembled
from ledger.ledger import LedgerHandle
from training.rows import Row
from training.view import Floats
from training.view_read import RoundRead

_AXES = ("row_T", "rollout_Q")
_NEEDED = ("adv_T", "weight_T", *_AXES)
_NO_COLUMNS: Mapping[str, Floats] = {}


@dataclass(frozen=True, eq=False)
class Recorded:
    """Columns along T as they were recorded, and the orders that the rollouts along R may have.

    Attributes:
        columns: by name; empty without any.
        orders: rollout ids: as rounds are read, and as the batch names them.
    """

    columns: Mapping[str, Floats]
    orders: tuple[tuple[str, ...], ...]


def recorded_columns(ledger: LedgerHandle, told: Sequence[BatchAssembled]) -> tuple[Mapping[str, Floats], str]:
    """The columns of a batch, and why they cannot be read; both empty where it has none."""
    refs = {part.columns.blob_id for part in told if part.columns is not None}
    if not refs:
        return _NO_COLUMNS, ""
    if len(refs) > 1:
        return _NO_COLUMNS, f"columns: the parts name {len(refs)} blobs; allowed: one"
    try:
        found = load(ledger.blob(next(iter(refs))))
    except (BlobError, SafetensorError) as error:
        return _NO_COLUMNS, f"columns: {error}"
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        return _NO_COLUMNS, f"columns: without {', '.join(missing)}"
    tokens, rows = len(found["row_T"]), len(found["rollout_Q"])
    wrong = [name for name, column in found.items() if name not in _AXES and column.shape != (tokens,)]
    if wrong or np.any(np.diff(found["row_T"]) < 0) or (tokens and not 0 <= found["row_T"][0] <= found["row_T"][-1] < rows):
        return _NO_COLUMNS, f"columns: {', '.join(wrong) or 'row_T'} does not fit {tokens} tokens in {rows} rows"
    return found, ""


def joined_rows(
    assembled: Sequence[tuple[str, BatchAssembled]], read: RoundRead | None, recorded: Recorded
) -> tuple[tuple[TrainedRow, ...], str]:  # fmt: skip
    """Every training row of the batch with its rebuilt row and its recorded tokens, and why the columns do not fit, empty where they do."""
    built: dict[str, dict[int, Row]] = {}
    for one in () if read is None else read.built:
        for row in one.rows:
            built.setdefault(row.rollout_id, {})[row.index] = row
    told = [(event_id, row.rollout_id, item) for event_id, part in assembled for row in part.rows for item in row.rows]
    places, fault = _places(told, recorded)
    found = []
    for number, (event_id, rollout_id, item) in enumerate(told):
        own = built.get(rollout_id, {}).get(item.index)
        if places is None:
            found.append(TrainedRow(rollout_id, event_id, item, own))
            continue
        tokens = {name: column[places[number]] for name, column in recorded.columns.items() if name not in _AXES}
        found.append(TrainedRow(rollout_id, event_id, item, own, tokens.pop("adv_T"), tokens.pop("weight_T"), tokens))
    return tuple(found), fault


def _places(told: Sequence[tuple[str, str, object]], recorded: Recorded) -> tuple[list[slice] | None, str]:
    """Where the tokens of each row stand; rows of a rollout stand in the columns in the order in which the batch tells them."""
    if not recorded.columns:
        return None, ""
    rollout_Q = recorded.columns["rollout_Q"].astype(np.int64)
    edges = np.searchsorted(recorded.columns["row_T"], np.arange(len(rollout_Q) + 1))
    for order in recorded.orders:
        if len(rollout_Q) and not 0 <= int(rollout_Q.min()) <= int(rollout_Q.max()) < len(order):
            continue
        waiting: dict[str, list[slice]] = {}
        for q, r in enumerate(rollout_Q):
            waiting.setdefault(order[int(r)], []).append(slice(int(edges[q]), int(edges[q + 1])))
        places = [waiting[name].pop(0) if waiting.get(name) else slice(0, 0) for _, name, _ in told]
        if all(place.stop - place.start == item.tokens for place, (_, _, item) in zip(places, told, strict=True)):  # type: ignore[attr-defined]
            return places, ""
    return None, "columns: no order of the rollouts fits the tokens of the rows"
