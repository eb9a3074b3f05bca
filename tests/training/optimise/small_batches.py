"""Small policies and batches that tests of updates share."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from training.models.causal_lm import CausalLM
from training.objectives import objectives
from training.optimise.gradient import update_gradient
from training.update_batch import Term, UpdateBatch
from training.view import RolloutView
from training.weightings import weightings

VOCABULARY = 61
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "max_position_embeddings": 512, "hidden_act": "silu", "initializer_range": 0.2,
}  # fmt: skip


def policy(seed: int = 0, dtype: torch.dtype = torch.float64) -> CausalLM:
    return CausalLM(CONFIG).initialise(torch.Generator().manual_seed(seed)).to(dtype)


Row = tuple[Sequence[int], Sequence[int]]
"""Token ids, and for each the step that sampled it and is trained here, -1 for none."""


def view_of(rollouts: Sequence[Sequence[Row]], *, outcomes: Sequence[str] | None = None) -> RolloutView:
    """A round of one group; each rollout is given by its rows."""
    n = len(rollouts)
    rows = [(r, ids, steps) for r, own in enumerate(rollouts) for ids, steps in own]
    step_T = np.concatenate([np.array(steps) for _, _, steps in rows]).astype(np.int64)
    blank = ("",) * n
    return RolloutView(
        rollout_id_R=tuple(f"r{i}" for i in range(n)), group_id_R=("g",) * n, bundle_id_R=("b",) * n, family_R=blank,
        kind_R=("ordinary",) * n, participant_R=("agent",) * n, fork_R=blank, model_version_R=("v0",) * n, ended_by_R=("finished",) * n,
        outcome_R=tuple(outcomes or ("succeeded",) * n), rollout_S=np.zeros(0, dtype=np.int64), call_id_S=(), state_S=(),
        reward_S=np.zeros(0), error_S=(), rollout_Q=np.array([r for r, _, _ in rows], dtype=np.int64),
        row_T=np.repeat(np.arange(len(rows)), [len(ids) for _, ids, _ in rows]).astype(np.int64), step_T=step_T,
        id_T=np.concatenate([np.array(ids) for _, ids, _ in rows]).astype(np.int32), mask_T=step_T >= 0,
        behaviour_logprob_T=np.where(step_T >= 0, -1.5, np.nan), text_only_Q=np.zeros(len(rows), dtype=np.bool_),
    )  # fmt: skip


def batch_of(view: RolloutView, terms: Sequence[Term], adv_R: Sequence[float], **columns: np.ndarray) -> UpdateBatch:
    """All rows of a view, with one advantage a rollout."""
    adv_T = np.where(view.mask_T, np.asarray(adv_R, dtype=np.float64)[view.rollout_T], 0.0)
    return UpdateBatch(
        tuple(view.rollout_id_R[r] for r in view.rollout_Q), view.row_T, view.id_T, adv_T,
        {"behaviour": view.behaviour_logprob_T, **columns}, tuple(terms), view.text_only_Q,
    )  # fmt: skip


def term_of(
    view: RolloutView,
    objective: str,
    weighting: str = "rollout_token_mean",
    *,
    trains: Sequence[bool] | None = None,
    coefficient: float = 1.0,
    **params: object,
) -> Term:
    trains_R = np.ones(view.rollouts, dtype=np.bool_) if trains is None else np.array(trains)
    mask_T = view.mask_T & trains_R[view.rollout_T]
    return Term(objectives.bind(objective, **params), weightings[weighting](view, trains_R, mask_T), mask_T, coefficient)


def random_rollouts(seed: int, number: int = 6) -> list[list[Row]]:
    """Rollouts of one row: a prompt, then two or three sampled runs with observations between."""
    rng = np.random.default_rng(seed)
    rollouts: list[list[Row]] = []
    for _ in range(number):
        steps = [-1] * int(rng.integers(3, 12))
        for step in range(int(rng.integers(2, 4))):
            steps += [step] * int(rng.integers(2, 9)) + [-1] * int(rng.integers(1, 6))
        rollouts.append([(rng.integers(0, VOCABULARY, size=len(steps)).tolist(), steps)])
    return rollouts


def cut(rollout: Sequence[Row]) -> list[Row]:
    """The same sampled tokens in one row a step, each behind all that really stood before it."""
    ((ids, steps),) = rollout
    rows = []
    for step in sorted({s for s in steps if s >= 0}):
        end = max(place for place, s in enumerate(steps) if s == step) + 1
        rows.append((list(ids[:end]), [s if s == step else -1 for s in steps[:end]]))
    return rows


def gradient(model: nn.Module, batch: UpdateBatch, *, micro_tokens: int = 10**6) -> torch.Tensor:
    update_gradient(model, batch, micro_tokens=micro_tokens)
    return flat(model)


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]).clone()


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """Relative distance of two gradients."""
    return float((a - b).norm() / b.norm())
