"""World checks: each looks at one world version, whatever the task, and says pass, fail, skip or error. One file a check."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from audit.results import CheckResult, answers, judged
from audit.world_subject import WorldSubject
from ledger.methods import Family

__all__ = ["CheckResult", "WorldCheck", "WorldSubject", "answers", "judged", "world_checks"]


class WorldCheck(Protocol):
    """The signature of every world check. `answers` gives a function the ids that it answers for."""

    def __call__(self, subject: WorldSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
        """The results, one for each of its ids.

        Args:
            subject: the world and the rounds in which its tools were called.
            policy: thresholds by name, of the versioned severity policy.
        """
        ...


world_checks: Family[WorldCheck] = Family("audit.world_checks")
