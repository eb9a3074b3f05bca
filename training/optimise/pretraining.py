"""A run's first version, and copy-pretraining: what there is before any rollout is learnt from. Writes files and the ledger."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ledger.errors import SettingsError
from ledger.events import ModelVersionPublished
from ledger.ids import derived_id
from training.models.causal_lm import CausalLM, weights_to_save
from training.models.copying import CopyBatch, copy_batches
from training.models.folder import TOKENIZER, read_files, write_folder
from training.models.presets import preset_of
from training.models.tokenizer import policy_files, trained_tokenizer
from training.optimise.batch_events import BatchName, record_rows
from training.optimise.conversations import conversations, texts
from training.optimise.opened import Start, Training
from training.optimise.recipe import BoundTerm, bound_term, term_ids
from training.optimise.schedule import Place, stream_seed
from training.optimise.traces_read import collect_traces
from training.optimise.updates import Ready
from training.rollout import policies
from training.stages import Progress, silent
from training.train_config import CopyStage, MethodUse
from training.update_batch import Term, UpdateBatch

MICRO_TOKENS = 16384
COPY = "copy"


def initial_version(training: Training, *, progress: Progress = silent) -> str:
    """The version that the run starts from: that of its first update, else a base that is published, or new weights by the root seed.

    Raises:
        SettingsError: a policy from scratch has no traces to make its tokenizer from.
    """
    chain = training.chain()
    if chain:
        return chain[0].before
    if training.base is not None:
        name, folder = training.base
        licence = "Apache-2.0" if training.table.policy.source == "smollm2" else "unknown"
        return policies.published(training.ledger, name, folder, sampling={}, licence=licence).model_version
    made = training.checkpoints.keep_version(training.version_name, lambda folder: _new_policy(training, folder, progress))
    body = ModelVersionPublished(
        model_version=made.version, name=training.version_name, weights_digest=made.weights_digest, tokenizer_digest=made.tokenizer_digest,
        template_digest=made.template_digest, scripted=False, dtype="float32", run_id=training.run_id, stage="init", round=0,
    )  # fmt: skip
    training.ledger.append([training.ledger.new(body, correlation_id=training.run_id)])
    return made.version


def _new_policy(training: Training, folder: Path, progress: Progress) -> None:
    """Write a policy with fresh weights and a tokenizer made from the messages of the supervised traces."""
    supervised = [place for place in training.places if place.stage.stage == "supervised" and place.index == 0]
    if not supervised:
        raise SettingsError("policy.source = 'tiny' makes its tokenizer from supervised traces; allowed: with a supervised stage")
    for place in supervised:
        for _, ids in collect_traces(training, place, progress=progress):
            training.said |= conversations(training.ledger, ids)
    files = policy_files(trained_tokenizer(texts(training.said)), preset_of(training.table.policy.preset))
    generator = torch.Generator().manual_seed(stream_seed(training.lab.config.seed, "init"))
    write_folder(folder, files, weights_to_save(CausalLM(files.config).initialise(generator)))


def ready(training: Training, place: Place, start: Start) -> Ready:
    """The recorded batch of a place of copy-pretraining; no rollout is in it."""
    stage = place.stage
    assert isinstance(stage, CopyStage)
    term = bound_term(MethodUse(name="supervised"), MethodUse(name="token_mean"))
    files = read_files(start.folder)
    vocabulary, first_id = int(files.config["vocab_size"]), first_plain_id(files.texts[TOKENIZER])
    name, methods = BatchName(training.run_id, stage.name, place.round, start.version), term_ids((term,))
    batch_id = record_rows(
        training.ledger, name, [], {}, batch_id=derived_id("batch", training.run_id, stage.name, place.round, start.version, methods),
        methods=methods, counters={"optimiser_steps": len(place.steps), "first_token_id": first_id},
    )  # fmt: skip

    def steps() -> Iterator[UpdateBatch]:
        for step in place.steps:
            generator = torch.Generator().manual_seed(stream_seed(training.lab.config.seed, "data", stage.name, "step", step))
            drawn = copy_batches(
                vocabulary, generator, batch_tokens=stage.batch_tokens, span=stage.span, times=stage.times, first_id=first_id
            )
            yield copy_batch(next(drawn), term)

    return Ready(batch_id, steps(), [], MICRO_TOKENS, {})


def copy_batch(drawn: CopyBatch, term: BoundTerm) -> UpdateBatch:
    """The columns of a batch of copies; every token that is said again weighs the same."""
    row_T, mask_T = drawn.row_T.numpy().astype(np.int64), drawn.mask_T.numpy()
    rows = int(row_T[-1]) + 1
    weight_T = np.where(mask_T, 1.0 / max(1, int(mask_T.sum())), 0.0)
    return UpdateBatch(
        (COPY,) * rows, row_T, drawn.ids_T.numpy().astype(np.int32), np.where(mask_T, 1.0, 0.0), {},
        (Term(term.objective, weight_T, mask_T, term.coefficient),), np.ones(rows, dtype=np.bool_),
    )  # fmt: skip


def first_plain_id(tokenizer: str) -> int:
    """The lowest token id from which on no special token follows at the beginning of the vocabulary.

    Args:
        tokenizer: the contents of `tokenizer.json`.
    """
    added: list[dict[str, Any]] = json.loads(tokenizer).get("added_tokens") or []
    special = {int(token["id"]) for token in added if token.get("special")}
    return next(number for number in range(len(special) + 1) if number not in special)
