"""What one of several processes under torchrun does in `test_distributed`; process 0 writes what was found."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from ledger.errors import UpdateRefused
from tests.training.optimise.small_batches import batch_of, policy, random_rollouts, term_of, view_of
from training.models.causal_lm import CausalLM
from training.optimise.distributed import Ranks, agree, joined, model_digest, sharded, sharded_gradient
from training.optimise.logprobs import unwrapped
from training.optimise.optimiser import AdamW
from training.train_config import Optimiser
from training.update_batch import UpdateBatch

CONFIG = Optimiser(learning_rate=1e-2, max_grad_norm=0.5)
MICRO = 90


def batch(seed: int = 1) -> UpdateBatch:
    view = view_of(random_rollouts(seed, 7))
    terms = [
        term_of(view, "ppo_clip", trains=[True] * 6 + [False]),
        term_of(view, "supervised", "token_mean", coefficient=0.2, trains=[True] * 6 + [False]),
    ]
    return batch_of(view, terms, [1.0, -0.5, 0.3, -1.2, 0.7, -0.1, 9.0])


def whole_gradients(model: torch.nn.Module) -> torch.Tensor:
    grads = [weight.grad for weight in model.parameters()]
    return torch.cat([(grad.full_tensor() if hasattr(grad, "full_tensor") else grad).flatten() for grad in grads]).clone()


def case(dtype: torch.dtype, ranks: Ranks, *, divided: bool) -> dict[str, object]:
    model: torch.nn.Module = policy(0, dtype)
    model = sharded(model, ranks) if divided else model
    optimiser = AdamW(model, CONFIG, total_steps=2)
    measured = sharded_gradient(model, batch(), ranks, micro_tokens=MICRO, entropy=True)
    gradient = whole_gradients(model)
    optimiser.step()
    digest = agree(model_digest(model), ranks, what="models")
    state = optimiser.state()
    other: torch.nn.Module = policy(0, dtype)
    trained = unwrapped(model).state_dict()
    other.load_state_dict({name: weight.full_tensor() if hasattr(weight, "full_tensor") else weight for name, weight in trained.items()})
    weights = {name: weight.clone() for name, weight in other.state_dict().items()}
    other = sharded(other, ranks) if divided else other
    resumed = AdamW(other, CONFIG, total_steps=2)
    resumed.load(state)
    for each, its in ((model, optimiser), (other, resumed)):
        sharded_gradient(each, batch(2), ranks, micro_tokens=MICRO)
        its.step()
    same = model_digest(model) == model_digest(other)
    return {"measured": measured.as_counters(), "gradient": gradient, "digest": digest, "weights": weights, "resumed": same}


def refusals(ranks: Ranks) -> dict[str, object]:
    model: CausalLM = policy()
    told: dict[str, object] = {}
    mine = batch()
    nudged = replace(mine, adv_T=mine.adv_T + 1e-9 * ranks.rank)
    # One row's behaviour is unknown to its term: only the process that has the row sees it.
    broken = replace(mine, adv_T=mine.adv_T * torch.where(torch.from_numpy(mine.row_T) == 3, float("nan"), 1.0).numpy())
    for name, given in (("different", nudged), ("broken", broken)):
        try:
            sharded_gradient(model, given, ranks, micro_tokens=MICRO)
        except UpdateRefused as error:
            told[name] = str(error)
        told[f"{name}_left"] = any(weight.grad is not None for weight in model.parameters())
    return told


def main(target: Path) -> None:
    torch.set_num_threads(1)
    with joined(timeout_s=120) as ranks:
        found: dict[str, object] = {"world": ranks.world}
        for dtype in (torch.float64, torch.float32):
            for divided in (False, True):
                found[f"{dtype} {divided}"] = case(dtype, ranks, divided=divided)
        found["refusals"] = refusals(ranks)
        torch.save(found, target / f"rank{ranks.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
