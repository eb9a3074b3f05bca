"""Rejection sampling: rollouts that passed every condition as supervised rows, at most so many of a task."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ledger.errors import MethodError
from training.examples import Built
from training.examples._rows import built
from training.rewards import Scored
from training.rows import Row
from training.view import RolloutView

_PASSED, _FAILED, _UNKNOWN, _ENOUGH = "passed", "failed", "no reward", "enough of this task"


def passed_rollouts(view: RolloutView, rows: Sequence[Row], reward: Scored, seed: int, *, per_task: int = 4, weight: float = 1.0) -> Built:
    """An example for each row of the chosen rollouts: those whose reward is 1, at most `per_task` of a task, drawn evenly.

    A rollout without a reward is not taken for a failure; it is left out under its own reason.

    Args:
        view: R rollouts.
        rows: rows of any of them; those of sampled tokens keep their tokens and masks.
        reward: along R.
        seed: decides which of too many are kept; the order of the rollouts does not matter.
        per_task: most rollouts of a task, 1 or more.
        weight: of every example, 0 or more.

    Raises:
        MethodError: `per_task` is below 1, `weight` is negative, the reward has another length, or a row is no rollout's of the view.

    Source: STaR (Zelikman et al. 2022, arXiv 2203.14465); RFT (Yuan et al. 2023, arXiv 2308.01825).
    """
    if per_task < 1:
        raise MethodError(f"per_task is {per_task}; allowed: 1 or more")
    if len(reward.value_R) != view.rollouts:
        raise MethodError(f"{len(reward.value_R)} rewards for {view.rollouts} rollouts; allowed: one each")
    why: dict[str, list[str]] = defaultdict(list)
    passed: dict[str, list[int]] = defaultdict(list)
    for number, value in enumerate(reward.value_R):
        if value == 1:
            passed[view.bundle_id_R[number]].append(number)
        else:
            why[_UNKNOWN if value is None else _FAILED].append(view.rollout_id_R[number])
    chosen: list[int] = []
    for bundle_id, numbers in passed.items():
        ordered = sorted(numbers, key=lambda number: view.rollout_id_R[number])
        Random(f"passed_rollouts/{seed}/{bundle_id}").shuffle(ordered)
        chosen += ordered[:per_task]
        why[_ENOUGH] += [view.rollout_id_R[number] for number in ordered[per_task:]]
    found = built(view, rows, sorted(chosen), reason=_PASSED, weight=weight)
    left_out = {**{reason: tuple(ids) for reason, ids in why.items() if ids}, **found.left_out}
    return replace(found, left_out=left_out)
