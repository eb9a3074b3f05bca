"""Trained tokens a second of one update against TRL's GRPO step: the same rows, weights, loss, dtype and threads."""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.benchmarks.peers.environments import driver
from tests.benchmarks.rounds import interleaved, report
from training.models.causal_lm import CausalLM, weights_to_save
from training.models.folder import PolicyFiles, write_folder
from training.objectives import objectives
from training.optimise.gradient import update_gradient
from training.optimise.logprobs import scorer_of, torch_threads
from training.optimise.optimiser import AdamW
from training.train_config import Optimiser
from training.update_batch import Term, UpdateBatch

pytestmark = pytest.mark.bench
VOCABULARY, ROWS, THREADS, PAIRS, GOAL = 800, 64, 1, 10, 1.5
SIZES = {"0.2M": (64, 2, 4), "0.7M": (128, 3, 4)}
OURS = (2048, 4096, 8192)
THEIRS = (2, 4, 8, 16)


def config(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": width, "hidden_act": "silu",
        "intermediate_size": width * 5 // 2, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
        "head_dim": width // heads, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "max_position_embeddings": 1024,
        "initializer_range": 0.05, "torch_dtype": "float32",
    }  # fmt: skip


def desk_rows(seed: int = 0) -> dict[str, list[Any]]:
    """Rows of 135 to 400 tokens: a prompt of 60, then short sampled runs (about a fifth of the tokens) between observations."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {"ids": [], "mask": [], "prompt": [], "advantage": []}
    for _ in range(ROWS):
        mask = [0] * 60
        length = int(rng.integers(135, 401))
        while len(mask) < length:
            mask += [1] * int(rng.integers(3, 9)) + [0] * int(rng.integers(12, 28))
        rows["mask"].append(mask[:length])
        rows["ids"].append(rng.integers(1, VOCABULARY, size=length).tolist())
        rows["prompt"].append(60)
        rows["advantage"].append(float(rng.normal()))
    return rows


def batch_of(rows: dict[str, list[Any]]) -> UpdateBatch:
    lengths = [len(ids) for ids in rows["ids"]]
    row_T = np.repeat(np.arange(ROWS), lengths)
    mask_T = np.concatenate(rows["mask"]).astype(np.bool_)
    weight_T = np.where(mask_T, 1.0 / np.bincount(row_T, weights=mask_T)[row_T] / ROWS, 0.0)
    term = Term(objectives.bind("ppo_clip", eps_low=0.2, eps_high=0.28, dual_clip=None), weight_T, mask_T)
    adv_T = np.where(mask_T, np.array(rows["advantage"])[row_T], 0.0)
    return UpdateBatch(
        tuple(map(str, range(ROWS))),
        row_T,
        np.concatenate(rows["ids"]).astype(np.int32),
        adv_T,
        {},
        (term,),
        np.zeros(ROWS, dtype=np.bool_),
    )


@contextmanager
def trl(folder: Path, rows: dict[str, list[Any]]) -> Iterator[Any]:
    (folder.parent / "rows.json").write_text(json.dumps(rows))
    command = driver("trl", str(folder), str(folder.parent / "rows.json"), THREADS)
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "PYTHONPATH": ""}
    with (
        (folder.parent / "trl.log").open("w") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as running,
    ):
        assert running.stdin is not None and running.stdout is not None

        def step(size: int) -> dict[str, float]:
            running.stdin.write(f"{size}\n")
            running.stdin.flush()
            while not (line := running.stdout.readline()).startswith("{"):
                assert running.poll() is None, (folder.parent / "trl.log").read_text()[-2000:]
            told: dict[str, float] = json.loads(line)
            return told

        yield step
        running.stdin.close()


@pytest.mark.parametrize("size", SIZES)
def test_update_against_trl(size: str, tmp_path: Path) -> None:
    shape = config(*SIZES[size])
    model = CausalLM(shape).initialise(torch.Generator().manual_seed(0))
    texts = {"config.json": json.dumps(shape), "tokenizer.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": "x"}
    folder = write_folder(tmp_path / "policy", PolicyFiles(texts), weights_to_save(model))
    rows = desk_rows()
    batch, scorer = batch_of(rows), scorer_of(model)
    optimiser = AdamW(model, Optimiser(learning_rate=1e-12), total_steps=10**6)
    tokens = len(batch.id_T)
    print(
        f"\n{size}: {sum(p.numel() for p in model.parameters()):,} weights, {ROWS} rows, {tokens} tokens, {int(batch.terms[0].mask_T.sum())} sampled"
    )

    def ours(micro_tokens: int) -> dict[str, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        measured = update_gradient(scorer, batch, micro_tokens=micro_tokens, entropy=True)
        taken = optimiser.step()
        return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "loss": measured.loss, "norm": taken.grad_norm}

    with trl(folder, rows) as theirs, torch_threads(THREADS):
        for arm, settings in ((ours, OURS), (theirs, THEIRS)):
            for setting in settings:
                arm(setting)
        best_ours = min(OURS, key=lambda s: min(ours(s)["cpu"] for _ in range(2)))
        best_theirs = min(THEIRS, key=lambda s: min(theirs(s)["cpu"] for _ in range(2)))
        mine, peer = ours(best_ours), theirs(best_theirs)
        # One loss, one gradient: otherwise the speeds are of different things.
        assert mine["norm"] == pytest.approx(peer["norm"], rel=2e-4) and mine["loss"] == pytest.approx(peer["loss"], abs=1e-5)
        told: dict[str, list[dict[str, float]]] = {"tallystick": [], "TRL": []}

        def rate(name: str, arm: Any, setting: int) -> float:
            told[name].append(arm(setting))
            return tokens / told[name][-1]["cpu"]

        ratios = report(
            f"update of {size}, ours micro_tokens={best_ours}, TRL rows a micro-batch={best_theirs}",
            interleaved({"TRL": lambda: rate("TRL", theirs, best_theirs), "tallystick": lambda: rate("tallystick", ours, best_ours)}, PAIRS),
            "TRL", "tokens a CPU second",
        )  # fmt: skip
    walls = [peer["wall"] / mine["wall"] for mine, peer in zip(told["tallystick"], told["TRL"], strict=True)]
    print(f"  the same by the wall clock: {statistics.median(walls):.3f} [{min(walls):.3f}, {max(walls):.3f}]")
    assert ratios["tallystick"] > GOAL
