"""Claim checks: each looks at one stated number, claimed or measured, and says pass, fail, skip or error. Pure. One file a check."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from audit.results import CheckResult, answers, judged
from audit.statements import Statement
from ledger.methods import Family

__all__ = ["CheckResult", "ClaimCheck", "Statement", "answers", "claim_checks", "judged"]


class ClaimCheck(Protocol):
    """The signature of every claim check. `answers` gives a function the ids that it answers for."""

    def __call__(self, subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
        """The results, one for each of its ids; a number of which the check has nothing to say is skipped with the reason.

        Args:
            subject: the stated number with its settings.
            policy: thresholds by name, of the versioned severity policy.
        """
        ...


claim_checks: Family[ClaimCheck] = Family("audit.claim_checks")
