"""A small real training run up to the batch of its first round, and what a faulty trainer would have recorded from there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ledger.attempts import counted
from ledger.events import BatchRow, EngineRefreshed, LossWeight, RewardDerived, UpdateApplied
from ledger.events.training import TrainingRow
from ledger.ledger import LedgerHandle, open_ledger
from ledger.settings import Settings
from tests.training.optimise.lab_files import config, opened
from training import stages
from training.lab import Lab
from training.optimise import rounds, trainer
from training.optimise.batch import Assembled, assemble
from training.optimise.batch_events import BatchName, batch_rows, record_rows
from training.optimise.opened import Start, Training
from training.optimise.samplers import open_sampler
from training.optimise.schedule import place_of
from training.optimise.updates import learner_at, loss_weights

CONFIG = config(rounds=1, advantage={"name": "group_mean"})
LABEL = "rl/1"
ROUND = 3


def run_to_round(url: str, folder: Path) -> None:
    """Copying, imitation, and a round of rollouts that are judged and rewarded; nothing of its batch is recorded.

    A policy that knows next to nothing earns the same everywhere, so the rewards differ by slot as if the rule had said so.
    """
    with open_ledger(url, project="test", actor_id="tester") as ledger, opened(ledger, folder, CONFIG) as lab:
        trainer.sft_model(lab)
        trainer.rollouts(lab, LABEL, open_sampler)
        stages.verdicts(lab, round=ROUND)
        for number, rollout in enumerate(counted(ledger, lab.run().run_id, ROUND)):
            ledger.append([ledger.new(RewardDerived(
                reward_id=f"told-{rollout.rollout_id}", rollout_id=rollout.rollout_id, rule=lab.config.reward, rule_id=lab.rule.ref.method_id,
                verdict_ids=[str(rollout.verdict_id)], value=float(number % 3) / 2, reason="said by the test",
            ))])  # fmt: skip


@dataclass(frozen=True, eq=False)
class Forge:
    """What records the round's batch and update.

    Attributes:
        made: the right batch.
    """

    ledger: LedgerHandle
    training: Training
    start: Start
    made: Assembled

    def logprobs(self, place: int) -> np.ndarray[Any, Any]:
        """The trainer's log-probabilities of the round's tokens by the version of an update of the run's chain."""
        version = self.training.chain()[place].after
        start = Start(version, self.training.folder(version), None)
        learner = learner_at(self.training, place_of(self.training.places, LABEL), start)
        return learner.logprobs(self.made.round.view, micro_tokens=4096)

    def record(
        self, rows: Sequence[BatchRow], weights: Sequence[LossWeight], *, columns: Mapping[str, np.ndarray[Any, Any]] | None = None,
        counters: Mapping[str, float] | None = None,
    ) -> str:  # fmt: skip
        """The id of the update, recorded with its batch."""
        place = place_of(self.training.places, LABEL)
        name = BatchName(self.training.run_id, place.stage.name, place.round, self.start.version)
        blob = None if columns is None else save({key: np.ascontiguousarray(value) for key, value in columns.items()})
        batch_id = record_rows(
            self.ledger, name, rows, {}, batch_id="forged", methods=self.training.recipe(place).method_ids(), counters={}, columns=blob
        )
        update_id = place.update_id(self.training.run_id)
        body = UpdateApplied(
            update_id=update_id, batch_id=batch_id, run_id=self.training.run_id, step=place.round - 1, model_version_before=self.start.version,
            model_version_after="forged-next", weights=list(weights), counters=dict(counters or self.counters()),
            stage=place.stage.name, round=place.round,
        )  # fmt: skip
        self.ledger.append([self.ledger.new(body)])
        return update_id

    def counters(self, gap: float = 1e-5) -> dict[str, float]:
        """What one optimiser step measures."""
        return {"optimiser_steps": 1, "tokens": int(self.mask_T.sum()), "loss": 0.1, "grad_norm": 0.5, "gap_mean": gap, "gap_max": 2 * gap}

    @property
    def mask_T(self) -> np.ndarray[Any, Any]:
        """What is trained."""
        view = self.made.round.view
        return np.asarray(view.mask_T & self.made.stand.trains_R[view.rollout_T])

    def right(self) -> tuple[list[BatchRow], list[LossWeight]]:
        """The rows and weights of the right batch."""
        return told(self.made)

    def again(self, **judged: Any) -> Assembled:
        """The batch that the trainer's own code makes of the round with something of it replaced."""
        changed = replace(self.made.round, **judged)
        ids = changed.view.rollout_id_R
        recipe = self.training.recipe(place_of(self.training.places, LABEL))
        return assemble(changed, recipe, dispatched=ids, current=[self.start.version])

    def columns(self, made: Assembled) -> dict[str, np.ndarray[Any, Any]]:
        """Columns of every token."""
        view = made.round.view
        return {"adv_T": made.adv_T, "weight_T": made.weight_T, "row_T": view.row_T, "rollout_Q": view.rollout_Q}

    def refresh(self, *, cache_reset: bool, probe_gap: float | None) -> None:
        """The engine says that it took the version once more."""
        engine = f"torch-{self.training.run_id}"
        body = EngineRefreshed(
            engine_id=engine, model_version=self.start.version, cache_reset=cache_reset, probe_gap=probe_gap,
            refresh=len(self.ledger.read_stream(f"engine-{engine}")),
        )  # fmt: skip
        self.ledger.append([self.ledger.new(body)])


@contextmanager
def forge(url: str, folder: Path) -> Iterator[Forge]:
    """What a copy of the ledger of a run that `run_to_round` made is forged with; the folder is read alone."""
    with open_ledger(url, project="test", actor_id="tester") as ledger, Lab(CONFIG, ledger, Settings(data_dir=folder)) as lab:
        training = Training(lab)
        place = place_of(training.places, LABEL)
        chain = training.chain()
        start = Start(chain[-1].after, training.folder(chain[-1].after), None)
        ids = [rollout.rollout_id for rollout in counted(ledger, training.run_id, ROUND)]
        judged = rounds.judged_round(training, place, ids, trained=start.version)
        made = assemble(judged, training.recipe(place), dispatched=ids, current=[start.version])
        yield Forge(ledger, training, start, made)


def told(made: Assembled) -> tuple[list[BatchRow], list[LossWeight]]:
    """What a batch tells: rows and weights."""
    return batch_rows(made)[0], loss_weights(made)


def sliced(row: BatchRow) -> BatchRow:
    """The row with its first training row told as two slices, half of it each."""
    whole = row.rows[0]
    half = {"tokens": whole.tokens, "weight": whole.weight / 2, "credit": whole.credit / 2}
    first = TrainingRow(index=0, open_reason=whole.open_reason, trained=whole.trained // 2, **half)
    second = TrainingRow(index=len(row.rows), open_reason="template", trained=whole.trained - whole.trained // 2, **half)
    return row.model_copy(update={"rows": [first, *row.rows[1:], second]})
