"""Every scanner over many rollouts, and the findings that follow. Reads the database."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from audit.findings import LEVELS, Finding
from audit.results import CheckResult
from audit.rollout_reading import read_subjects
from audit.rollout_subject import RolloutSubject
from audit.run import check_ids, run_checks
from audit.scanners import scanners
from audit.severity import Policy
from ledger.ledger import LedgerHandle
from ledger.queries import Filter, fresh, rollouts

_PAGE = 500


@dataclass(frozen=True)
class ScannedRollout:
    """A rollout with what every scanner says of it, and the findings of the failures."""

    subject: RolloutSubject
    results: Mapping[str, CheckResult]
    findings: tuple[Finding, ...]

    @property
    def suspicious(self) -> bool:
        """Whether a rule says that the rollout was gamed: a failure that blames the policy."""
        return any(result.status == "fail" and result.fault is not None for result in self.results.values())


def rollouts_of(ledger: LedgerHandle, run_ids: Sequence[str], *, limit: int | None = None) -> list[str]:
    """Ids of the ended rollouts of the runs, oldest first, at most `limit`."""
    fresh(ledger)
    found: list[str] = []
    for run_id in run_ids:
        offset = 0
        while limit is None or len(found) < limit:
            page = rollouts(ledger, Filter(run_id=run_id), limit=_PAGE, offset=offset, newest=False)
            found += [line.rollout_id for line in page.lines if line.ended_by is not None]
            offset += len(page.lines)
            if not page.lines:
                break
    return found[:limit]


def scan(ledger: LedgerHandle, rollout_ids: Sequence[str], policy: Policy) -> Iterator[ScannedRollout]:
    """The rollouts in the order of the ids, each with its results.

    Args:
        policy: of the kind `scan`.
    """
    checks = [scanners.bind(name) for name in scanners.names()]
    methods = {check_id: bound.ref.method_id for bound in checks for check_id in check_ids(bound)}
    for subject in read_subjects(ledger, rollout_ids):
        results = run_checks(checks, subject, policy.thresholds)
        findings = tuple(
            Finding(
                check_id, subject.subject, result.fault, result.reason, LEVELS[policy.severity[check_id]],
                result.evidence_event_ids or (subject.own[0].event_id,), measured={**result.measured, "quotes": result.evidence},
                method_id=methods[check_id],
            )
            for check_id, result in results.items() if result.status in ("fail", "error")
        )  # fmt: skip
        yield ScannedRollout(subject, results, findings)
