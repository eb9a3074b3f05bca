"""Every claim check on every stated number, and the findings that follow. Reads the database."""

from collections.abc import Mapping
from dataclasses import dataclass

from audit.claim_checks import claim_checks
from audit.claims import attached_ids, measured, standing
from audit.findings import LEVELS, Finding, Level
from audit.results import CheckResult
from audit.run import check_ids, run_checks
from audit.severity import Policy, load_policy
from audit.statements import Statement
from ledger.ledger import LedgerHandle


@dataclass(frozen=True)
class AuditedStatement:
    """A stated number with what every check says of it, and the findings of the failures."""

    statement: Statement
    results: Mapping[str, CheckResult]
    findings: tuple[Finding, ...]


def audit_claims(ledger: LedgerHandle, *, policy_name: str = "v1", measurements: bool = False) -> list[AuditedStatement]:
    """The claims that stand and the measurements attached to them, or all measurements, each with its results.

    Raises:
        SettingsError: there is no such policy.
    """
    policy = load_policy(policy_name, kind="claim")
    claims, all_measured = standing(ledger), measured(ledger)
    attached = {name for claim in claims for name in attached_ids(claim)}
    chosen = [statement for statement in all_measured if measurements or statement.name in attached]
    return audit_statements([*claims, *chosen], policy)


def audit_statements(statements: list[Statement], policy: Policy) -> list[AuditedStatement]:
    """The statements with their results under a policy."""
    checks = [claim_checks.bind(name) for name in claim_checks.names()]
    methods = {check_id: bound.ref.method_id for bound in checks for check_id in check_ids(bound)}
    found = []
    for statement in statements:
        results = run_checks(checks, statement, policy.thresholds)
        failed = [result for result in results.values() if result.status in ("fail", "error")]
        found.append(AuditedStatement(statement, results, tuple(_finding(statement, result, policy, methods) for result in failed)))
    return found


def _finding(statement: Statement, result: CheckResult, policy: Policy, methods: Mapping[str, str]) -> Finding:
    level: Level = LEVELS[policy.severity[result.check_id]]
    return Finding(
        result.check_id, statement.stream, None, result.reason, level, result.evidence_event_ids or (statement.event_id,),
        measured=dict(result.measured), method_id=methods[result.check_id],
    )  # fmt: skip
