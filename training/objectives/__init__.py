"""Objectives: the loss of each token, or of each pair, of which the update takes the weighted sum. One file an objective; torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ledger.methods import Family

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Outputs:
    """What the model says of the rows, with gradient.

    Attributes:
        logprob_T: log-probability of each token given what stands before it in its row, nats; 0 for the first token of a row.
        value_T: value estimates in units of the reward, or None.
        logits_TV: logits, only where an objective asks for them.
    """

    logprob_T: torch.Tensor
    value_T: torch.Tensor | None = None
    logits_TV: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class LossBatch:
    """What the loss is taken against, without gradient; every array along T unless said.

    Attributes:
        mask_T: tokens that the objective covers.
        adv_T: advantages; None for supervised objectives.
        logprobs: columns by name, nats: `behaviour` (engine), `proximal` (start of the update), `ref`; NaN where not known.
        pairs_P2: row indices (preferred, rejected) of each pair, for preference objectives.
        row_T: index of the row of each token.
        text_only_T: tokens of rows that nobody sampled as tokens.
        teacher_TK: teacher's top-k log-probabilities, for distillation.
    """

    mask_T: torch.Tensor
    adv_T: torch.Tensor | None = None
    logprobs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    pairs_P2: torch.Tensor | None = None
    row_T: torch.Tensor | None = None
    text_only_T: torch.Tensor | None = None
    teacher_TK: torch.Tensor | None = None


class Objective(Protocol):
    """The signature of every objective."""

    def __call__(self, outputs: Outputs, batch: LossBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The loss of each token (or pair) in nats or reward units, shape (T,) or (P,), 0 outside the mask, and named measurements.

        Raises:
            MethodError: the batch lacks what the objective needs, or holds rows that it must refuse, such as text-only ones for a ratio.
        """
        ...


objectives: Family[Objective] = Family("training.objectives")
