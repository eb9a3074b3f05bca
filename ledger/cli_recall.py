"""The command `tally recall`: what came of something that is no longer trusted. Writes to the terminal; with --confirm one event."""

import dataclasses
from enum import StrEnum
from typing import Annotated, Any

import typer

from ledger import queries, recall, recall_graph
from ledger.cli_settings import open_asked
from ledger.errors import InvalidEvent
from ledger.recall import Impact
from ledger.terminal import cell, console, print_json, table

VERSIONS_SHOWN = 40
ALIASES = {"environment": "world"}


class GraphFormat(StrEnum):
    """Languages of graphs."""

    dot = "dot"
    mermaid = "mermaid"


def add_to(app: typer.Typer) -> None:
    """Register this module's command."""
    app.command("recall")(recall_command)


def recall_command(
    ctx: typer.Context,
    noun: Annotated[str, typer.Argument(help=f"One of {', '.join(recall.NOUNS)}; environment is another name for world.")],
    ident: Annotated[str, typer.Argument(metavar="ID", help="Its id, or a beginning of it that no other shares.")],
    *,
    closure: Annotated[bool, typer.Option(help="Count everything downstream, through later model versions too.")] = False,
    graph: Annotated[GraphFormat | None, typer.Option(help="Print a graph instead of tables.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, complete.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why it is recalled, for the record.")] = None,
    confirm: Annotated[bool, typer.Option(help="Record the recall; without this nothing is written.")] = False,
) -> None:
    """Show what came of a verifier, world, harness, model version, task, verdict, reward or rollout; record its recall with --confirm."""
    if confirm and not (reason or "").strip():
        raise InvalidEvent("a recall is recorded with its reason; give --reason TEXT")
    noun = ALIASES.get(noun, noun)
    with open_asked(ctx) as ledger:
        subject = f"{noun}-{queries.resolve(ledger, noun, ident)}"
        found = recall.impact(ledger, subject, closure=closure)
        recall_id = recall.recall(ledger, found, str(reason)) if confirm else None
        event = recall.recalled(ledger, subject)
    if as_json:
        stands = None if event is None else {"recall_id": event.stream.partition("-")[2], "by": event.actor_id, "at": event.occurred_at}
        print_json({**impact_json(found), "recalled": stands})
        return
    if graph is not None:
        typer.echo(recall_graph.dot(found) if graph is GraphFormat.dot else recall_graph.mermaid(found))
    else:
        print_impact(found)
    error = console(error=True)
    if recall_id is not None:
        error.print(cell(f"recorded: {subject} is recalled, recall {recall_id}"), soft_wrap=True)
    elif event is not None:
        error.print(cell(f"{subject} was recalled by {event.actor_id} at {event.occurred_at:%Y-%m-%d %H:%M:%S} UTC"), soft_wrap=True)
    else:
        error.print("dry run: nothing is written; --reason TEXT --confirm records the recall", style="dim")


def impact_json(found: Impact) -> dict[str, Any]:
    """An impact as JSON; a share is null where no loss weight is recorded."""
    return {
        "subject": found.subject, "position": found.position, "closure": found.closure, "counts": dict(found.counts),
        "links": [{"parent": parent, "child": child, "edges": n} for (parent, child), n in found.links.items()],
        "versions": [
            {"model_version": v.model_version, "parents": list(v.parents), **dataclasses.asdict(v.loss), "share": v.loss.share,
             "direct": v.loss.direct, "inherited": v.loss.inherited, "own_share": v.loss.own_share}
            for v in found.versions
        ],
        "untouched_versions": found.untouched,
    }  # fmt: skip


def print_impact(found: Impact) -> None:
    """Print counts and shares as two tables."""
    out = console()
    out.print(cell(f"{found.subject}, up to position {found.position}", "bold"), soft_wrap=True)
    if not found.counts:
        out.print("nothing came of it")
    else:
        out.print(
            table(["everything downstream" if found.closure else "directly downstream", "number"], list(map(list, found.counts.items())))
        )
    if found.versions:
        rows = [
            [v.model_version, _percent(v.loss.share), _percent(v.loss.direct), _percent(v.loss.inherited),
             f"{v.loss.own_scope:.6g} of {v.loss.own_total:.6g}", f"{v.loss.scope:.6g} of {v.loss.total:.6g}", v.loss.unrecorded or ""]
            for v in found.versions[-VERSIONS_SHOWN:]
        ]  # fmt: skip
        columns = ["model version", "share", "direct", "inherited", "own weight", "weight so far", "unrecorded"]
        out.print(table(columns, rows, title=f"loss weight that came from it, in {len(found.versions)} model versions"))
        if len(found.versions) > VERSIONS_SHOWN:
            out.print(f"the last {VERSIONS_SHOWN} of {len(found.versions)}; --json lists all", style="dim")
    out.print(f"{found.untouched} model versions hold no loss weight from it", style="dim")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"
