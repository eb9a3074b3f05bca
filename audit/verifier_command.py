"""The commands `tally audit verifier` and `tally audit counterexample`. Write the ledger, files and the terminal."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

_Json = Annotated[bool, typer.Option("--json", help="one JSON object")]


def verifier(
    ctx: typer.Context,
    ident: Annotated[str, typer.Argument(metavar="NAME|ID", help="a verifier by name, or a version by its id or a beginning of it")],
    *,
    bundles: Annotated[int | None, typer.Option(min=1, help="tasks, drawn evenly; all sealed ones without it")] = None,
    seed: Annotated[int, typer.Option(help="of everything that is drawn")] = 0,
    world: Annotated[str | None, typer.Option(help="tasks of this world; where none is sealed they are made")] = None,
    options: Annotated[str, typer.Option("--options", help="JSON: options of the world's source")] = "{}",
    mutants: Annotated[int | None, typer.Option(min=1, help="most mutants of one task")] = None,
    policy: Annotated[str, typer.Option(help="severity policy of verifiers")] = "v1",
    html: Annotated[Path | None, typer.Option(help="write the datasheet as one HTML page here")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="append nothing")] = False,
    as_json: _Json = False,
) -> None:
    """Try a verifier on mutants, equivalent paths and adversaries, and print its datasheet; exit code 1 when a check fails."""
    from audit.severity import load_policy
    from audit.verifier_audit import audit_verifier
    from audit.verifier_datasheet import datasheet, record
    from audit.verifier_html import datasheet_html
    from audit.verifier_regression import regression
    from audit.verifier_tables import print_datasheet
    from audit.verifier_tasks import Asked, prepared
    from audit.verifier_trials import MUTANTS
    from ledger.cli_settings import asked_settings, open_asked
    from ledger.queries import fresh
    from ledger.terminal import bar, cell, console, print_json
    from ledger.verdict_pairs import registered_verifiers
    from training.bundles import register
    from training.proposing.command import json_object
    from training.rollout.harness import tool_loop
    from training.verifiers import verifiers

    asked = Asked(ident, world, json_object(options, "options"), bundles, seed)
    with open_asked(ctx) as ledger:
        fresh(ledger)
        with prepared(ledger, asked, asked_settings(ctx)) as ready, bar() as shown:
            task = shown.add_task("tasks", total=len(ready.bundles))
            found = audit_verifier(
                ready.audited, ready.world, ready.bundles, load_policy(policy, kind="verifier"), seed=seed, mutants=mutants or MUTANTS,
                progress=lambda done: shown.advance(task, done),
            )  # fmt: skip
            kept = regression(ledger, found.name, ready.audited.verifier.call, ready.world)
            sheet = datasheet(
                ledger, found, kept, command=_again(asked, options, mutants, policy, sealed=ready.sealed, tasks=len(ready.bundles))
            )
            created = 0
            if not dry_run:
                if found.verifier_id not in registered_verifiers(ledger):
                    gaps = [found.name] if hasattr(verifiers[found.name], "planted_gap") else []
                    created = register(
                        ledger, ready.world, [(ready.audited.verifier, ready.audited.kind)], tool_loop(), planted=gaps
                    )  # fmt: skip
                created += record(ledger, found, sheet)
    if html is not None:
        html.write_text(datasheet_html(sheet.content), encoding="utf-8")
    if as_json:
        print_json({**sheet.content, "failing": sheet.failing, "appended": None if dry_run else created})
    else:
        print_datasheet(console(), sheet.content)
        notes = ([] if ready.sealed else ["the tasks were made for this audit and are not sealed"]) + (
            [f"{ready.test_left_out} tasks of the test split are left out"] if ready.test_left_out else []
        )
        for note in notes:
            console().print(cell(note, "dim"))
        console(error=True).print("dry run: nothing is appended" if dry_run else f"{created} new events", style="dim")
    if sheet.failing:
        raise typer.Exit(1)


def _again(asked: Any, options: str, mutants: int | None, policy: str, *, sealed: bool, tasks: int) -> str:
    """The command that makes the same datasheet again."""
    parts = ["tally audit verifier", asked.verifier, f"--seed {asked.seed}"]
    if asked.bundles is not None or not sealed:
        parts.append(f"--bundles {tasks if asked.bundles is None else asked.bundles}")
    parts += [f"--world {asked.world}"] if asked.world is not None else []
    parts += [f"--options '{options}'"] if options != "{}" else []
    parts += [f"--mutants {mutants}"] if mutants is not None else []
    return " ".join(parts + ([f"--policy {policy}"] if policy != "v1" else []))


def counterexample(
    ctx: typer.Context,
    action: Annotated[Literal["list", "show", "approve", "refuse"], typer.Argument(help="what to do")],
    ident: Annotated[
        str | None, typer.Argument(metavar="ID", help="of a counterexample, or a beginning of it; a verifier's name to list")
    ] = None,
    *,
    reason: Annotated[str | None, typer.Option(help="why, for the record")] = None,
    person: Annotated[str | None, typer.Option("--as", help="name of the person who decides, kept apart from the events")] = None,
    as_json: _Json = False,
) -> None:
    """List counterexamples of verifiers, or decide about one; approved ones are asked of every later version of their verifier."""
    from audit.verifier_datasheet import counterexample_json
    from audit.verifier_regression import counterexamples, decide, resolved
    from audit.verifier_tables import print_counterexample, print_counterexamples
    from ledger.actors import person_named
    from ledger.cli_settings import open_asked
    from ledger.errors import InvalidEvent
    from ledger.terminal import cell, console, print_json

    if action != "list" and ident is None:
        raise InvalidEvent(f"{action} needs the ID of a counterexample; `tally audit counterexample list` shows them")
    with open_asked(ctx) as ledger:
        if action in ("approve", "refuse"):
            if not (reason or "").strip():
                raise InvalidEvent("a counterexample is decided with a reason; give --reason TEXT")
            ident = resolved(ledger, str(ident))
            by = ledger.actor_id if person is None else person_named(ledger, person)
            decide(ledger, ident, promoted=action == "approve", reason=str(reason), decided_by=by)
            state = {"id": ident, "state": "approved" if action == "approve" else "refused", "by": by}
            if as_json:
                print_json(state)
            else:
                console().print(cell(f"{state['state']}: counterexample {ident}"), soft_wrap=True)
            return
        if action == "show":
            ident = resolved(ledger, str(ident))
            item = next(item for item in counterexamples(ledger) if item.artifact_id == ident)
            if as_json:
                print_json({**counterexample_json(item), **item.content})
            else:
                print_counterexample(console(), item)
            return
        found = counterexamples(ledger, ident)
    if as_json:
        print_json({"counterexamples": [{"verifier": item.verifier, **counterexample_json(item)} for item in found]})
    else:
        print_counterexamples(console(), found)
