"""TRL's GRPO step over given rows, one step for each line on standard input. Runs in an environment of its own (`environments.py`)."""

import json
import os
import sys
import time
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", WANDB_DISABLED="true", TOKENIZERS_PARALLELISM="false", TRL_EXPERIMENTAL_SILENCE="1")

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer


class Given(GRPOTrainer):
    """The trainer on micro-batches that are given, in the place of generated ones."""

    def _prepare_inputs(self, generation_batch):
        return generation_batch


def micro_batches(rows, size: int) -> list[dict[str, torch.Tensor]]:
    """Rows in order of length, so many in each, padded no further than each needs: less than TRL pads by itself."""
    order = np.argsort([-len(ids) for ids in rows["ids"]], kind="stable")
    return [padded([{key: rows[key][i] for key in rows} for i in order[start : start + size]]) for start in range(0, len(order), size)]


def padded(rows) -> dict[str, torch.Tensor]:
    prompt = max(row["prompt"] for row in rows)
    completion = max(len(row["ids"]) - row["prompt"] for row in rows)
    shapes = {
        "prompt_ids": prompt,
        "prompt_mask": prompt,
        "completion_ids": completion,
        "completion_mask": completion,
        "tool_mask": completion,
    }
    out = {name: torch.zeros(len(rows), width, dtype=torch.long) for name, width in shapes.items()}
    for i, row in enumerate(rows):
        p, c = row["prompt"], len(row["ids"]) - row["prompt"]
        ids = torch.tensor(row["ids"])
        out["prompt_ids"][i, prompt - p :], out["prompt_mask"][i, prompt - p :] = ids[:p], 1
        out["completion_ids"][i, :c], out["completion_mask"][i, :c] = ids[p:], 1
        out["tool_mask"][i, :c] = torch.tensor(row["mask"][p:])
    return {
        **out,
        "advantages": torch.tensor([row["advantage"] for row in rows], dtype=torch.float32),
        "num_items_in_batch": torch.tensor(1),
    }


def main(folder: Path, rows_file: Path, threads: int) -> None:
    torch.set_num_threads(threads)
    rows = json.loads(rows_file.read_text())
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0, "a": 1}, unk_token="a")), pad_token="<pad>", eos_token="a"
    )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def trainer_of(size: int) -> tuple[Given, list[dict[str, torch.Tensor]]]:
        parts = micro_batches(rows, size)
        config = GRPOConfig(
            output_dir=str(folder / "trl"), per_device_train_batch_size=size, gradient_accumulation_steps=len(parts), num_generations=2,
            generation_batch_size=size * len(parts), beta=0.0, epsilon=0.2, epsilon_high=0.28, loss_type="grpo", learning_rate=0.0, use_cpu=True,
            report_to=[], gradient_checkpointing=False, bf16=False, max_grad_norm=1.0, temperature=1.0, disable_tqdm=True, disable_dropout=True,
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": ["a"] * 4})
        trainer = Given(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=data,
            processing_class=tokenizer,
        )
        trainer.create_optimizer_and_scheduler(num_training_steps=10**6)
        trainer.current_gradient_accumulation_steps = len(parts)
        return trainer, parts

    made: dict[int, tuple[Given, list[dict[str, torch.Tensor]]]] = {}
    for line in sys.stdin:
        size = int(line)
        if size not in made:
            made[size] = trainer_of(size)
        trainer, parts = made[size]
        wrapped = trainer.model
        wall, cpu = time.perf_counter(), time.process_time()
        loss = sum(float(trainer.training_step(wrapped, part, None)) for part in parts)
        norm = float(torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0))
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        print(
            json.dumps(
                {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "loss": loss, "norm": norm, "parts": len(parts)}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
