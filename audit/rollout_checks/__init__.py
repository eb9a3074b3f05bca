"""Rollout checks: each looks at one recorded rollout and says pass, fail, skip or error. Passive and pure. One file a check."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from audit.results import CheckResult, answers, judged
from audit.rollout_subject import RolloutSubject
from ledger.methods import Family

__all__ = ["CheckResult", "RolloutCheck", "RolloutSubject", "answers", "judged", "rollout_checks"]


class RolloutCheck(Protocol):
    """The signature of every rollout check. `answers` gives a function the ids that it answers for."""

    def __call__(self, subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
        """The results, one for each of its ids.

        Args:
            subject: the rollout with everything that was said about it.
            policy: thresholds by name, of the versioned severity policy.
        """
        ...


rollout_checks: Family[RolloutCheck] = Family("audit.rollout_checks")
