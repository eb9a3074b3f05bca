"""The command `tally audit update`: what the trainer recorded of updates against what the ledger says by itself. Writes the ledger."""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli_settings import open_asked
from ledger.terminal import cell, console, print_json, table

if TYPE_CHECKING:
    from audit.findings import Finding
    from audit.update_audit import AuditedUpdate

_STATUSES = ("pass", "fail", "skip", "error")


def update(
    ctx: typer.Context,
    subject: Annotated[
        str, typer.Argument(metavar="RUN|EXPERIMENT|UPDATE|MODEL-VERSION", help="an id or the beginning of it, an experiment by name")
    ],
    *,
    policy: Annotated[str, typer.Option(help="severity policy")] = "v1",
    every: Annotated[bool, typer.Option("--all", help="every result with its reason, not the failures alone")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="look and append nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line, one line an update")] = False,
) -> None:
    """Recompute masks, baselines, advantages and weights of updates from captured tokens and rewards; exit code 1 on errors."""
    from audit.severity import load_policy
    from audit.update_audit import appended, audited
    from audit.update_reading import read_updates, update_ids

    chosen, screen = load_policy(policy, kind="update"), console()
    done: list[AuditedUpdate] = []
    new = 0
    with open_asked(ctx) as ledger:
        for one in read_updates(ledger, update_ids(ledger, subject)):
            found = audited(one, chosen)
            if not dry_run:
                new += appended(ledger, [found], chosen)
            if as_json:
                print_json(_json(found))
            # A run has many updates: what is shown at the end needs none of their tokens.
            done.append(replace(found, subject=replace(one, view=None, rows=(), known={})))
    if not as_json:
        screen.print(_table(done))
        for item in done:
            _print_results(item, every)
        total: Counter[str] = Counter(result.status for item in done for result in item.results.values())
        told = ", ".join(f"{total[name]} {name}" for name in _STATUSES)
        screen.print(cell(f"{len(done)} updates: {told}; " + ("nothing appended" if dry_run else f"{new} events appended")))
    if any(item.fails for item in done):
        raise typer.Exit(1)


def _table(done: "list[AuditedUpdate]") -> Any:
    rows = []
    for item in done:
        body = item.subject.applied[0][1]
        count: Counter[str] = Counter(result.status for result in item.results.values())
        numbers = [count[name] for name in _STATUSES]
        rows.append([body.update_id[:12], body.stage or "", "" if body.round is None else body.round, *numbers])
    return table(["update", "stage", "round", *_STATUSES], rows, title="update checks")


def _print_results(item: "AuditedUpdate", every: bool) -> None:
    screen = console()
    for found in (one for one in item.findings if one.root is None):
        screen.print(cell(f"{item.subject.subject[:19]}  {_told(found)}"))
        for after in (one for one in item.findings if one.root is found):
            screen.print(cell(f"    follows: {_told(after)}"))
    for result in item.results.values() if every else ():
        if result.status != "fail":
            screen.print(cell(f"{item.subject.subject[:19]}  {result.status}: {result.check_id} {result.reason}".rstrip()))


def _told(found: "Finding") -> str:
    shown = ", ".join(found.evidence_event_ids[:2])
    return f"{found.level}: {found.check} ({found.fault or 'nobody to blame'}): {found.reason}; evidence {shown}"


def _json(item: "AuditedUpdate") -> dict[str, Any]:
    body = item.subject.applied[0][1]
    return {
        "update_id": body.update_id, "run_id": body.run_id, "stage": body.stage, "round": body.round, "batch_id": body.batch_id,
        "model_version_after": body.model_version_after, "fails": item.fails,
        "results": {name: result.as_json() for name, result in sorted(item.results.items())},
        "findings": [
            {
                "check": found.check, "fault": found.fault, "boundary": found.boundary, "level": found.level, "reason": found.reason,
                "evidence_event_ids": list(found.evidence_event_ids), "root": None if found.root is None else found.root.check,
            }
            for found in item.findings
        ],
    }  # fmt: skip
