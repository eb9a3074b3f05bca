"""What one update is computed from: rows with their advantages and weights, fixed before micro-batching and sharding. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ledger.methods import Bound
from training.objectives import Objective
from training.view import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Term:
    """One term of the loss: coefficient × Σ weight_T × loss_T over `mask_T`.

    Attributes:
        objective: the bound method.
        weight_T: explicit token weights.
        mask_T: tokens that it covers.
        coefficient: factor on the whole term.
    """

    objective: Bound[Objective]
    weight_T: Floats
    mask_T: Bools
    coefficient: float = 1.0


@dataclass(frozen=True, eq=False)
class UpdateBatch:
    """Rows one after another along T.

    Attributes:
        rollout_id_Q: whose row each is.
        row_T: index of the row of each token, ascending.
        id_T: token ids.
        adv_T: advantages, 0 outside of what is trained.
        logprobs: columns by name in nats: `behaviour`, later `proximal` and `ref`; NaN where not known.
        terms: the loss.
        text_only_Q: rows that nobody sampled as tokens.
        pairs_P2: row indices (preferred, rejected), empty without preference terms.
    """

    rollout_id_Q: tuple[str, ...]
    row_T: Ints
    id_T: NDArray[np.int32]
    adv_T: Floats
    logprobs: Mapping[str, Floats]
    terms: tuple[Term, ...]
    text_only_Q: Bools
    pairs_P2: Ints = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))

    @property
    def rows(self) -> int:
        """Q."""
        return len(self.rollout_id_Q)
