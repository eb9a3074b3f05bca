"""The commands `tally audit claims list|add|attach|check`: stated numbers, recorded and looked at. Writes the ledger."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ledger.cli_settings import open_asked
from ledger.errors import SettingsError
from ledger.terminal import cell, console, print_json, table

claims = typer.Typer(no_args_is_help=True, help="Numbers that somebody states, apart from those measured here.")
_Json = Annotated[bool, typer.Option("--json", help="one JSON object")]
_Append = Annotated[bool, typer.Option("--append/--dry-run", help="append; a dry run writes nothing")]


@claims.command("list")
def list_claims(ctx: typer.Context, as_json: _Json = False) -> None:
    """List the claims that stand, each beside the measurements that were attached to it."""
    from audit.claims import joined, measured, standing

    with open_asked(ctx) as ledger:
        found = joined(standing(ledger), measured(ledger))
    if as_json:
        print_json(
            {"claims": [{"status": one.status, "claimed": _json(one.claimed), "measured": list(map(_json, one.measured))} for one in found]}
        )
        return
    rows = [
        (line.series, line.name, line.about, line.metric, _value(line), line.axis or "not stated", line.source, status)
        for one in found
        for line, status in ((one.claimed, one.status), *((item, "") for item in one.measured))
    ]
    console().print(table(("series", "id", "about", "metric", "value", "matched on", "source", "status"), rows))


@claims.command("add")
def add_claims(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="TOML with [[claim]] tables, or JSON with a list; without it the options state one")
    ] = None,
    *,
    subject: Annotated[str | None, typer.Option(help="what it is about, such as a system")] = None,
    metric: Annotated[str | None, typer.Option(help="what is claimed, such as success")] = None,
    value: Annotated[float | None, typer.Option(help="the number")] = None,
    low: Annotated[float | None, typer.Option(help="lower end of its interval")] = None,
    high: Annotated[float | None, typer.Option(help="upper end")] = None,
    unit: Annotated[str, typer.Option(help="of the number")] = "",
    source: Annotated[str | None, typer.Option(help="where it is stated: a DOI, a URL, a run")] = None,
    stated_on: Annotated[str, typer.Option(help="ISO date of the source")] = "",
    axis: Annotated[str | None, typer.Option(help="what arms were matched on: updates, tokens, compute, time or money")] = None,
    boundary: Annotated[str | None, typer.Option(help="what it covers and what not, in the source's words")] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="name=value, again for more; docs/claims.md lists the names that checks read")
    ] = None,
    replaces: Annotated[str | None, typer.Option(help="the claim that this one corrects")] = None,
    appends: _Append = True,
    as_json: _Json = False,
) -> None:
    """Record claims; the same claim from the same source is one event."""
    from audit.claims import add, draft_of, drafts_in

    if file is not None:
        drafts = drafts_in(file)
    else:
        asked = {
            "subject": subject, "metric": metric, "value": value, "low": low, "high": high, "unit": unit, "source": source,
            "stated_on": stated_on, "axis": axis, "boundary": boundary, "replaces": replaces, "settings": settings_of(setting or []),
        }  # fmt: skip
        drafts = [draft_of(asked, "the claim of the options")]
    ids, created = list[str](), 0
    if appends:
        with open_asked(ctx) as ledger:
            ids, created = add(ledger, drafts)
    if as_json:
        print_json({"claim_ids": ids, "claims": len(drafts), "appended": created if appends else None})
    elif appends:
        console().print(cell(f"{len(drafts)} claims, {created} new: {', '.join(ids)}"), soft_wrap=True)
    else:
        console().print(cell(f"dry run: {len(drafts)} claims fit, nothing was appended"))


@claims.command("attach")
def attach_measurement(
    ctx: typer.Context,
    claim: Annotated[str, typer.Argument(help="id of a claim")],
    evaluation: Annotated[str, typer.Argument(help="id of the measurement that was made to replicate it")],
    as_json: _Json = False,
) -> None:
    """Name the measurement that was made to replicate a claim; a claim that names it takes the place of the old one."""
    from audit.claims import attach

    with open_asked(ctx) as ledger:
        claim_id = attach(ledger, claim, evaluation)
    if as_json:
        print_json({"claim_id": claim_id, "replaces": claim, "evaluation_id": evaluation})
    else:
        console().print(cell(f"claim {claim_id} takes the place of {claim} and names measurement {evaluation}"), soft_wrap=True)


@claims.command("check")
def check_claims(
    ctx: typer.Context,
    *,
    policy: Annotated[str, typer.Option(help="severity policy, a file of audit/policies/claim")] = "v1",
    measurements: Annotated[bool, typer.Option("--measured", help="also look at every number that was measured here")] = False,
    every: Annotated[bool, typer.Option("--all", help="show passes and skips as well")] = False,
    appends: _Append = True,
    as_json: _Json = False,
) -> None:
    """Look at every claim that stands, and append a finding for each fault; exit code 1 when one is of level error."""
    from audit.claim_audit import audit_claims
    from audit.findings import raised

    with open_asked(ctx) as ledger:
        audited = audit_claims(ledger, policy_name=policy, measurements=measurements)
        findings = [finding for one in audited for finding in one.findings]
        created = raised(ledger, findings) if appends and findings else 0
    if as_json:
        shown: list[dict[str, Any]] = [
            {"statement": _json(one.statement), "results": [result.as_json() for result in one.results.values()]} for one in audited
        ]
        print_json({"policy": policy, "statements": shown, "appended": created if appends else None})
    else:
        rows = [
            (one.statement.about, one.statement.metric, result.check_id, result.status, result.reason)
            for one in audited
            for result in one.results.values()
            if every or result.status in ("fail", "error")
        ]
        console().print(table(("about", "metric", "check", "status", "reason"), rows))
        done = f"findings appended: {created}" if appends else "dry run: nothing was appended"
        console().print(cell(f"{len(audited)} statements looked at, {len(findings)} faults; {done}"))
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


def settings_of(pairs: Sequence[str]) -> dict[str, int | float | str | None]:
    """Settings of `name=value` texts; what reads as a number is one.

    Raises:
        SettingsError: a text has no `=`, or a name comes twice.
    """
    found: dict[str, int | float | str | None] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name or name in found:
            raise SettingsError(f"--setting is {pair!r}; allowed: name=value, each name once")
        found[name] = _number(text)
    return found


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _value(statement: Any) -> str:
    if statement.value is None:
        return "missing"
    said = f"{statement.value:g}{f' {statement.unit}' if statement.unit else ''}"
    if statement.low is None or statement.high is None:
        return said
    level = "level not stated" if statement.level is None else f"{statement.level:.0%}"
    return f"{said} [{statement.low:g}, {statement.high:g}], {level}"


def _json(statement: Any) -> dict[str, Any]:
    return {**statement.__dict__, "settings": dict(statement.settings), "card": sorted(statement.card)}
