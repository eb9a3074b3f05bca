"""The command `tally audit benchmark`: plants faults in a project of its own and scores an attribution on them. Writes the ledger."""

import importlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli_settings import asked_settings
from ledger.errors import SettingsError
from ledger.settings import Settings

if TYPE_CHECKING:
    from audit.benchmark.score import Score, Share
    from audit.benchmark.suite import SuiteSpec
    from audit.benchmark.truth import Truths

ATTRIBUTION = "audit.attribution:attribute"
UPDATES = "audit.benchmark.attributing:fault_of_update"


def benchmark(
    ctx: typer.Context,
    *,
    cases: Annotated[int, typer.Option(min=1, help="rollouts, or updates, in which each kind is planted")] = 200,
    seed: Annotated[int, typer.Option(help="root of everything that is drawn; reports use one that nobody has tuned on")] = 0,
    kinds: Annotated[str, typer.Option(help="names with commas, or tuned, held-out, all")] = "tuned",
    worlds: Annotated[str, typer.Option(help="ticket_desk, bfcl, or both with a comma")] = "ticket_desk,bfcl",
    policies: Annotated[str, typer.Option(help="names of failing policies with commas; all when empty")] = "",
    attribution: Annotated[str, typer.Option(help="MODULE:NAME of what attributes a rollout")] = ATTRIBUTION,
    updates: Annotated[
        str, typer.Option(help="MODULE:NAME of what is called with ledger and update id and gives the kind of fault")
    ] = UPDATES,
    picture: Annotated[Path | None, typer.Option(help="write the confusion matrices as a PNG here")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Plant faults in rollouts and updates whose truth a fault-off twin tells, and score how well an attribution finds them."""
    from audit.benchmark.attributing import attributed, classified
    from audit.benchmark.kinds import chosen_kinds
    from audit.benchmark.picture import confusion_png
    from audit.benchmark.score import score
    from audit.benchmark.suite import Suite, SuiteSpec, make
    from audit.benchmark.truth import truths
    from audit.benchmark.updates import make_updates, tiny_runs, update_truths
    from audit.replaying import Replayer
    from ledger.connect import connect
    from ledger.terminal import print_json
    from training.worlds.source import source_of

    spec = SuiteSpec(seed, cases, chosen_kinds(kinds), _listed(worlds), _listed(policies))
    attribute, classify = _loaded(attribution), _loaded(updates)
    settings = asked_settings(ctx)
    settings = settings.model_copy(update={"project": project_of(spec)})
    with ExitStack() as stack:
        ledger = stack.enter_context(connect(settings, pool_size=8))
        opened = {name: _opened(stack, source_of(name).open, settings) for name in spec.worlds}
        suite = Suite(spec, ledger, settings, opened, say=lambda text: typer.echo(text, err=True))
        make(suite)
        found = truths(suite)
        known = list(found.known)
        seeds, by_version = {spec.run.run_id: spec.run.root_seed}, {world.version: world for world in opened.values()}
        replayer = stack.enter_context(Replayer(ledger, root_seeds=seeds, worlds=by_version, settings=settings))
        answers = list(attributed(ledger, [truth.subject.removeprefix("rollout-") for truth in known], attribute, replayer))
        runs = tiny_runs(spec, sorted({group.bundle.bundle_id for group in suite.groups.values()}))
        make_updates(ledger, runs)
        of_updates = update_truths(ledger, runs)
        answers += classified(ledger, [truth.subject.removeprefix("update-") for truth in of_updates], classify)
        known += of_updates
    scored = score(known, answers)
    if picture is not None:
        picture.write_bytes(confusion_png(scored, title=f"attribution benchmark, seed {seed}, {cases} cases a kind"))
    if as_json:
        print_json({"project": settings.project, **_asked(spec), **scored.as_json(), **_apart(found)})
    else:
        _print(spec, scored, found)
    if scored.missed:
        raise typer.Exit(1)


def project_of(spec: "SuiteSpec") -> str:
    """The project in which a suite is made: its own, so that making it again goes on with it."""
    return f"benchmark-{spec.seed}-{spec.cases}-{spec.run.run_id[:8]}"


def _opened(stack: ExitStack, open_world: Any, settings: Settings) -> Any:
    world = open_world(settings, {})
    stack.callback(getattr(world, "close", lambda: None))
    return world


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _loaded(named: str) -> Any:
    """What MODULE:NAME names.

    Raises:
        SettingsError: there is no such module or no such name in it.
    """
    module, _, name = named.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"{named!r} cannot be loaded ({error}); allowed: MODULE:NAME of a function, such as {ATTRIBUTION}") from error


def _asked(spec: "SuiteSpec") -> dict[str, Any]:
    return {
        "seed": spec.seed, "cases": spec.cases, "kinds_asked": [kind.name for kind in spec.kinds],
        "held_out": [kind.name for kind in spec.kinds if kind.held_out], "worlds": list(spec.worlds),
    }  # fmt: skip


def _apart(found: "Truths") -> dict[str, Mapping[str, int]]:
    return {"unstruck": found.unstruck, "other_end_states": found.apart}


def _print(spec: "SuiteSpec", scored: "Score", found: "Truths") -> None:
    from rich.table import Table

    from audit.benchmark.score import GOAL, SAID
    from ledger.terminal import cell, console

    screen = console()
    classes = Table(title=f"Classes, seed {spec.seed}: Wilson's intervals at 95 %")
    for column in ("class", "precision", "recall", f"both bounds at least {GOAL}"):
        classes.add_column(column)
    for one in scored.classes:
        classes.add_row(cell(one.name), _shown(one.precision), _shown(one.recall), "yes" if one.reaches_goal else "NOT MET")
    kinds = Table(title="Planted kinds")
    for column in ("kind", "caused", "boundary said", "kind said", "incidental", "recovered", "of these blamed"):
        kinds.add_column(column)
    for kind in scored.kinds:
        numbers = (str(kind.counts.get(name, 0)) for name in ("incidental", "recovered"))
        kinds.add_row(cell(kind.name), str(kind.boundary.n), _shown(kind.boundary), _shown(kind.named), *numbers, str(kind.blamed.hits))
    confusion = Table(title="True class (rows) and said class")
    for column in ("", *SAID):
        confusion.add_column(column)
    for one in scored.classes:
        confusion.add_row(cell(one.name), *(str(scored.confusion.get((one.name, said), 0) or "") for said in SAID))
    for table in (classes, kinds, confusion):
        screen.print(table)
    if scored.incidental:
        told = ", ".join(f"{name} {count}" for name, count in sorted(scored.incidental.items()))
        screen.print(cell(f"failed with and without a planted fault, scored apart: {told}"))
    for kind_name, count in (*found.unstruck.items(), *found.apart.items()):
        screen.print(cell(f"left out: {count} of {kind_name}, where the fault found no place or the twins are no twins"))
    screen.print(cell(f"{scored.tasks} tasks; intervals take subjects as independent, and those of one task are not"))
    screen.print(cell(f"goal not met for: {', '.join(scored.missed)}" if scored.missed else "goal met for every class"))


def _shown(share: "Share") -> str:
    if share.value is None or share.interval is None:
        return "none"
    return f"{share.value:.3f} [{share.interval[0]:.3f}, {share.interval[1]:.3f}] of {share.n}"
