"""Scanners: each reads the transcript of one rollout for one way of gaming it, and quotes what it found. Pure. One file a scanner."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from audit.results import CheckResult, answers
from audit.rollout_subject import RolloutSubject
from ledger.methods import Family

__all__ = ["CheckResult", "RolloutSubject", "Scanner", "answers", "scanners"]


class Scanner(Protocol):
    """The signature of every scanner. `answers` gives a function the ids that it answers for."""

    def __call__(self, subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
        """The results, one for each of its ids; a failure's evidence is a list of quotes with event, place and offsets.

        Args:
            subject: the rollout with everything that was said about it.
            policy: thresholds by name, of the versioned severity policy.
        """
        ...


scanners: Family[Scanner] = Family("audit.scanners")
