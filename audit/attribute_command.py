"""The command `tally audit attribute`: whose fault the failures of a run were. Runs worlds, writes the ledger."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

_Round = Annotated[int | None, typer.Option(min=0, help="only this round")]


def attribute(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN|EXPERIMENT", help="a run's id or the beginning of it, an experiment's id or name")],
    *,
    round: _Round = None,
    everything: Annotated[bool, typer.Option("--all", help="also rollouts that passed")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="append nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Say whose fault each failed rollout was; outcomes, batches and coverage follow what is appended."""
    from audit.attribution_stage import attributions, ended_rollouts, record, root_seed
    from audit.escapes import as_json as shares_json
    from audit.escapes import escape_shares, escapes
    from audit.replaying import Replayer
    from ledger.cli_settings import asked_settings, open_asked
    from ledger.evaluated import run_ids_of
    from ledger.queries import Filter, coverage, fresh
    from ledger.terminal import console, print_json

    with open_asked(ctx) as ledger:
        run_ids = run_ids_of(ledger, run)
        seeds = {run_id: seed for run_id in run_ids if (seed := root_seed(ledger, run_id)) is not None}
        with Replayer(ledger, root_seeds=seeds, settings=asked_settings(ctx)) as replayer:
            ids = [one for run_id in run_ids for one in ended_rollouts(ledger, run_id, round=round, everything=everything)]
            seen = list(attributions(ledger, ids, replayer))
        found = [attribution for _, attribution in seen]
        new = sum(record(ledger, found[at : at + 100], dry_run=dry_run) for at in range(0, len(found), 100))
        fresh(ledger)
        covered = [line for run_id in run_ids for line in coverage(ledger, Filter(run_id=run_id, round=round))]
    shares = escape_shares(seen)
    grown = escapes(shares)
    if as_json:
        print_json({
            "runs": run_ids, "new": new, "dry_run": dry_run, "attributions": [one.as_json() for one in found],
            "coverage": [_covered(line) for line in covered], "escapes": shares_json(shares),
            "crash_to_escape": [{"action": one.action, "before": one.before.share, "after": one.after.share} for one in grown],
        })  # fmt: skip
    else:
        _print(console(), found, covered)
        for one in grown:
            console().print(
                f"crash_to_escape: after {one.action} {one.before.excluded}/{one.before.rollouts} rollouts of"
                f" {one.before.model_version} were excluded, {one.after.excluded}/{one.after.rollouts} of {one.after.model_version}",
                markup=False,
            )
        console().print(f"{new} findings {'would be ' if dry_run else ''}appended", markup=False)
    if any(one.boundary not in ("none", "task", "unknown") for one in found):
        raise typer.Exit(1)


def _covered(line: Any) -> dict[str, Any]:
    parts = {name: getattr(line, name) for name in ("expected", "measured", "masked", "failed", "omitted", "unknown", "succeeded")}
    keys = {name: getattr(line, name) for name in ("experiment_id", "round", "policy", "world")}
    return {**keys, **parts, "of_measured": line.of_measured, "of_expected": line.of_expected}


def _print(screen: Any, found: Sequence[Any], covered: Sequence[Any]) -> None:
    from ledger.terminal import table

    counts = Counter((one.boundary, one.fault or "", one.policy_evidence) for one in found)
    said = {True: "yes", False: "no", None: "unknown"}
    rows = [[boundary, fault or "-", said[evidence], count] for (boundary, fault, evidence), count in sorted(counts.items(), key=str)]
    screen.print(table(["boundary", "fault", "evidence about the policy", "rollouts"], rows))
    columns = ["policy", "world", "round", "expected", "measured", "masked", "failed", "omitted", "unknown", "of measured", "of expected"]
    lines = [
        [
            c.policy, c.world, c.round, c.expected, c.measured, c.masked, c.failed, c.omitted, c.unknown, f"{c.succeeded}/{c.measured}",
            f"{c.succeeded}/{c.expected}",
        ]
        for c in covered
    ]  # fmt: skip
    screen.print(table(columns, lines))
