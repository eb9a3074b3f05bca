"""A policy in training is what its folder and its optimiser's state say, with an adapter and without."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from training.models.causal_lm import CausalLM, weights_to_save
from training.models.folder import write_folder
from training.models.presets import preset_of
from training.models.tokenizer import policy_files, trained_tokenizer
from training.objectives import objectives
from training.optimise.learner import ADAPTER, Learner, merged_counters
from training.rollout.pretrained import version_digest
from training.train_config import Optimiser, PolicyTable
from training.update_batch import Term, UpdateBatch

TABLE = Optimiser(learning_rate=1e-2)
LORA: dict[str, Any] = {"rank": 2, "targets": ("q_proj", "v_proj")}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A new policy's folder."""
    files = policy_files(trained_tokenizer(["a few words to say"]), preset_of("0.2M"))
    return write_folder(tmp_path / "base", files, weights_to_save(CausalLM(files.config).initialise(torch.Generator().manual_seed(1))))


def learner(folder: Path, base: Path, *, state: Any = None, lora: bool = False) -> Learner:
    policy = PolicyTable.model_validate({"lora": LORA} if lora else {})
    made = Learner(folder, policy, base=base, seed=1, threads=1)
    made.optimise(TABLE, total_steps=10, state=state)
    return made


def batch(seed: int) -> UpdateBatch:
    rng = np.random.default_rng(seed)
    mask_T = np.tile([False, True, True, True], 3)
    term = Term(objectives.bind("supervised"), np.where(mask_T, 1 / 9, 0.0), mask_T)
    ids_T, row_T = rng.integers(6, 200, 12).astype(np.int32), np.repeat(np.arange(3), 4)
    return UpdateBatch(("a", "b", "c"), row_T, ids_T, np.where(mask_T, 1.0, 0.0), {}, (term,), np.zeros(3, dtype=np.bool_))


def steps(made: Learner, *seeds: int) -> None:
    for seed in seeds:
        made.step(batch(seed), micro_tokens=64, seed=seed)


@pytest.mark.parametrize("lora", [False, True])
def test_training_that_went_through_files_is_training_that_did_not(base: Path, tmp_path: Path, lora: bool) -> None:
    whole, half = learner(base, base, lora=lora), learner(base, base, lora=lora)
    steps(whole, 1, 2, 3)
    steps(half, 1, 2)
    half.write(tmp_path / "half")
    resumed = learner(tmp_path / "half", base, state=half.state(), lora=lora)
    steps(resumed, 3)
    for made, name in ((whole, "whole"), (resumed, "resumed")):
        made.write(tmp_path / name)
    assert version_digest(tmp_path / "whole") == version_digest(tmp_path / "resumed") != version_digest(base)
    assert (tmp_path / "whole" / ADAPTER).is_dir() == lora


def test_a_folder_with_its_adapter_added_in_says_what_the_adapter_says(base: Path, tmp_path: Path) -> None:
    made = learner(base, base, lora=True)
    ids = [7, 9, 11, 13, 15]
    before = made.score(ids, 2)
    steps(made, 1, 2)
    made.write(tmp_path / "made")
    served = learner(tmp_path / "made", base)
    assert np.abs(made.score(ids, 2) - before).max() > 1e-3
    assert np.abs(served.score(ids, 2) - made.score(ids, 2)).max() < 1e-5


def test_ratios_of_later_steps_are_to_the_start_of_the_update(base: Path) -> None:
    made = learner(base, base)
    kept = made.with_proximal(batch(1), micro_tokens=64)
    steps(made, 1)
    again = made.with_proximal(batch(1), micro_tokens=64)
    assert np.nanmax(np.abs(kept.logprobs["proximal"] - again.logprobs["proximal"])) > 1e-3


def test_counts_add_up_and_measurements_are_means() -> None:
    found = merged_counters([{"loss": 1.0, "tokens": 3, "gap_max": 0.5}, {"loss": 2.0, "tokens": 4, "gap_max": 0.25, "clipped_steps": 1}])
    assert found == {
        "optimiser_steps": 2, "loss": 1.5, "tokens": 7, "gap_max": 0.5, "clipped_steps": 1, "loss_first_step": 1.0, "loss_last_step": 2.0,
    }  # fmt: skip
    assert merged_counters([]) == {"optimiser_steps": 0}
