"""A supervised stage: its dataset from recorded rollouts, sealed as an event, and the batches that are drawn from it. Writes the ledger."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ledger.events import BatchRow, DatasetSealed, LossWeight
from ledger.events.training import TrainingRow
from ledger.ids import derived_id
from training.examples import Example, examples
from training.models.tokenizer import Chat
from training.optimise.batch_events import BatchName, record_rows
from training.optimise.conversations import conversations, text_rows
from training.optimise.drawn import drawn_batch, draws
from training.optimise.opened import Dataset, Start, Training
from training.optimise.recipe import term_ids
from training.optimise.schedule import Place
from training.optimise.traces_read import collect_traces
from training.optimise.updates import Ready
from training.rollout.pretrained import tokenizer_digest
from training.rows import Row
from training.stages import Progress, silent
from training.train_config import SupervisedStage
from training.update_batch import UpdateBatch
from training.view_read import RoundRead, read_round

MICRO_TOKENS = 16384


def dataset(training: Training, place: Place, start: Start, *, progress: Progress = silent) -> Dataset:
    """The dataset of a stage, which is an event from now on; making it again gives the same.

    Args:
        place: any update of the stage.
        start: what tokenizer and template its rows are made with.
    """
    stage = place.stage
    assert isinstance(stage, SupervisedStage)
    if (kept := training.datasets.get(stage.name)) is not None:
        return kept
    first = training.places[place.round - 1 - place.index]
    chosen: list[Example] = []
    left_out: dict[str, int] = {}
    methods: list[str] = []
    for number, (source, rollout_ids) in enumerate(collect_traces(training, first, progress=progress)):
        method = examples.bind(source.examples.name, **source.examples.params)
        methods.append(method.ref.method_id)
        read = read_round(training.ledger, rollout_ids)
        rows, without = _rows(training, read, start)
        built = method.call(read.view, rows, read.reward, training.seed("data", first, number))
        chosen += built.examples
        for reason, count in {**without, **{reason: len(ids) for reason, ids in built.left_out.items()}}.items():
            left_out[reason] = left_out.get(reason, 0) + count
    dataset_id = derived_id("dataset", training.run_id, stage.name)
    _seal(training, stage, dataset_id, chosen, left_out)
    return training.datasets.setdefault(stage.name, Dataset(dataset_id, tuple(chosen), tuple(methods)))


def ready(training: Training, place: Place, start: Start, data: Dataset) -> Ready:
    """The recorded batch of a place: the rows that its optimiser steps draw, each with its weight over all of them."""
    stage = place.stage
    assert isinstance(stage, SupervisedStage)
    term = training.term(place)
    first = training.places[place.round - 1 - place.index]
    plan = draws(
        [len(example.row.ids_T) for example in data.examples], steps=stage.steps, batch_tokens=stage.batch_tokens,
        seed=training.seed("data", first),
    )  # fmt: skip
    mine = [plan[step] for step in place.steps]
    weight_E = np.zeros(len(data.examples))
    for chosen in mine:
        np.add.at(weight_E, np.array(chosen), drawn_batch(data.examples, chosen, term).weight_Q)
    used = sorted({n for chosen in mine for n in chosen})
    methods = {"examples": list(dict.fromkeys(data.methods)), **term_ids((term,))}
    ids = sorted({data.examples[n].row.rollout_id for n in used})
    name = BatchName(training.run_id, stage.name, place.round, start.version)
    drawn = sum(len(chosen) for chosen in mine)
    counters = {"optimiser_steps": len(mine), "rows_drawn": drawn, "rows_drawn_again": drawn - len(used)}
    batch_id = record_rows(
        training.ledger, name, _batch_rows(data.examples, used, weight_E), {}, batch_id=name.batch_id([data.dataset_id, *ids], methods),
        methods=methods, counters=counters,
    )  # fmt: skip

    def steps() -> Iterator[UpdateBatch]:
        for chosen in mine:
            yield drawn_batch(data.examples, chosen, term).batch

    return Ready(batch_id, steps(), _loss_weights(data.examples, used, weight_E), MICRO_TOKENS, {})


def _rows(training: Training, read: RoundRead, start: Start) -> tuple[list[Row], dict[str, int]]:
    """Rows of sampled tokens where the policy has the tokenizer that they were sampled with, else the conversation as text."""
    own = tokenizer_digest(start.folder)
    sampled = {
        rollout_id
        for rollout_id, version in zip(read.view.rollout_id_R, read.view.model_version_R, strict=True)
        if training.tokenizer_of(version) == own
    }
    rows = [row for built in read.built for row in built.rows if row.rollout_id in sampled]
    others = [rollout_id for rollout_id in read.view.rollout_id_R if rollout_id not in sampled]
    known = {rollout_id: training.said.pop(rollout_id) for rollout_id in others if rollout_id in training.said}
    known |= conversations(training.ledger, [rollout_id for rollout_id in others if rollout_id not in known])
    text = text_rows({rollout_id: known[rollout_id] for rollout_id in others}, Chat(start.folder))
    return [*rows, *text.rows.values()], {reason: len(ids) for reason, ids in text.left_out.items()}


def _seal(training: Training, stage: SupervisedStage, dataset_id: str, chosen: Sequence[Example], left_out: Mapping[str, int]) -> None:
    manifest = [
        {
            "rollout": example.row.rollout_id, "row": example.row.index, "tokens": len(example.row.ids_T),
            "trained": int(example.row.mask_T.sum()), "weight": example.weight, "reason": example.reason,
            "text_only": example.row.text_only,
        }
        for example in chosen
    ]  # fmt: skip
    blob = training.ledger.pending_json(manifest)
    body = DatasetSealed(
        dataset_id=dataset_id, run_id=training.run_id, stage=stage.name, manifest=blob.ref, rows=len(chosen),
        tokens=sum(len(example.row.ids_T) for example in chosen), text_only=sum(example.row.text_only for example in chosen),
        left_out=dict(left_out),
    )  # fmt: skip
    training.ledger.append([training.ledger.new(body, blob, correlation_id=training.run_id)])


def _batch_rows(data: Sequence[Example], used: Sequence[int], weight_E: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[BatchRow]:
    rows: dict[str, list[TrainingRow]] = {}
    for n in used:
        row, weight = data[n].row, float(weight_E[n])
        rows.setdefault(row.rollout_id, []).append(
            TrainingRow(
                index=row.index, open_reason=row.open_reason, tokens=len(row.ids_T), trained=int(row.mask_T.sum()), weight=weight,
                credit=weight,
            )
        )  # fmt: skip
    return [BatchRow(rollout_id=name, reward_id=None, votes=False, trains=True, rows=found) for name, found in rows.items()]


def _loss_weights(data: Sequence[Example], used: Sequence[int], weight_E: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[LossWeight]:
    weights: dict[str, float] = {}
    for n in used:
        weights[data[n].row.rollout_id] = weights.get(data[n].row.rollout_id, 0.0) + float(weight_E[n])
    total = sum(weights.values())
    return [
        LossWeight(rollout_id=name, reward_id=None, weight=weight, share=weight / total if total > 0 else None)
        for name, weight in weights.items()
    ]
