"""The columnar view of a round that all estimators, filters, weightings and diagnostics read. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RolloutView:
    """Columns along R rollouts, S steps (model calls), Q rows and T tokens (all tokens of all rows, row after row).

    Attributes:
        rollout_id_R: ids.
        group_id_R: the group that each was dispatched in.
        bundle_id_R: its task.
        family_R: the task's family, empty where it has none.
        kind_R: rollout kind: ordinary, recovery, hinted, ...
        participant_R: the trained participant.
        fork_R: parent rollout and fork step as text, empty without a fork.
        model_version_R: the oldest version that sampled a token of it.
        ended_by_R: how it ended.
        outcome_R: as the ledger projects it: succeeded, task_failed, env_failed, verifier_failed, harness_failed, limit_ended, ...
        rollout_S: index of the rollout of each step; `call_id_S`: its model call.
        state_S: digest of the world's state before the step; empty where it is not known.
        reward_S: reward of the step itself, 0 where the world gives none.
        error_S: error class of the step's tool calls, empty without one.
        rollout_Q: index of the rollout of each row.
        row_T: index of the row of each token, ascending.
        step_T: index of the step that sampled the token, -1 where it was not sampled.
        id_T: token ids.
        mask_T: True exactly on sampled tokens that may be trained.
        behaviour_logprob_T: nats, NaN where not sampled or not known.
        text_only_Q: rows that nobody sampled as tokens.
        lag_S: updates between the oldest version that sampled in the step and the one that is trained: 0 on policy, NaN where not known;
            empty where no version is trained.
        trainer_logprob_T: nats by the version that is trained, NaN outside of the mask; empty where no filter reads them.
    """

    rollout_id_R: tuple[str, ...]
    group_id_R: tuple[str, ...]
    bundle_id_R: tuple[str, ...]
    family_R: tuple[str, ...]
    kind_R: tuple[str, ...]
    participant_R: tuple[str, ...]
    fork_R: tuple[str, ...]
    model_version_R: tuple[str, ...]
    ended_by_R: tuple[str, ...]
    outcome_R: tuple[str, ...]
    rollout_S: Ints
    call_id_S: tuple[str, ...]
    state_S: tuple[str, ...]
    reward_S: Floats
    error_S: tuple[str, ...]
    rollout_Q: Ints
    row_T: Ints
    step_T: Ints
    id_T: NDArray[np.int32]
    mask_T: Bools
    behaviour_logprob_T: Floats
    text_only_Q: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    lag_S: Floats = field(default_factory=lambda: np.zeros(0))
    trainer_logprob_T: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def rollouts(self) -> int:
        """R."""
        return len(self.rollout_id_R)

    @property
    def rollout_T(self) -> Ints:
        """Index of the rollout of each token."""
        return self.rollout_Q[self.row_T]

    @property
    def population_R(self) -> Ints:
        """Number of the population of each rollout: group × kind × fork × participant, in order of first appearance."""
        keys = list(zip(self.group_id_R, self.kind_R, self.fork_R, self.participant_R, strict=True))
        return numbered(keys)


def numbered(keys: Sequence[object]) -> Ints:
    """Each key's number in order of first appearance."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


@dataclass(frozen=True)
class TaskStatistics:
    """What is known of one task over its counted rollouts of a round; env_failed, verifier_failed and harness_failed are counted beside.

    Attributes:
        bundle_id: the task.
        n: rollouts with a reward that votes.
        mean, var_pop, std_unbiased: of their rewards; None without enough of them.
        pass_rate: share with every condition passed.
        limit_ended, env_failed, verifier_failed, harness_failed, unknown: rollouts counted beside `n`.
    """

    bundle_id: str
    n: int
    mean: float | None
    var_pop: float | None
    std_unbiased: float | None
    pass_rate: float | None
    limit_ended: int = 0
    env_failed: int = 0
    verifier_failed: int = 0
    harness_failed: int = 0
    unknown: int = 0
