"""The commands `tally train` and `tally update`: run an experiment's training, and see who got how much gradient. Writes the ledger."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli_settings import asked_settings, open_asked
from ledger.queries import resolve
from ledger.terminal import bar, cell, console, print_json, table
from training.lab import Lab
from training.run_config import RunConfig, read_run_config

if TYPE_CHECKING:
    from training.optimise.team import Team
    from training.optimise.trainer import Trained
    from training.optimise.update_read import UpdateDetail, UpdateLine

AsJson = Annotated[bool, typer.Option("--json", help="JSON, complete, one object a line.")]
Limit = Annotated[int, typer.Option(min=1, max=100_000, help="Most lines to show.")]
_IDS_SHOWN = 3
update = typer.Typer(no_args_is_help=True, help="Updates: what each was made from, and who got how much gradient.")


def train(
    ctx: typer.Context,
    experiment: Annotated[Path, typer.Argument(help="The experiment's TOML file, with a [train] table.")],
    *,
    until: Annotated[str | None, typer.Option(help="Stop after this update: STAGE for the end of a stage, or STAGE/NUMBER.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; nothing is written.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train as an experiment's file says; run again, it goes on from where it was. Under torchrun all its processes take each step."""
    from training.optimise.team import teamed

    with teamed() as team:
        if team.ranks.rank > 0:
            team.follow()
        else:
            _train(ctx, read_run_config(experiment), team, until=until, dry_run=dry_run, as_json=as_json)


def _train(ctx: typer.Context, config: RunConfig, team: "Team", *, until: str | None, dry_run: bool, as_json: bool) -> None:
    from training.optimise.opened import Training
    from training.optimise.samplers import open_sampler
    from training.optimise.schedule import place_of
    from training.optimise.trainer import train as run_training

    settings = asked_settings(ctx)
    with open_asked(ctx) as ledger, Lab(config, ledger, settings, say=lambda line: _say(line)) as lab:
        training = Training(lab)
        last = None if until is None else place_of(training.places, until)
        if dry_run:
            _print_schedule(training, as_json)
            return
        with bar() as shown:
            tasks: dict[str, Any] = {}

            def progress(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = shown.add_task(what, total=total)
                shown.advance(tasks[what], done)

            done = run_training(lab, open_sampler, until=last, team=team, progress=progress, told=lambda made: _tell(made, as_json))
    if not as_json:
        new = sum(item.new for item in done)
        console().print(cell(f"{len(done)} updates, {new} of them new; run {training.run_id}, model version {done[-1].update.after}"))


def _say(line: str) -> None:
    console(error=True).print(cell(line), style="dim")


def _tell(made: "Trained", as_json: bool) -> None:
    counters = made.update.counters
    if as_json:
        print_json({
            "place": made.place.label, "round": made.place.round, "update_id": made.update.update_id, "before": made.update.before,
            "after": made.update.after, "seconds": round(made.seconds, 3), "sampled": made.sampled, "counters": counters,
        })  # fmt: skip
        return
    said = [f"{name} {counters[name]:.4g}" for name in ("optimiser_steps", "tokens", "loss", "grad_norm", "gap_max") if name in counters]
    console().print(cell(f"{made.place.label}  {made.update.after}  {', '.join(said)}  ({made.seconds:.1f} s)"))


def _print_schedule(training: Any, as_json: bool) -> None:
    chain = training.chain()
    rows = []
    for place in training.places:
        made = chain[place.round - 1] if place.round <= len(chain) else None
        state = "done" if made is not None else "next" if place.round == len(chain) + 1 else "to do"
        rows.append([place.label, place.round, place.stage.stage, state, None if made is None else made.after])
    names = ("place", "round", "stage", "state", "model version")
    if as_json:
        for row in rows:
            print_json(dict(zip(names, row, strict=True)))
        return
    console().print(table(names, rows, title=f"run {training.run_id}: {len(chain)} of {len(rows)} updates applied"))


@update.command("list")
def list_updates(
    ctx: typer.Context,
    *,
    run: Annotated[str | None, typer.Option(help="Id of a run, or a beginning of it.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List updates, the newest last."""
    from training.optimise.update_read import update_lines

    with open_asked(ctx) as ledger:
        ledger.barrier()
        found = update_lines(ledger, run_id=None if run is None else resolve(ledger, "run", run))[-limit:]
    if as_json:
        for line in found:
            print_json(line.__dict__)
        return
    rows = [[line.update_id, line.stage, line.round, line.before, line.after, *_measured(line)] for line in found]
    console().print(table(("update", "stage", "round", "from", "to", "steps", "tokens", "loss", "grad norm"), rows))


@update.command("show")
def show_update(
    ctx: typer.Context,
    ident: Annotated[str, typer.Argument(metavar="ID", help="An update, or the model version that it made; a beginning will do.")],
    *,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show who got how much gradient in an update, who only voted, who was left out and why, and every counter."""
    from training.optimise.update_read import update_detail

    with open_asked(ctx) as ledger:
        found = update_detail(ledger, ident)
    if as_json:
        print_json(detail_json(found))
    else:
        _print_detail(found, limit)


def detail_json(found: "UpdateDetail") -> dict[str, Any]:
    """An update with its batch as one JSON object."""
    return {
        **found.line.__dict__, "methods": found.methods, "batch_counters": found.batch_counters, "exclusions": found.exclusions,
        "rollouts": [{**item.row.model_dump(mode="json"), "weight": item.weight, "share": item.share} for item in found.rollouts],
    }  # fmt: skip


def _print_detail(found: "UpdateDetail", limit: int) -> None:
    screen, line, rollouts = console(), found.line, found.rollouts
    votes, trains = sum(item.row.votes for item in rollouts), sum(item.row.trains for item in rollouts)
    screen.print(cell(f"update {line.update_id}: {line.stage} round {line.round}, step {line.step}"))
    screen.print(cell(f"{line.before} -> {line.after}, batch {line.batch_id}"))
    left = sum(map(len, found.exclusions.values()))
    screen.print(cell(f"{votes} rollouts vote, {trains} train, {left} neither; by falling share of the gradient:"))
    rows = [
        [
            item.row.rollout_id, (item.row.group_id or "-")[:8], _number(item.row.reward), _yes(item.row.votes), _yes(item.row.trains),
            _number(item.row.advantage), _number(item.weight), _percent(item.share), len(item.row.rows),
            sum(row.trained for row in item.row.rows), item.row.reason or item.row.path or "-",
        ]
        for item in rollouts[:limit]
    ]  # fmt: skip
    columns = ("rollout", "group", "reward", "votes", "trains", "advantage", "weight", "share", "rows", "tokens", "path or reason")
    screen.print(table(columns, rows, title=None if len(rollouts) <= limit else f"first {limit} of {len(rollouts)}"))
    if found.exclusions:
        shown = [[reason, len(ids), ", ".join(ids[:_IDS_SHOWN])] for reason, ids in sorted(found.exclusions.items())]
        screen.print(table(("left out because", "rollouts", "first of them"), shown))
    reasons = Counter(item.row.reason for item in rollouts if item.row.reason)
    if reasons:
        screen.print(table(("only votes because", "rollouts"), sorted(reasons.items())))
    for title, counters in (("counted in the batch", found.batch_counters), ("measured and counted in the update", line.counters)):
        screen.print(table((title, "value"), [[name, _number(value)] for name, value in sorted(counters.items())]))


def _measured(line: "UpdateLine") -> list[str]:
    return [_number(line.counters.get(name)) for name in ("optimiser_steps", "tokens", "loss", "grad_norm")]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
