"""Bundle checks: each looks at one task bundle in its world and says pass, fail, skip or error, with what it measured. One file a check."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from audit.bundle_subject import BundleSubject
from audit.results import CheckResult, answers, judged
from ledger.methods import Family

__all__ = ["BundleCheck", "BundleSubject", "CheckResult", "answers", "bundle_checks", "judged"]


class BundleCheck(Protocol):
    """The signature of every bundle check. `answers` gives a function the ids that it answers for."""

    def __call__(self, subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
        """The results, one for each of its ids; what is costly is asked of the subject, which works it out once.

        Args:
            subject: the bundle, its world, its verifier and what was tried on them.
            policy: thresholds by name, of the versioned severity policy.
        """
        ...


bundle_checks: Family[BundleCheck] = Family("audit.bundle_checks")
