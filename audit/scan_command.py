"""The command `tally audit scan`: transcripts read for reward hacking and leaks, by rules and by a model. Writes the ledger."""

import os
from collections import Counter
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from ledger.cli_settings import open_asked
from ledger.errors import SettingsError
from ledger.terminal import bar, cell, console, print_json, table


def scan_command(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN|EXPERIMENT", help="a run's id or the beginning of it, an experiment's id or name")],
    *,
    policy: Annotated[str, typer.Option(help="severity policy, a file of audit/policies/scan")] = "v1",
    limit: Annotated[int | None, typer.Option(min=1, help="only so many rollouts, the oldest first")] = None,
    reader: Annotated[str | None, typer.Option(help="OpenAI-compatible address, up to /v1, of a second reader")] = None,
    model: Annotated[str | None, typer.Option(help="its model")] = None,
    key_env: Annotated[str | None, typer.Option(help="environment variable that holds the server's key")] = None,
    appends: Annotated[bool, typer.Option("--append/--dry-run", help="append findings and requests; a dry run writes nothing")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Scan every ended rollout of a run; exit code 1 when a finding of level error is among what was found."""
    from audit.findings import raised
    from audit.scan import rollouts_of, scan
    from audit.second_reader import SecondReader, asking
    from audit.severity import load_policy
    from ledger.evaluated import run_ids_of
    from training.proposing.recorded import recorded
    from training.rollout.gateway_upstream import Upstream

    if (reader is None) != (model is None):
        raise SettingsError(f"--reader is {reader!r} and --model {model!r}; allowed: both or neither")
    if reader is not None and not appends:
        raise SettingsError("--dry-run writes nothing, and every answer of a second reader is recorded; allowed: --append, or no --reader")
    if key_env is not None and key_env not in os.environ:
        raise SettingsError(f"environment variable {key_env!r} for the server's key is not set")
    severity = load_policy(policy, kind="scan")
    lines: list[dict[str, Any]] = []
    statuses: dict[str, Counter[str]] = {check_id: Counter() for check_id in severity.severity}
    appended = requests = errors = 0
    with ExitStack() as stack:
        ledger = stack.enter_context(open_asked(ctx))
        run_ids = run_ids_of(ledger, run)
        ids = rollouts_of(ledger, run_ids, limit=limit)
        second = None
        if reader is not None and model is not None:
            upstream = Upstream(reader, model, "openai", api_key=None if key_env is None else os.environ[key_env])
            second = SecondReader(stack.enter_context(recorded(ledger, upstream, asking(run_ids[0], model))), model)
        progress = stack.enter_context(bar())
        for found in progress.track(scan(ledger, ids, severity), total=len(ids), description="scanning"):
            for check_id, result in found.results.items():
                statuses[check_id][result.status] += 1
            errors += sum(finding.level == "error" for finding in found.findings)
            lines += [
                {"rollout_id": found.subject.rollout_id, **found.results[finding.check].as_json(), "level": finding.level}
                for finding in found.findings
            ]
            if appends and found.findings:
                appended += raised(ledger, found.findings)
            if second is not None:
                requests += second.request(ledger, found, second.read(found))
    reading = None if second is None else {**second.counts, "requests": requests}
    counts = {check_id: dict(count) for check_id, count in statuses.items()}
    if as_json:
        print_json(
            {
                "run_ids": run_ids,
                "rollouts": len(ids),
                "counts": counts,
                "hits": lines,
                "reader": reading,
                "appended": appended if appends else None,
            }
        )
    else:
        _print(counts, lines, f"{len(ids)} rollouts scanned, {len(lines)} hits", reading)
        console().print(cell(f"findings appended: {appended}" if appends else "dry run: nothing was appended"))
    if errors:
        raise typer.Exit(1)


def _print(counts: dict[str, dict[str, int]], lines: list[dict[str, Any]], said: str, reading: dict[str, int] | None) -> None:
    screen = console()
    names = ("pass", "fail", "skip", "error")
    screen.print(table(("scanner", *names), [(check_id, *(count.get(name, 0) for name in names)) for check_id, count in counts.items()]))
    if lines:
        screen.print(
            table(("rollout", "level", "scanner", "what"), [(x["rollout_id"], x["level"], x["check_id"], _first(x)) for x in lines])
        )
    screen.print(cell(said))
    if reading is not None:
        screen.print(cell("second reader: " + ", ".join(f"{name} {count}" for name, count in sorted(reading.items()))))


def _first(line: dict[str, Any]) -> str:
    """The reason, and the first quote where there is one."""
    quotes = line["evidence"]
    return f"{line['reason']}: {quotes[0]['words']}" if isinstance(quotes, list) and quotes else str(line["reason"])
