"""AdamW with warm-up, linear decay and clipping, whose whole state is a flat mapping of tensors. Changes the weights of the model."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ledger.errors import UpdateRefused
from training.optimise.gradient import grad_norm
from training.optimise.logprobs import unwrapped
from training.train_config import Optimiser

_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class StepTaken:
    """What one optimiser step did.

    Attributes:
        learning_rate: that it was taken with.
        grad_norm: before clipping.
        clipped: whether the gradients were scaled down.
    """

    learning_rate: float
    grad_norm: float
    clipped: bool


class AdamW:
    """The optimiser of one stage.

    Weight decay is on matrices alone; norms and biases have none.

    Args:
        model: or its scorer; its trainable weights are stepped.
        config: the optimiser's table.
        total_steps: steps of the stage, which the linear decay ends with.
    """

    def __init__(self, model: nn.Module, config: Optimiser, *, total_steps: int) -> None:
        self.model, self.config, self.total_steps = model, config, total_steps
        self.steps = self.clipped = 0
        self.weights = {name: weight for name, weight in unwrapped(model).named_parameters() if weight.requires_grad}
        if not self.weights:
            raise UpdateRefused("the model has no trainable weight; allowed: at least one")
        decayed = [weight for weight in self.weights.values() if weight.dim() > 1]
        others = [weight for weight in self.weights.values() if weight.dim() <= 1]
        groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self._adam = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=config.learning_rate, betas=config.betas, eps=config.eps
        )

    def learning_rate(self, step: int) -> float:
        """Of the step with this number, from 0: k/warm-up of the peak in the k-th step of the warm-up, then the peak, or to 0 in a line."""
        config = self.config
        if step < config.warmup_steps:
            return config.learning_rate * (step + 1) / config.warmup_steps
        if config.decay == "none":
            return config.learning_rate
        left = self.total_steps - max(config.warmup_steps, round(config.decay_start * self.total_steps))
        return config.learning_rate * min(1.0, max(0.0, (self.total_steps - step) / left)) if left > 0 else config.learning_rate

    def step(self) -> StepTaken:
        """What the step did; the weights are changed, and the gradients are gone.

        Raises:
            UpdateRefused: the gradient is not finite; the weights are as they were, and the gradients are gone.
        """
        norm = float(grad_norm(self.model))
        if not norm < float("inf"):
            self._adam.zero_grad()
            raise UpdateRefused(f"the gradient's norm is {norm}; allowed: a finite norm")
        clipped = norm > self.config.max_grad_norm
        if clipped:
            scale = self.config.max_grad_norm / norm
            for weight in self.weights.values():
                if weight.grad is not None:
                    weight.grad.mul_(scale)
        rate = self.learning_rate(self.steps)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._adam.zero_grad()
        self.steps += 1
        self.clipped += int(clipped)
        return StepTaken(rate, norm, clipped)

    def state(self) -> dict[str, Tensor]:
        """Moments by `<moment>.<weight>`, with `steps` and `clipped`: all that a resumed optimiser needs, for safetensors.

        Sharded moments are put together, so then all processes must call it.
        """
        tensors = {"steps": torch.tensor(self.steps), "clipped": torch.tensor(self.clipped)}
        for name, weight in self.weights.items():
            kept = self._adam.state.get(weight, {})
            tensors |= {f"{moment}.{name}": _whole(kept[moment]) for moment in _MOMENTS if moment in kept}
            if "step" in kept:
                tensors[f"step.{name}"] = _whole(kept["step"])
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over a state of `state`.

        Raises:
            UpdateRefused: it is of another model.
        """
        named = {key.partition(".")[2] for key in tensors if "." in key}
        strange = sorted(named - set(self.weights))
        wrong = [name for name in named & set(self.weights) if tensors[f"exp_avg.{name}"].shape != self.weights[name].shape]
        if "steps" not in tensors or strange or wrong:
            raise UpdateRefused(
                f"an optimiser state for {', '.join((strange + wrong)[:3]) or 'no steps'}; allowed: that of the model's trainable weights"
            )
        self.steps, self.clipped = int(tensors["steps"]), int(tensors["clipped"])
        for name in sorted(named):
            weight = self.weights[name]
            kept = {moment: _like(weight, tensors[f"{moment}.{name}"]) for moment in _MOMENTS}
            self._adam.state[weight] = {"step": tensors[f"step.{name}"].clone(), **kept}


def _whole(kept: Tensor) -> Tensor:
    """The tensor in one piece; where it is sharded, all processes must ask."""
    whole: Tensor = getattr(kept, "full_tensor", lambda: kept)()
    return whole.detach().cpu().contiguous().clone()


def _like(weight: Tensor, whole: Tensor) -> Tensor:
    """The tensor on the device of the weight, in its dtype, sharded as it is."""
    there = whole.to(weight.device, weight.dtype).clone()
    if not _divided(weight):
        return there
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(weight, DTensor)
    return distribute_tensor(there, weight.device_mesh, weight.placements, src_data_rank=None)


def _divided(tensor: Tensor) -> bool:
    """Whether it is a `DTensor`, told without its import, which takes long and which one process alone never needs."""
    return hasattr(tensor, "full_tensor")
