"""Update checks: each looks at one recorded update and says pass, fail, skip or error. Passive and pure. One file a check."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from audit.results import CheckResult, answers, judged
from audit.update_subject import UpdateSubject
from ledger.methods import Family

__all__ = ["CheckResult", "UpdateCheck", "UpdateSubject", "answers", "judged", "update_checks"]


class UpdateCheck(Protocol):
    """The signature of every update check. `answers` gives a function its ids and the failures that follow from its own."""

    def __call__(self, subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
        """The results, one for each of its ids.

        Args:
            subject: the update with its batch and with what the ledger says by itself of the rollouts in it.
            policy: thresholds by name, of the versioned severity policy.
        """
        ...


update_checks: Family[UpdateCheck] = Family("audit.update_checks")
