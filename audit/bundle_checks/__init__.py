"""Bundle checks: each looks at one task bundle in its world and says pass, fail, skip or error, with what it measured. One file a check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from audit.bundle_subject import BundleSubject
from ledger.events.task import CheckStatus
from ledger.methods import Family


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    Attributes:
        check_id: the name that the check has in the field, such as `runtime.seed_control`.
        status: pass, fail, skip (not run, `reason` says why) or error (it broke). Only pass is a pass.
        reason: in a few of our own words, with the value seen and the value needed.
        measured: JSON of what was measured.
        evidence: JSON that lets a person see it: calls, differences, texts.
        remedy: what to do about a failure.
        evidence_event_ids: events that show it.
    """

    check_id: str
    status: CheckStatus
    reason: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)
    evidence: Any = None
    remedy: str = ""
    evidence_event_ids: tuple[str, ...] = ()


class BundleCheck(Protocol):
    """The signature of every bundle check. A function carries the ids that it returns as its attribute `check_ids`."""

    def __call__(self, subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
        """The results, one for each of its ids; what is costly is asked of the subject, which works it out once.

        Args:
            subject: the bundle, its world, its verifiers and what was tried on them.
            policy: thresholds by name, of the versioned severity policy.
        """
        ...


bundle_checks: Family[BundleCheck] = Family("audit.bundle_checks")
