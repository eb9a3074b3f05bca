"""All update checks on one update: results, and of the failures the findings with what follows from what. Pure but for `appended`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from audit.findings import LEVELS, Finding, raised, roots
from audit.results import CheckResult
from audit.run import check_ids, explains, run_checks
from audit.severity import Policy
from audit.update_checks import UpdateSubject, update_checks
from ledger.canonical import digest
from ledger.events import CheckRan
from ledger.ledger import LedgerHandle
from ledger.methods import Bound

_AT_ONCE = 200


@dataclass(frozen=True, eq=False)
class AuditedUpdate:
    """What the checks say of one update.

    Attributes:
        subject: the update.
        results: check id to result.
        findings: of failures and of checks that broke, roots before what follows from them.
    """

    subject: UpdateSubject
    results: Mapping[str, CheckResult]
    findings: tuple[Finding, ...]

    @property
    def fails(self) -> bool:
        """Whether a finding is of level error."""
        return any(found.level == "error" for found in self.findings)


@cache
def bound_checks() -> tuple[Bound[Any], ...]:
    """Every update check, bound once."""
    return tuple(update_checks.bind(name) for name in update_checks.names())


def audited(subject: UpdateSubject, policy: Policy) -> AuditedUpdate:
    """The results of all checks on an update, with findings.

    Args:
        policy: of kind `update`; it names the severity of every check.
    """
    results = run_checks(bound_checks(), subject, policy.thresholds)
    return AuditedUpdate(subject, results, findings_of(subject, results, policy))


def findings_of(subject: UpdateSubject, results: Mapping[str, CheckResult], policy: Policy) -> tuple[Finding, ...]:
    """A finding of each failure and each check that broke; one that another failure explains names its root."""
    failed = [name for name, result in results.items() if result.status == "fail"]
    root_of = roots(failed, {name: explains(bound) for bound in bound_checks() for name in check_ids(bound)})
    ordered = sorted(failed, key=lambda name: root_of[name] != name)
    made: dict[str, Finding] = {}
    for name in ordered:
        made[name] = _finding(subject, results[name], policy, None if root_of[name] == name else made[root_of[name]])
    broken = [_finding(subject, result, policy, None) for result in results.values() if result.status == "error"]
    return (*made.values(), *broken)


def appended(ledger: LedgerHandle, done: Sequence[AuditedUpdate], policy: Policy) -> int:
    """Append what ran on each update and what was found, roots first; how many events were new. Writes the ledger."""
    events = [event for one in done for event in _ran(ledger, one, policy)]
    new = 0
    for at in range(0, len(events), _AT_ONCE):
        new += sum(item.created for item in ledger.append(events[at : at + _AT_ONCE]).events)
    return new + sum(raised(ledger, one.findings) for one in done)


def _ran(ledger: LedgerHandle, done: AuditedUpdate, policy: Policy) -> list[Any]:
    method_of = {check_id: bound.ref.method_id for bound in bound_checks() for check_id in check_ids(bound)}
    events = []
    for name, result in done.results.items():
        blob = ledger.pending_json(result.as_json())
        body = CheckRan(
            subject=done.subject.subject,
            check_id=name,
            method_id=method_of[name],
            status=result.status,
            severity=policy.severity[name],
            policy_id=policy.policy_id,
            inputs_digest=digest({"batch": _ids(done.subject.assembled), "result": result.as_json()}),
            measured=blob.ref,
            evidence_event_ids=list(result.evidence_event_ids),
        )
        events.append(ledger.new(body, blob))
    return events


def _finding(subject: UpdateSubject, result: CheckResult, policy: Policy, root: Finding | None) -> Finding:
    method = next(bound.ref.method_id for bound in bound_checks() if result.check_id in check_ids(bound))
    return Finding(
        result.check_id,
        subject.subject,
        result.fault,
        result.reason,
        LEVELS[policy.severity[result.check_id]],
        result.evidence_event_ids or tuple(_ids(subject.applied)),
        {"measured": dict(result.measured), "evidence": result.evidence},
        method,
        root,
    )


def _ids(parts: Sequence[tuple[str, Any]]) -> list[str]:
    return [event_id for event_id, _ in parts]
