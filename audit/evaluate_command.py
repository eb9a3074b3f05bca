"""The commands `tally evaluate` and `tally compare`: model versions measured and compared from what is recorded. Writes the ledger."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from audit.behaviour import behaviours
from audit.evaluation import Evaluation, Question, evaluate
from audit.evaluation_compare import AXES, Comparison, compare
from audit.evaluation_curves import curve_png, gains
from audit.evaluation_record import Purpose, append, compared_events, measured_events, reads_of_test, record_reads
from audit.evaluation_spent import spent
from audit.evaluation_tables import (
    caveats,
    comparison_json,
    comparison_tables,
    evaluation_json,
    evaluation_tables,
    split_table,
)
from ledger.cli_settings import open_asked
from ledger.errors import SettingsError, UnknownId
from ledger.evaluated import run_ids_of, runs_of
from ledger.ledger import LedgerHandle
from ledger.queries import fresh, resolve
from ledger.terminal import cell, console, print_json

Split = Literal["train", "validation", "test"]
_Slices = Annotated[Path | None, typer.Option("--slices", help="JSON object: bundle id to slice, for bundles whose provenance has none")]
_Purpose = Annotated[Purpose, typer.Option(help="what the numbers are read for, recorded with each read of held-out bundles")]
_Append = Annotated[
    bool,
    typer.Option("--append/--dry-run", help="append what is measured; a dry run writes nothing and so shows nothing of the test split"),
]
_SplitOption = Annotated[Split | None, typer.Option(help="only bundles of this split")]
_SliceOption = Annotated[str | None, typer.Option("--slice", help="only this slice")]
_Temperature = Annotated[float | None, typer.Option(min=0, help="only rollouts sampled at it, and fixed rules")]
_Json = Annotated[bool, typer.Option("--json", help="one JSON object")]
_Level = Annotated[float, typer.Option(help="of the intervals")]
_Draws = Annotated[int, typer.Option(min=100, help="bootstrap draws")]


def evaluate_command(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="RUN|EXPERIMENT", help="a run's id or the beginning of it, an experiment's id or name")],
    *,
    split: _SplitOption = None,
    slice_: _SliceOption = None,
    temperature: _Temperature = None,
    version: Annotated[list[str] | None, typer.Option(help="only this model version, beside the fixed rules; again for more")] = None,
    slices: _Slices = None,
    behaviour: Annotated[bool, typer.Option(help="count what policies do by what the request wants")] = True,
    purpose: _Purpose = "report",
    level: _Level = 0.95,
    draws: _Draws = 2000,
    curve: Annotated[Path | None, typer.Option(help="write success and reward by update as a PNG here")] = None,
    appends: _Append = True,
    as_json: _Json = False,
) -> None:
    """Measure every model version of a run from its recorded rollouts, with the fixed rules on the same tasks beside it."""
    with open_asked(ctx) as ledger:
        fresh(ledger)
        question = Question(
            run_ids_of(ledger, subject), tuple(resolve(ledger, "model", item) for item in version or ()), slices_in(slices), slice_,
            _shown_split(split, appends), temperature, level=level, draws=draws,
        )  # fmt: skip
        found = evaluate(ledger, question)
        if appends:
            record_reads(ledger, found, purpose=purpose, reader="tally-evaluate")
        told = behaviours(ledger, found.cells) if behaviour else ()
        parts = gains(ledger, found)
        created = append(ledger, measured_events(ledger, found)) if appends else None
        reads = reads_of_test(ledger, question.run_ids) if appends else {}
    if curve is not None:
        curve.write_bytes(curve_png(found, parts))
    if as_json:
        shown = [{**place, "parts": [item.as_json() for item in split]} for place, split in parts]
        print_json({**evaluation_json(found, told, reads), "gain_split": shown, "appended": created})
        return
    screen = console()
    for run in found.runs:
        screen.print(cell(f"run {run.run_id} ({run.name}), seed {run.root_seed}, up to position {found.position}"))
    for shown_table in evaluation_tables(found, told):
        screen.print(shown_table)
    for place, split_parts in parts:
        title = f"gain in success by stage, slice {place['slice']}, temperature {place['temperature']}"
        screen.print(split_table(split_parts, title))
    _print_end(found, reads, created)


def compare_command(
    ctx: typer.Context,
    before: Annotated[str, typer.Argument(metavar="VERSION_A", help="model version, or several with commas: one a seed")],
    after: Annotated[str, typer.Argument(metavar="VERSION_B", help="as many, in the same order of seeds")],
    *,
    split: _SplitOption = None,
    slice_: _SliceOption = None,
    temperature: _Temperature = None,
    axis: Annotated[str, typer.Option(help=f"what the two were matched on: {', '.join(AXES)}")] = "tasks",
    slices: _Slices = None,
    purpose: _Purpose = "report",
    level: _Level = 0.95,
    draws: _Draws = 10_000,
    flips: Annotated[int, typer.Option(min=0, help="flipped tasks to show")] = 20,
    fails: Annotated[bool, typer.Option("--fail-on-regression", help="exit code 1 when B is worse than A beyond chance")] = False,
    appends: _Append = True,
    as_json: _Json = False,
) -> None:
    """Compare two model versions on the same tasks: paired gain with its interval, flips both ways, McNemar's exact test."""
    with open_asked(ctx) as ledger:
        fresh(ledger)
        pairs = _pairs(ledger, before, after)
        versions = tuple(dict.fromkeys(version for pair in pairs for version in pair))
        question = Question(
            tuple(runs_of(ledger, versions)), versions, slices_in(slices), slice_, _shown_split(split, appends), temperature, level=level,
            draws=draws,
        )  # fmt: skip
        if not question.run_ids:
            raise UnknownId(f"no rollout of {', '.join(versions)} in project {ledger.project!r}")
        found = evaluate(ledger, question)
        if appends:
            record_reads(ledger, found, purpose=purpose, reader="tally-compare")
        comparisons = compare(found, pairs, axis=axis, spent=spent(ledger, versions))
        created = append(ledger, compared_events(ledger, comparisons)) if appends else None
        reads = reads_of_test(ledger, question.run_ids) if appends else {}
    if as_json:
        print_json({"comparisons": [comparison_json(item) for item in comparisons], "test_reads": reads, "appended": created})
    else:
        _print_comparisons(comparisons, flips)
        _print_end(found, reads, created, with_caveats=False)
    if fails and any(item.regressed for item in comparisons):
        raise typer.Exit(1)


def slices_in(path: Path | None) -> dict[str, str]:
    """Bundle id to slice, as a file says it; nothing without one.

    Raises:
        SettingsError: the file cannot be read or holds something else.
    """
    if path is None:
        return {}
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read slices from {path}: {error}") from error
    if not isinstance(value, dict) or not all(isinstance(name, str) and name for name in value.values()):
        raise SettingsError(f"{path} holds {str(value)[:80]!r}; allowed: an object of bundle id to the name of a slice")
    return value


def _pairs(ledger: LedgerHandle, before: str, after: str) -> list[tuple[str, str]]:
    left, right = ([resolve(ledger, "model", item) for item in side.split(",") if item] for side in (before, after))
    if not left or len(left) != len(right):
        raise SettingsError(f"{len(left)} versions are compared with {len(right)}; allowed: as many on both sides, one a seed")
    return list(zip(left, right, strict=True))


def _shown_split(split: Split | None, appends: bool) -> str | None:
    """The split to look at. Every look at test bundles is recorded, so a run that records nothing looks at those of validation."""
    if not appends and split == "test":
        raise SettingsError("--dry-run records nothing, and every read of the test split is recorded; allowed: --append, or another split")
    return "validation" if not appends and split is None else split


def _print_comparisons(comparisons: Sequence[Comparison], flips: int) -> None:
    screen = console()
    for found in comparisons:
        screen.print(cell(f"before: {', '.join(found.before)}"))
        screen.print(cell(f"after:  {', '.join(found.after)}"))
        for shown in comparison_tables(found, flips=flips):
            screen.print(shown)
        screen.print(cell(f"slots that only one of the two has measured: {found.unpaired}"))
        said = (*found.notes, *found.success_gain.caveats, *found.gain.caveats)
        for note in dict.fromkeys(said):
            screen.print(cell(f"note: {note}"))


def _print_end(evaluation: Evaluation, reads: dict[str, int], created: int | None, *, with_caveats: bool = True) -> None:
    screen = console()
    for note in (*evaluation.notes, *(caveats(evaluation) if with_caveats else ())):
        screen.print(cell(f"note: {note}"))
    if created is None:
        screen.print(cell("dry run: nothing was appended"))
        return
    total = sum(reads.values())
    screen.print(cell(f"reads of test bundles in these runs: {total} (for selection {reads['selection']}, for a report {reads['report']})"))
    screen.print(cell(f"new measurements appended: {created}"))
