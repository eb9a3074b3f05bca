"""What ways to build supervised rows share: examples of chosen rollouts, with those that have no row named. Pure."""

from collections.abc import Iterable, Sequence

from ledger.errors import MethodError
from training.examples import Built, Example
from training.rows import Row
from training.view import RolloutView

NO_ROW = "no row with a token to learn"


def built(view: RolloutView, rows: Sequence[Row], chosen: Iterable[int], *, reason: str, weight: float) -> Built:
    """The rows of the chosen rollouts as examples, in the order of the rollouts; a row without a token to learn is none.

    Args:
        chosen: indices along R.
        reason: why they were chosen.
        weight: of every example, 0 or more.

    Raises:
        MethodError: `weight` is negative, or a row belongs to no rollout of the view.
    """
    if weight < 0:
        raise MethodError(f"weight is {weight}; allowed: 0 or more")
    of_rollout: dict[str, list[Row]] = {rollout_id: [] for rollout_id in view.rollout_id_R}
    for row in rows:
        if row.rollout_id not in of_rollout:
            raise MethodError(f"a row of rollout {row.rollout_id}, which is not among the {view.rollouts} of the view")
        if row.mask_T.any():
            of_rollout[row.rollout_id].append(row)
    names = [view.rollout_id_R[number] for number in chosen]
    examples = tuple(Example(row, weight, reason) for name in names for row in sorted(of_rollout[name], key=lambda row: row.index))
    empty = tuple(name for name in names if not of_rollout[name])
    return Built(examples, left_out={NO_ROW: empty} if empty else {})
