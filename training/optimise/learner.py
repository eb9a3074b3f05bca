"""A policy in training: one version's weights with the optimiser that goes on from it. Torch; reads and writes policy folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.models.causal_lm import load_model, weights_to_save
from training.models.folder import read_files, write_folder
from training.optimise.adapters import attach, load_adapter, save_adapter, save_merged
from training.optimise.distributed import Ranks, agree, model_digest, sharded_gradient
from training.optimise.gradient import update_gradient, with_column
from training.optimise.logprobs import Scorer, token_scores, torch_threads
from training.optimise.optimiser import AdamW
from training.train_config import Optimiser, PolicyTable
from training.update_batch import UpdateBatch
from training.view import RolloutView

if TYPE_CHECKING:
    from peft import PeftModel

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SCORED_AT_ONCE = 8192
ADAPTER = "adapter"
"""Name of the folder of an adapter inside its version's folder."""


class Learner:
    """Weights that are read from a policy folder, changed step by step, and written to another.

    With an adapter the base's weights stay and the adapter's change; what is written is a policy folder with the adapter added in, and the
    adapter by itself in a folder inside of it, from which training goes on.
    """

    def __init__(
        self,
        folder: Path,
        policy: PolicyTable,
        *,
        base: Path,
        seed: int,
        threads: int,
        temperature: float = 1.0,
        ranks: Ranks | None = None,
    ) -> None:
        """Read the weights.

        Args:
            folder: the version that is trained on.
            base: the version that an adapter is put on; not read without one.
            seed: of a new adapter.
            ranks: which of how many processes this is, each of which has the same weights and steps with it; None: the only one.
        """
        self._ranks = ranks or Ranks()
        self._threads, self._base, self._dtype = threads, base, _DTYPES[policy.dtype]
        self._files = read_files(folder)
        self._adapted: PeftModel | None = None
        self._model: nn.Module
        if policy.lora is None:
            self._model = load_model(folder, self._dtype)
        else:
            bare, kept = load_model(base, self._dtype), folder / ADAPTER
            self._adapted = load_adapter(bare, kept, base=base) if kept.is_dir() else attach(bare, policy.lora, seed=seed)
            self._model = self._adapted
        self._scorer = Scorer(self._model, temperature=temperature)
        self._optimiser: AdamW | None = None

    @property
    def config(self) -> Mapping[str, object]:
        """The contents of the policy's `config.json`."""
        return self._files.config

    def optimise(self, table: Optimiser, *, total_steps: int, state: Mapping[str, Tensor] | None) -> None:
        """Begin a stage's optimiser, or go on with its state."""
        self._optimiser = AdamW(self._model, table, total_steps=total_steps)
        if state is not None:
            self._optimiser.load(state)

    def with_proximal(self, batch: UpdateBatch, *, micro_tokens: int) -> UpdateBatch:
        """The batch with what the weights say now, which is what they said at the start of the update, as column `proximal`."""
        with torch_threads(self._threads):
            return with_column(batch, "proximal", self._scorer, micro_tokens=micro_tokens)

    def step(self, batch: UpdateBatch, *, micro_tokens: int, seed: int) -> dict[str, float]:
        """What one optimiser step measured and counted; the weights are changed.

        Args:
            seed: of dropout, where the policy has any.
        Raises:
            UpdateRefused: the batch or its gradient must not be trained on; the weights are as they were.
        """
        assert self._optimiser is not None
        with torch_threads(self._threads), torch.random.fork_rng(devices=[]):
            # Each process has other rows, which shall not share their dropout.
            torch.manual_seed(seed + self._ranks.rank)
            if self._ranks.world == 1:
                measured = update_gradient(self._scorer, batch, micro_tokens=micro_tokens)
            else:
                measured = sharded_gradient(self._scorer, batch, self._ranks, micro_tokens=micro_tokens)
            taken = self._optimiser.step()
        return {**measured.as_counters(), "learning_rate": taken.learning_rate, "clipped_steps": int(taken.clipped)}

    def agree(self) -> None:
        """Nothing, when all processes have the same weights.

        Raises:
            UpdateRefused: they have not; on every process.
        """
        if self._ranks.world > 1:
            agree(model_digest(self._model), self._ranks, what="weights")

    def score(self, ids: Sequence[int], prompt: int) -> NDArray[np.float64]:
        """Log-probabilities of `ids[prompt:]` under the plain distribution, in nats: what an engine's must agree with."""
        id_T = np.asarray(ids, dtype=np.int32)
        wanted_T = np.arange(len(id_T)) >= prompt
        with torch_threads(self._threads):
            scores = token_scores(
                Scorer(self._model), id_T, np.zeros(len(id_T), dtype=np.int64), micro_tokens=SCORED_AT_ONCE, wanted_T=wanted_T
            )
        return scores.logprob_T[prompt:]

    def logprobs(self, view: RolloutView, *, micro_tokens: int) -> NDArray[np.float64]:
        """Log-probabilities of the view's trained tokens at the temperature of sampling, in nats, shape (T,); NaN elsewhere."""
        with torch_threads(self._threads):
            return token_scores(self._scorer, view.id_T, view.row_T, micro_tokens=micro_tokens, wanted_T=view.mask_T).logprob_T

    def write(self, folder: Path) -> None:
        """Write the weights as a policy folder that is not there yet."""
        if self._adapted is None:
            write_folder(folder, self._files, weights_to_save(self._model))
        else:
            save_merged(self._adapted, folder, base=self._base, dtype=self._dtype)
            save_adapter(self._adapted, folder / ADAPTER, base=self._base)

    def state(self) -> dict[str, Tensor]:
        """The optimiser's state."""
        assert self._optimiser is not None
        return self._optimiser.state()


def merged_counters(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What the optimiser steps of an update measured together: counts added, `_max` as maxima, everything else as the mean over the steps.

    The loss of the first and the last step stand beside the mean where there is more than one.
    """
    found: dict[str, float] = {"optimiser_steps": len(steps)}
    for name in dict.fromkeys(name for step in steps for name in step):
        values = [step[name] for step in steps if name in step]
        if name.endswith("_max"):
            found[name] = max(values)
        elif all(isinstance(value, int) for value in values):
            found[name] = sum(values)
        else:
            found[name] = float(np.mean(values))
    if len(steps) > 1:
        found |= {"loss_first_step": steps[0]["loss"], "loss_last_step": steps[-1]["loss"]}
    return found
