"""The command `tally reverify`: stored ends and calls judged again, with flips both ways. Writes the ledger and the terminal."""

from typing import Annotated, Any, Literal

import typer

_SHOWN = 20


def reverify(
    ctx: typer.Context,
    *,
    verifier: Annotated[str, typer.Option(help="a verifier by name, or a Python file with a function named as the file, which is run")],
    where: Annotated[list[str] | None, typer.Option(help="name=value, such as policy=oracle or round=3; again for more")] = None,
    kind: Annotated[Literal["program", "state_diff", "judge"], typer.Option(help="of a verifier from a file")] = "program",
    counts: Annotated[bool, typer.Option("--counts", help="let the new verdicts count, which changes outcomes as of now")] = False,
    recall: Annotated[str | None, typer.Option(help="id of the recall because of which they are judged again")] = None,
    options: Annotated[str, typer.Option("--options", help="JSON: options of the worlds' sources")] = "{}",
    limit: Annotated[int | None, typer.Option(min=1, help="most rollouts, the oldest first")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="append nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Judge recorded rollouts again, without any policy; both verdicts are kept. Exit code 1 when a verdict differs."""
    from audit import reverify as again
    from audit.asked_rollouts import filter_of, opened_worlds
    from audit.findings import Finding, raised
    from audit.verifier_tasks import kinds_of
    from ledger import queries
    from ledger.cli_settings import asked_settings, open_asked
    from ledger.terminal import bar, print_json
    from training.proposing.command import json_object
    from training.rollout.judge import Judging
    from training.worlds.source import source_of

    bound, asked = again.verifier_from(verifier), filter_of(where or ())
    with open_asked(ctx) as ledger:
        queries.fresh(ledger)
        recall_id = None if recall is None else queries.resolve(ledger, "recall", recall)
        with opened_worlds(asked_settings(ctx), json_object(options, "options")) as world_of, bar() as shown:
            task = shown.add_task("judging again", total=None)
            found = again.reverify(ledger, bound, world_of, asked, limit=limit, progress=lambda done: shown.advance(task, done))
        worlds = {item.line.world for item in found.again if item.line.world is not None}
        kinds = {name: made for world in worlds for name, made in kinds_of(source_of(world)).items()}
        judging = Judging(bound, kinds.get(bound.ref.name, kind), "bundle" if counts else "second_opinion")
        created, result = 0, found.result()
        if not dry_run and found.again:
            created = again.append(ledger, found, judging, recall_id=recall_id)
            queries.fresh(ledger)
            if result.fault is not None:
                ids = [event.event_id for item in found.flips if item.old is not None
                       for event in ledger.read_stream(f"verdict-{item.old.verdict_id}")]  # fmt: skip
                created += raised(ledger, [Finding(
                    "reverify_agreement", f"verifier-{bound.ref.method_id}", result.fault, result.reason, "error", tuple(ids[:100]),
                    dict(result.measured),
                )])  # fmt: skip
    if as_json:
        print_json({**reverified_json(found), "appended": None if dry_run else created})
    else:
        _print(found, None if dry_run else created)
    if found.flips:
        raise typer.Exit(1)


def reverified_json(found: Any) -> dict[str, Any]:
    """What came of judging again as a JSON object."""
    result = found.result()
    return {
        "verifier": found.verifier.ref.name, "verifier_id": found.verifier.ref.method_id, "rollouts": found.total,
        "judged": len(found.again), "left_out": dict(found.left_out), "reverify_agreement": result.as_json(),
        "flips": [
            {
                "rollout_id": item.line.rollout_id, "task": item.line.bundle, "policy": item.line.policy, "flip": item.flip,
                "old_verdict_id": item.old.verdict_id, "old_verifier": item.old.verifier or "people",
                "conditions": {c.name: c.status for c in item.new.conditions},
            }
            for item in found.flips
        ],
    }  # fmt: skip


def _print(found: Any, created: int | None) -> None:
    from ledger.terminal import cell, console, table

    out, result = console(), found.result()
    name = f"{found.verifier.ref.name} {found.verifier.ref.method_id[:12]}"
    out.print(cell(f"{name} judged {len(found.again)} of {found.total} rollouts again"))
    for reason, count in found.left_out.items():
        out.print(cell(f"{count} {reason}"))
    if found.agreement is not None:
        measured = result.measured
        out.print(cell(
            f"agreement {found.agreement:.4f} over {found.compared}; passed before {measured['passed_before']},"
            f" after {measured['passed_after']}"
        ))  # fmt: skip
    if found.flips:
        rows = [
            [item.flip, item.line.bundle, item.line.policy, item.old.verifier or "people",
             ", ".join(c.name for c in item.new.conditions if c.status != "passed" and c.in_basis) or item.new.error or "-",
             item.line.rollout_id]
            for item in found.flips
        ]  # fmt: skip
        counted = ", ".join(f"{n} {kind}" for kind, n in result.measured["flips"].items())
        out.print(table(["flip", "task", "policy", "before by", "not passed now", "rollout"], rows[:_SHOWN], title=f"flips: {counted}"))
        if len(rows) > _SHOWN:
            out.print(cell(f"the first {_SHOWN} of {len(rows)}; --json lists all", "dim"))
    console(error=True).print("dry run: nothing is appended" if created is None else f"{created} new events", style="dim")
