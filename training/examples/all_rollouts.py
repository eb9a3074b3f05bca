"""Every rollout as supervised rows, whatever came of it: imitation of whoever acted."""

from collections.abc import Sequence

from training.examples import Built
from training.examples._rows import built
from training.rewards import Scored
from training.rows import Row
from training.view import RolloutView


def all_rollouts(view: RolloutView, rows: Sequence[Row], reward: Scored, seed: int, *, weight: float = 1.0) -> Built:
    """An example for each row of each rollout that has rows; rollouts without any are named in `left_out`.

    Rows of tokens that were sampled keep those tokens and their mask; rows of text are marked as such by whoever made them.

    Args:
        view: R rollouts.
        rows: rows of any of them.
        reward: not used.
        seed: not used.
        weight: of every example, 0 or more.

    Raises:
        MethodError: `weight` is negative, or a row belongs to no rollout of the view.

    Source: behaviour cloning.
    """
    return built(view, rows, range(view.rollouts), reason="imitated", weight=weight)
