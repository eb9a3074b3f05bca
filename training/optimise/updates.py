"""One update: optimiser steps on a batch, a durable version, and the one append that makes both count. Writes files and the ledger."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ledger.events import LossWeight, ModelVersionPublished, UpdateApplied
from ledger.store import New
from training.optimise.batch import Assembled
from training.optimise.chain import AppliedUpdate, published_version
from training.optimise.checkpoints import MadeVersion, OptimiserState
from training.optimise.learner import Learner, merged_counters
from training.optimise.opened import Start, Training
from training.optimise.schedule import Place, stream_seed
from training.optimise.team import Opening, Step
from training.update_batch import UpdateBatch

WEIGHTS_A_PART = 150
"""Loss weights in one event, of up to some 400 bytes each."""


@dataclass(frozen=True, eq=False)
class Ready:
    """What an update is made from.

    Attributes:
        batch_id: the recorded batch.
        steps: the batch of each optimiser step in order; they are made as they are asked for.
        weights: each rollout's explicit weight.
        micro_tokens: tokens in one forward pass.
        counters: of the batch that the update repeats.
    """

    batch_id: str
    steps: Iterable[UpdateBatch]
    weights: Sequence[LossWeight]
    micro_tokens: int
    counters: Mapping[str, float]


def learner_at(training: Training, place: Place, start: Start, *, temperature: float = 1.0) -> Learner:
    """The policy at the start of an update, with the stage's optimiser as the update before it left it."""
    return training.team.open(Opening(
        start.folder, training.table.policy, base=training.folder(training.first(start)), threads=training.table.threads,
        seed=stream_seed(training.lab.config.seed, "init"), temperature=temperature,
        optimiser=place.stage.optimiser, total_steps=stage_steps(place),
        state=None if start.previous is None else training.checkpoints.state(start.previous.update_id).tensors,
    ))  # fmt: skip


def stage_steps(place: Place) -> int:
    """Optimiser steps of a whole stage, over which its learning rate decays."""
    stage = place.stage
    return stage.rounds * stage.updates * stage.epochs if stage.stage == "reinforce" else stage.steps


def apply_update(
    training: Training, place: Place, start: Start, learner: Learner, ready: Ready, *, done: Callable[[int], None] = lambda _: None
) -> AppliedUpdate:
    """The update, which exists together with the version that it made: folder and optimiser state are durable before the one append.

    Args:
        done: called with the number of optimiser steps done since the last call.
    Raises:
        UpdateRefused: a step's batch or gradient must not be trained on; nothing of the update is recorded.
    """
    measured = []
    for number, batch in enumerate(ready.steps):
        measured.append(training.team.step(learner, Step(batch, ready.micro_tokens, training.seed("dropout", place, number))))
        done(1)
    training.team.settle(learner)
    counters = {**ready.counters, **merged_counters(measured)}
    update_id = place.update_id(training.run_id)
    made = training.checkpoints.keep_version(training.version_name, learner.write)
    cursor = {"stage": place.stage.name, "index": place.index, "round": place.round, "steps": len(measured)}
    state_digest = training.checkpoints.keep_state(update_id, OptimiserState(learner.state(), cursor))
    events, counters = _version_event(training, place, start, made, state_digest=state_digest, counters=counters)
    parts = _parts(ready.weights)
    for number, weights in enumerate(parts):
        body = UpdateApplied(
            update_id=update_id, batch_id=ready.batch_id, run_id=training.run_id, step=place.round - 1, part=number, parts=len(parts),
            model_version_before=start.version, model_version_after=made.version, weights=weights,
            counters=counters if number == 0 else {}, stage=place.stage.name, round=place.round,
        )  # fmt: skip
        events.append(training.ledger.new(body, correlation_id=training.run_id))
    training.ledger.append(events)
    chain = training.chain()
    training.checkpoints.keep_only([update.update_id for update in chain[-training.table.keep_checkpoints :]])
    return chain[-1]


def loss_weights(made: Assembled) -> list[LossWeight]:
    """The explicit weight of each rollout in the loss, with its advantage and its share of Σ |weight × advantage|."""
    view, weight_T = made.round.view, made.weight_T
    weight_R = np.bincount(view.rollout_T, weights=weight_T, minlength=view.rollouts)
    credit_R = np.bincount(view.rollout_T, weights=np.abs(weight_T * made.adv_T), minlength=view.rollouts)
    trained_T = view.mask_T & made.stand.trains_R[view.rollout_T]
    count_R = np.bincount(view.rollout_T[trained_T], minlength=view.rollouts)
    sum_R = np.bincount(view.rollout_T, weights=made.adv_T, minlength=view.rollouts)
    total = float(credit_R.sum())
    return [
        LossWeight(
            rollout_id=view.rollout_id_R[r], reward_id=made.round.reward_id_R[r], weight=float(weight_R[r]),
            advantage=float(sum_R[r] / count_R[r]), share=float(credit_R[r] / total) if total > 0 else None,
        )
        for r in np.flatnonzero(made.stand.trains_R)
    ]  # fmt: skip


def _version_event(
    training: Training, place: Place, start: Start, made: MadeVersion, *, state_digest: str, counters: Mapping[str, float]
) -> tuple[list[New], dict[str, float]]:
    """The version's event, unless it is published already: weights that did not change are the version that they were."""
    if made.version == start.version or published_version(training.ledger, made.version) is not None:
        return [], {**counters, "weights_unchanged": 1}
    policy = training.table.policy
    adapter = policy.lora is not None
    body = ModelVersionPublished(
        model_version=made.version, name=training.version_name, weights_digest=made.weights_digest, tokenizer_digest=made.tokenizer_digest,
        template_digest=made.template_digest, scripted=False, parent=start.version, dtype=policy.dtype,
        artifact="adapter" if adapter else "full", base=training.first(start) if adapter else None,
        serving=policy.serving if adapter else None, run_id=training.run_id, stage=place.stage.name, round=place.round,
        step=place.round - 1, optimiser_digest=state_digest,
    )  # fmt: skip
    return [training.ledger.new(body, correlation_id=training.run_id)], dict(counters)


def _parts(weights: Sequence[LossWeight]) -> list[list[LossWeight]]:
    return [list(weights[at : at + WEIGHTS_A_PART]) for at in range(0, len(weights), WEIGHTS_A_PART)] or [[]]
