"""The command `tally audit run`: every check on the recorded rollouts of a run, with what was found. Writes the ledger."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli_settings import open_asked
from ledger.evaluated import rollouts_of_run, run_ids_of
from ledger.queries import fresh
from ledger.terminal import cell, console, print_json, table

if TYPE_CHECKING:
    from audit.findings import Finding
    from audit.rollout_audit import RolloutAudit

_IDS_SHOWN = 3


def run(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="RUN|EXPERIMENT", help="a run's id or the beginning of it, an experiment's id or name")],
    *,
    round_: Annotated[int | None, typer.Option("--round", min=0, help="only rollouts of this round")] = None,
    check: Annotated[list[str] | None, typer.Option(help="only this check, by its id or its file; again for more")] = None,
    policy: Annotated[str, typer.Option(help="severity policy of `audit/policies/rollout`")] = "v1",
    appends: Annotated[bool, typer.Option("--append/--dry-run", help="append findings and what ran; a dry run writes nothing")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Check every recorded rollout of a run: tokens, masks, calls, times, verdicts and rewards. Exit code 1 with an error found."""
    from audit.rollout_audit import audit_rollouts, checks_named
    from audit.severity import load_policy
    from ledger.decoders import installed_decoder

    severity = load_policy(policy, kind="rollout")
    checks = checks_named(check or (), severity)
    audits: list[tuple[str, RolloutAudit]] = []
    with open_asked(ctx) as ledger:
        fresh(ledger)
        for run_id in run_ids_of(ledger, subject):
            ids = rollouts_of_run(ledger, run_id, round=round_)
            audits.append((run_id, audit_rollouts(
                ledger, ids, severity, run_id=run_id, round=round_, checks=checks, decode=installed_decoder(), appends=appends
            )))  # fmt: skip
    if as_json:
        print_json({"policy": severity.name, "round": round_, "runs": [_json(run_id, found) for run_id, found in audits]})
    else:
        _print(audits)
    errors = any(finding.level == "error" for _, found in audits for finding in found.findings)
    if errors or any(found.broken for _, found in audits):
        raise typer.Exit(1)


def _json(run_id: str, found: "RolloutAudit") -> dict[str, Any]:
    return {
        "run_id": run_id, "rollouts": found.rollouts, "counts": {name: dict(held) for name, held in found.counts.items()},
        "findings": [_finding_json(finding) for finding in found.findings],
        "broken": [{"rollout_id": rollout_id, **result.as_json()} for rollout_id, result in found.broken],
        "inputs_digest": found.inputs_digest, "appended": found.created,
    }  # fmt: skip


def _finding_json(found: "Finding") -> dict[str, Any]:
    return {
        "check": found.check, "subject": found.subject, "fault": found.fault, "boundary": found.boundary, "level": found.level,
        "reason": found.reason, "evidence_event_ids": list(found.evidence_event_ids), "measured": found.measured,
        "root_check": None if found.root is None else found.root.check,
    }  # fmt: skip


def _print(audits: "Sequence[tuple[str, RolloutAudit]]") -> None:
    from audit.rollout_audit import STATUSES

    screen = console()
    for run_id, found in audits:
        rows = [[name, *(counts[status] for status in STATUSES)] for name, counts in found.counts.items()]
        shown = table(["check", *STATUSES], rows, title=f"run {run_id}: {found.rollouts} rollouts")
        screen.print(shown)
        for line in _lines(found.findings):
            screen.print(cell(line))
        for rollout_id, result in found.broken:
            screen.print(cell(f"broken: {result.check_id} on rollout {rollout_id}: {result.reason}"))
        if found.created is not None:
            screen.print(cell(f"{found.created} new events"))


def _lines(findings: "Sequence[Finding]") -> list[str]:
    """Findings of one check, fault and root together: how many, the first of them, and its first rollouts."""
    together: dict[tuple[str, str | None, str | None], list[Finding]] = defaultdict(list)
    for found in findings:
        together[(found.check, found.fault, None if found.root is None else found.root.check)].append(found)
    lines = []
    for (check, fault, root), some in together.items():
        ids = ", ".join(found.subject.removeprefix("rollout-") for found in some[:_IDS_SHOWN])
        more = f" and {len(some) - _IDS_SHOWN} more" if len(some) > _IDS_SHOWN else ""
        why = f" (follows from {root})" if root is not None else ""
        lines.append(f"{some[0].level}: {check}, {fault or 'no fault'}{why}, {len(some)} rollouts: {ids}{more}")
        lines.append(f"  {some[0].reason}")
    return lines or ["nothing found"]
