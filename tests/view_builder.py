"""Small views by hand: a rollout is its reward, the sampled tokens of each model call, and where its rows are cut. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.rewards import Scored
from training.view import Bools, RolloutView


@dataclass(frozen=True)
class Rolled:
    """One rollout.

    Attributes:
        reward: None where there is none.
        steps: tokens that each model call sampled.
        cuts: calls at which another row starts.
        group, kind, fork, participant, outcome, ended_by: as the view names them.
        states: state before each call; empty for unknown ones.
        context: tokens in front of each call's sample that nobody sampled.
        rollout_id: by its place if empty.
    """

    reward: float | None = 0.0
    steps: tuple[int, ...] = (1,)
    cuts: tuple[int, ...] = ()
    group: str = "g"
    kind: str = "ordinary"
    fork: str = ""
    participant: str = "agent"
    outcome: str = "task_failed"
    ended_by: str = "finished"
    states: tuple[str, ...] = ()
    context: int = 1
    rollout_id: str = ""


def view_of(*rolled: Rolled, row_order: Sequence[int] | None = None, logprob: float = -1.0) -> RolloutView:
    """The view of the rollouts; rows stand in order, or in `row_order`."""
    rollout_S = [index for index, one in enumerate(rolled) for _ in one.steps]
    rows: list[tuple[int, list[int], list[bool]]] = []
    step = 0
    for index, one in enumerate(rolled):
        for call, sampled in enumerate(one.steps):
            if call == 0 or call in one.cuts:
                rows.append((index, [], []))
            rows[-1][1].extend([-1] * one.context + [step] * sampled)
            rows[-1][2].extend([False] * one.context + [True] * sampled)
            step += 1
    ordered = [rows[number] for number in (range(len(rows)) if row_order is None else row_order)]
    step_T = np.array([value for _, steps, _ in ordered for value in steps], dtype=np.int64)
    mask_T = np.array([value for _, _, mask in ordered for value in mask], dtype=np.bool_)
    return RolloutView(
        rollout_id_R=tuple(one.rollout_id or f"r{index}" for index, one in enumerate(rolled)),
        group_id_R=tuple(one.group for one in rolled),
        bundle_id_R=tuple(f"bundle-{one.group}" for one in rolled),
        family_R=("",) * len(rolled),
        kind_R=tuple(one.kind for one in rolled),
        participant_R=tuple(one.participant for one in rolled),
        fork_R=tuple(one.fork for one in rolled),
        model_version_R=("m-1",) * len(rolled),
        ended_by_R=tuple(one.ended_by for one in rolled),
        outcome_R=tuple(one.outcome for one in rolled),
        rollout_S=np.array(rollout_S, dtype=np.int64),
        call_id_S=tuple(f"call-{number}" for number in range(len(rollout_S))),
        state_S=tuple(state for one in rolled for state in (one.states or ("",) * len(one.steps))),
        reward_S=np.zeros(len(rollout_S)),
        error_S=("",) * len(rollout_S),
        rollout_Q=np.array([index for index, _, _ in ordered], dtype=np.int64),
        row_T=np.repeat(np.arange(len(ordered)), [len(steps) for _, steps, _ in ordered]).astype(np.int64),
        step_T=step_T,
        id_T=np.arange(len(step_T), dtype=np.int32),
        mask_T=mask_T,
        behaviour_logprob_T=np.where(mask_T, logprob, np.nan),
        text_only_Q=np.zeros(len(ordered), dtype=np.bool_),
    )


def reward_of(*rolled: Rolled) -> Scored:
    """The rewards of the rollouts."""
    return Scored(tuple(one.reward for one in rolled), ("",) * len(rolled))


def votes_of(*rolled: Rolled) -> Bools:
    """Everyone with a reward votes."""
    return np.array([one.reward is not None for one in rolled], dtype=np.bool_)


def rewarded(*rewards: float | None, group: str = "g", tokens: int = 1) -> tuple[Rolled, ...]:
    """One rollout of one call for each reward."""
    return tuple(Rolled(reward=value, steps=(tokens,), group=group) for value in rewards)
