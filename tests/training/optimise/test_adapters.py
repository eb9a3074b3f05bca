"""Adapters: what is trained, what is kept, and that merged, reloaded and attached give the same log-probabilities."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ledger.errors import AdapterError, PolicyFolderError
from tests.training.optimise.small_batches import CONFIG, apart, batch_of, flat, policy, random_rollouts, term_of, view_of
from training.models.causal_lm import CausalLM, load_model, weights_to_save
from training.models.folder import PolicyFiles, write_folder
from training.optimise.adapters import adapter_version, attach, load_adapter, save_adapter, save_merged, without_adapter
from training.optimise.gradient import update_gradient, with_column
from training.optimise.logprobs import agreement, token_scores
from training.optimise.optimiser import AdamW
from training.rollout.pretrained import weights_digest
from training.train_config import Lora, Optimiser

LORA = Lora(rank=4, targets=("q_proj", "v_proj", "down_proj"))
ADVANTAGE = [1.0, -0.5, 0.3, -1.2, 0.7, -0.1]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    texts = {"config.json": json.dumps(CONFIG), "tokenizer.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": "x"}
    return write_folder(tmp_path / "base", PolicyFiles(texts), weights_to_save(policy(dtype=torch.float32)))


def trained(base: Path, steps: int = 2) -> torch.nn.Module:
    model = attach(load_model(base), LORA, seed=1)
    optimiser = AdamW(model, Optimiser(learning_rate=5e-2), total_steps=steps)
    for seed in range(steps):
        view = view_of(random_rollouts(seed))
        update_gradient(model, batch_of(view, [term_of(view, "ppo_clip")], ADVANTAGE), micro_tokens=200)
        optimiser.step()
    return model


def told(model: torch.nn.Module) -> np.ndarray:
    view = view_of(random_rollouts(9))
    return token_scores(model, view.id_T, view.row_T, micro_tokens=200).logprob_T


def test_a_new_adapter_changes_nothing_and_is_all_that_is_trained(base: Path) -> None:
    plain, model = load_model(base), attach(load_model(base), LORA, seed=1)
    assert agreement(told(plain), told(model)).max == 0.0
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert len(names) == 2 * 3 * CONFIG["num_hidden_layers"] and all(".lora_" in name for name in names)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    view = view_of(random_rollouts(0))
    update_gradient(model, batch_of(view, [term_of(view, "ppo_clip")], ADVANTAGE), micro_tokens=200)
    AdamW(model, Optimiser(learning_rate=1e-2), total_steps=1).step()
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert changed and changed <= set(names)


def test_the_seed_decides_the_new_adapter_and_no_other_randomness(base: Path) -> None:
    models = [load_model(base) for _ in range(3)]
    state = torch.get_rng_state()
    one, same, other = (attach(model, LORA, seed=seed).state_dict() for model, seed in zip(models, (1, 1, 2), strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_saved_reloaded_and_merged_say_the_same(base: Path, tmp_path: Path) -> None:
    model = trained(base)
    expected = told(model)
    assert agreement(expected, told(load_model(base))).max > 0.1
    version = save_adapter(model, tmp_path / "adapter", base=base)
    merged = save_merged(model, tmp_path / "merged", base=base)
    assert agreement(expected, told(load_adapter(load_model(base), version.folder, base=base))).max == 0.0
    assert agreement(expected, told(load_model(merged))).max < 1e-5
    assert isinstance(load_model(merged), CausalLM)
    assert agreement(expected, told(model)).max == 0.0
    assert json.loads((merged / "config.json").read_text())["torch_dtype"] == "float32"
    assert (merged / "chat_template.jinja").read_text() == "x"
    half = save_merged(model, tmp_path / "half", base=base, dtype=torch.bfloat16)
    assert {weight.dtype for weight in load_file(str(half / "model.safetensors")).values()} == {torch.bfloat16}
    assert json.loads((half / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_transformers_and_peft_read_both_folders(base: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = trained(base)
    save_adapter(model, tmp_path / "adapter", base=base)
    save_merged(model, tmp_path / "merged", base=base)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter")
    assert agreement(told(model), told(adapted)).max < 1e-5
    assert agreement(told(model), told(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"))).max < 1e-5


def test_without_the_adapter_it_is_the_base_and_can_be_the_reference(base: Path) -> None:
    model = trained(base)
    view = view_of(random_rollouts(5))
    batch = batch_of(view, [term_of(view, "kl_penalty")], ADVANTAGE)
    with without_adapter(model):
        assert agreement(told(model), told(load_model(base))).max == 0.0
        batch = with_column(batch, "ref", model, micro_tokens=200)
    measured = update_gradient(model, batch, micro_tokens=200)
    apart_model = trained(base)
    assert (
        measured.loss == pytest.approx(update_gradient(apart_model, batch, micro_tokens=200, ref=load_model(base)).loss)
        and measured.loss > 0
    )
    assert apart(flat(model), flat(apart_model)) < 1e-6


def test_training_goes_on_from_the_folder_bit_for_bit(base: Path, tmp_path: Path) -> None:
    def step(model: torch.nn.Module, optimiser: AdamW) -> None:
        view = view_of(random_rollouts(7))
        update_gradient(model, batch_of(view, [term_of(view, "ppo_clip")], ADVANTAGE), micro_tokens=200)
        optimiser.step()

    model = attach(load_model(base), LORA, seed=1)
    optimiser = AdamW(model, Optimiser(learning_rate=5e-2), total_steps=2)
    step(model, optimiser)
    version, state = save_adapter(model, tmp_path / "adapter", base=base), optimiser.state()
    again = load_adapter(load_model(base), version.folder, base=base)
    resumed = AdamW(again, Optimiser(learning_rate=5e-2), total_steps=2)
    resumed.load(state)
    step(model, optimiser)
    step(again, resumed)
    first, second = (save_adapter(m, tmp_path / name, base=base) for m, name in ((model, "first"), (again, "second")))
    assert first.digest == second.digest != version.digest


def test_a_version_is_an_adapter_with_its_base(base: Path, tmp_path: Path) -> None:
    model = trained(base)
    version = save_adapter(model, tmp_path / "adapter", base=base)
    assert adapter_version(tmp_path / "adapter") == version
    other = write_folder(
        tmp_path / "other",
        PolicyFiles({p.name: p.read_text() for p in base.iterdir() if p.suffix != ".safetensors"}),
        weights_to_save(policy(4, torch.float32)),
    )
    with pytest.raises(AdapterError, match="was trained on base"):
        load_adapter(load_model(other), version.folder, base=other)
    assert save_adapter(model, tmp_path / "moved", base=other).digest != version.digest


def test_what_does_not_fit_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"named nothing; allowed: down_proj, gate_proj"):
        attach(load_model(base), Lora(targets=("q_proj", "nothing")), seed=0)
    model = attach(load_model(base), LORA, seed=1)
    save_adapter(model, tmp_path / "adapter", base=base)
    with pytest.raises(AdapterError, match="already"):
        save_adapter(model, tmp_path / "adapter", base=base)
    with pytest.raises(PolicyFolderError, match="already"):
        save_merged(model, base, base=base)
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(AdapterError, match="adapter_model"):
        adapter_version(tmp_path / "adapter")


@pytest.mark.slow
def test_smollm2_takes_one_supervised_and_one_reinforced_update_and_resumes(smollm2_dir: Path, tmp_path: Path) -> None:
    """The numbers are printed; no gain is claimed."""
    rng = np.random.default_rng(0)
    rollouts = [[(rng.integers(100, 40000, size=48).tolist(), [-1] * 30 + [0] * 18)] for _ in range(4)]
    view = view_of(rollouts)

    def update(model: torch.nn.Module, optimiser: AdamW, objective: str) -> None:
        began = time.process_time()
        batch = batch_of(view, [term_of(view, objective)], [1.0, -1.0, 0.5, -0.5])
        measured = update_gradient(model, batch, micro_tokens=256)
        taken = optimiser.step()
        print(f"{objective}: loss {measured.loss:.4f}, gradient norm {taken.grad_norm:.4f}, {time.process_time() - began:.1f} cpu-s")

    def scores(model: torch.nn.Module) -> np.ndarray:
        return token_scores(model, view.id_T, view.row_T, micro_tokens=256).logprob_T

    config, lora = Optimiser(learning_rate=1e-3), Lora(rank=8)
    model = attach(load_model(smollm2_dir), lora, seed=0)
    optimiser = AdamW(model, config, total_steps=2)
    before = scores(model)
    update(model, optimiser, "supervised")
    first, state = save_adapter(model, tmp_path / "first", base=smollm2_dir), optimiser.state()
    after = scores(model)
    update(model, optimiser, "ppo_clip")
    second = save_adapter(model, tmp_path / "second", base=smollm2_dir)
    expected = scores(model)
    print(f"moved by the supervised update {agreement(before, after)}, by the reinforced one {agreement(after, expected)}")

    again = load_adapter(load_model(smollm2_dir), first.folder, base=smollm2_dir)
    assert agreement(after, scores(again)).max == 0.0
    resumed = AdamW(again, config, total_steps=2)
    resumed.load(state)
    update(again, resumed, "ppo_clip")
    assert save_adapter(again, tmp_path / "again", base=smollm2_dir).digest == second.digest
    assert all(torch.equal(value, resumed.state()[name]) for name, value in optimiser.state().items())
    del again, resumed

    exact = save_merged(model, tmp_path / "merged", base=smollm2_dir)
    rounded = save_merged(model, tmp_path / "rounded", base=smollm2_dir, dtype=torch.bfloat16)
    full, half = agreement(expected, scores(load_model(exact))), agreement(expected, scores(load_model(rounded)))
    print(f"merged in float32 against the adapter {full}; rounded to bfloat16 and computed in float32 {half}")
    assert full.max < 1e-3 and half.mean < 0.05
    assert weights_digest(exact) != weights_digest(rounded)
