"""The trainer's forward against transformers, packed rows against rows alone, and the folders that it refuses."""

import json
from pathlib import Path

import pytest
import torch

from ledger.errors import PolicyFolderError
from training.models.causal_lm import CausalLM, Foreign, Grid, load_model, unfit, weights_to_save
from training.models.folder import PolicyFiles, read_config, read_files, weights_of, write_folder
from training.models.presets import PRESETS, llama_config, preset_of
from training.models.tokenizer import policy_files, trained_tokenizer

SEED = 7


def made(tmp_path: Path, **changed: object) -> tuple[Path, CausalLM]:
    files = policy_files(trained_tokenizer(["mail ann@x.example T46", "P1 7 -"]), preset_of("0.2M"))
    config = {**files.config, "initializer_range": 0.2, **changed}
    files = PolicyFiles({**files.texts, "config.json": json.dumps(config)})
    model = CausalLM(config).initialise(torch.Generator().manual_seed(SEED))
    return write_folder(tmp_path / "policy", files, weights_to_save(model)), model


def rows_of(lengths: list[int], vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    row_T = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return torch.randint(0, vocab, (sum(lengths),), generator=generator), row_T


@pytest.mark.parametrize("changed", [{}, {"num_key_value_heads": 1}], ids=["all heads", "shared keys"])
def test_it_equals_transformers_on_every_row(tmp_path: Path, changed: dict[str, object]) -> None:
    from transformers import LlamaForCausalLM

    folder, _ = made(tmp_path, **changed)
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids_T, row_T = rows_of([5, 40, 17], theirs.config.vocab_size)
    with torch.no_grad():
        mine = load_model(folder)(ids_T, row_T)
        for row in range(3):
            alone = theirs(ids_T[row_T == row].unsqueeze(0)).logits[0]
            assert alone.abs().max() > 0.1
            torch.testing.assert_close(mine[row_T == row], alone, atol=1e-5, rtol=1e-5)


def test_a_foreign_model_gives_the_same_through_the_same_call(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder, model = made(tmp_path)
    foreign = Foreign(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    ids_T, row_T = rows_of([9, 3, 21], model.config["vocab_size"])
    at_N = torch.tensor([0, 8, 10, 30])
    with torch.no_grad():
        torch.testing.assert_close(foreign(ids_T, row_T, at_N), model(ids_T, row_T)[at_N], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weights_to_save(foreign)["lm_head.weight"], model.lm_head.weight.detach())


def test_another_architecture_is_loaded_through_transformers(tmp_path: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(tmp_path / "qwen")
    assert isinstance(load_model(tmp_path / "qwen"), Foreign)


def test_no_row_sees_another_and_no_token_a_later_one() -> None:
    model = CausalLM(llama_config(preset_of("0.2M"), vocab_size=90, end_id=1, pad_id=0)).initialise(torch.Generator().manual_seed(SEED))
    ids_T, row_T = rows_of([6, 11, 4], 90)
    with torch.no_grad():
        before = model(ids_T, row_T)
        other = ids_T.clone()
        other[10] = (other[10] + 1) % 90
        changed = (model(other, row_T) - before).abs().amax(-1) > 1e-6
    assert changed.nonzero().squeeze(1).tolist() == list(range(10, 17))


def test_a_grid_gives_back_what_it_spread() -> None:
    grid = Grid(torch.tensor([3, 3, 5, 8, 8, 8]))
    assert grid.position_T.tolist() == [0, 1, 0, 0, 1, 2]
    spread = grid.spread(torch.arange(1, 7))
    assert spread.tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]
    assert grid.collect(spread).tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"model_type": "mistral"}, "allowed: llama"),
        ({"hidden_act": "gelu"}, "allowed: silu"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type"),
    ],
)
def test_a_variant_that_it_does_not_compute_is_refused(changed: dict[str, object], why: str) -> None:
    config = {**llama_config(preset_of("0.2M"), vocab_size=20, end_id=1, pad_id=0), **changed}
    assert why in (unfit(config) or "")
    with pytest.raises(PolicyFolderError, match=why):
        CausalLM(config)


def test_tied_folders_are_neither_written_nor_read(tmp_path: Path) -> None:
    folder, model = made(tmp_path)
    files = read_files(folder)
    tied = PolicyFiles({**files.texts, "config.json": json.dumps({**files.config, "tie_word_embeddings": True})})
    with pytest.raises(PolicyFolderError, match="allowed: false"):
        write_folder(tmp_path / "tied", tied, weights_to_save(model))
    assert not (tmp_path / "tied").exists()
    (folder / "config.json").write_text(tied.texts["config.json"])
    for read in (read_config, read_files, load_model):
        with pytest.raises(PolicyFolderError, match="allowed: false"):
            read(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(PolicyFolderError, match="tie_word_embeddings is None"):
        load_model(folder)


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    folder, model = made(tmp_path)
    weights = weights_to_save(model)
    assert {name: weight.tolist() for name, weight in weights_of(folder).items()} == {n: w.tolist() for n, w in weights.items()}
    assert read_files(folder).config["vocab_size"] == model.config["vocab_size"]
    with pytest.raises(PolicyFolderError, match="is there already"):
        write_folder(folder, read_files(folder), weights)
    shared = {**weights, "again": weights["lm_head.weight"]}
    with pytest.raises(RuntimeError, match="share memory"):
        write_folder(tmp_path / "half", read_files(folder), shared)
    texts = {name: text for name, text in read_files(folder).texts.items() if name != "tokenizer.json"}
    with pytest.raises(PolicyFolderError, match="without tokenizer.json"):
        write_folder(tmp_path / "lacking", PolicyFiles(texts), weights)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_presets_have_about_the_parameters_that_they_are_named_after_and_heads_that_vllm_takes() -> None:
    for name, preset in PRESETS.items():
        model = CausalLM(llama_config(preset, vocab_size=750, end_id=1, pad_id=0))
        count = sum(weight.numel() for weight in model.parameters())
        assert abs(count / (float(name.removesuffix("M")) * 1e6) - 1) < 0.15, (name, count)
        assert preset.head_dim in (32, 64)


def test_initial_weights_follow_from_the_seed_alone() -> None:
    config = llama_config(preset_of("0.2M"), vocab_size=30, end_id=1, pad_id=0)
    one, two, other = (CausalLM(config).initialise(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)
