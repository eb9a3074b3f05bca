"""How many of the rollouts that say something about the policy succeeded."""

from collections import Counter
from collections.abc import Mapping

from ledger.outcome import JUDGED
from training.diagnostics import Measured, UpdateColumns
from training.rewards import Scored
from training.view import RolloutView


def success_rate(view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
    """Succeeded over succeeded, failed and limit-ended rollouts; what the world, verifier or harness broke is no failure of the policy.

    Args:
        view: outcomes along R.
        reward, update: not used.
    Returns:
        `success_rate`, with what was left out as caveats, and `excluded`, the share left out of all rollouts.

    Source: case F8 of the field reports: 80 of 100 with 10 errors is 0.8889, not 0.80.
    """
    counts = Counter(view.outcome_R)
    judged = sum(counts[outcome] for outcome in JUDGED)
    caveats = tuple(f"{n} {outcome} left out" for outcome, n in sorted(counts.items()) if outcome not in JUDGED)
    return {
        "success_rate": Measured(counts["succeeded"] / judged if judged else None, judged, "rollouts", caveats),
        "excluded": Measured(1 - judged / view.rollouts if view.rollouts else None, view.rollouts, "share", caveats),
    }
