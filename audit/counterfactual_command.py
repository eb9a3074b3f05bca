"""The command `tally counterfactual`: what changed verdicts come to at the rollouts that were sampled. Writes the terminal; the ledger
only with --append."""

from typing import Annotated, Any, Literal

import typer

_SHOWN = 20


def counterfactual(
    ctx: typer.Context,
    *,
    verifier: Annotated[str | None, typer.Option(help="judge again by this verifier: a name, or a Python file, which is run")] = None,
    decision: Annotated[
        list[str] | None, typer.Option(help="id of a recorded decision, or <rollout>=passed|failed; again for more")
    ] = None,
    recall: Annotated[str | None, typer.Option(help="leave out this verifier version's verdicts: its name or id")] = None,
    where: Annotated[list[str] | None, typer.Option(help="name=value: only verdicts on these rollouts; again for more")] = None,
    options: Annotated[str, typer.Option("--options", help="JSON: options of the worlds' sources")] = "{}",
    evaluations: Annotated[bool, typer.Option(help="evaluation scores before and after")] = True,
    append: Annotated[
        bool, typer.Option("--append", help="record each changed update as a remark; without this nothing is written")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Show which rewards, votes, advantages, shares and scores changed verdicts come to; nothing is sampled or trained again."""
    from audit.counterfactual_scores import Scores, scores
    from audit.counterfactual_updates import reached
    from ledger import queries
    from ledger.cli_settings import asked_settings, open_asked
    from ledger.terminal import console, print_json

    with open_asked(ctx) as ledger:
        queries.fresh(ledger)
        changes = _changes(ledger, asked_settings(ctx), (verifier, decision, recall), where or (), options)
        found = reached(ledger, changes)
        scored = scores(ledger, changes) if evaluations else Scores((), 0)
        created = _recorded(ledger, changes, found) if append else None
    if as_json:
        print_json({**as_object(changes, found, scored), "appended": created})
        return
    _print(changes, found, scored)
    console(error=True).print("nothing is appended; --append records it" if created is None else f"{created} new events", style="dim")


def as_object(changes: Any, found: Any, scored: Any) -> dict[str, Any]:
    """All of it as a JSON object."""
    from audit.counterfactual_updates import update_json

    flips = [change for change in changes.by_rollout.values() if change.flips]
    return {
        "source": changes.source, "verdicts": len(changes.by_rollout), "flips": len(flips), "left_out": dict(changes.left_out),
        "flipped": [{"rollout_id": c.rollout_id, "before": c.old.passed, "after": c.new.passed, "by": c.old.by} for c in flips],
        "updates": [update_json(item) for item in found.updates], "updates_untouched": found.untouched,
        "scores": [item.as_json() for item in scored.changed], "test_rollouts_left_unread": scored.test_rollouts,
        "not_derivable": dict(found.not_derivable),
    }  # fmt: skip


def _changes(ledger: Any, settings: Any, asked: tuple[Any, ...], where: Any, options: str) -> Any:
    from audit import counterfactual_changes
    from audit.asked_rollouts import filter_of, opened_worlds
    from audit.reverify import reverify, verifier_from
    from ledger.errors import SettingsError
    from ledger.verdict_pairs import verifier_named
    from training.proposing.command import json_object

    verifier, decision, recall = asked
    if sum(bool(item) for item in asked) != 1:
        raise SettingsError("give exactly one of --verifier, --decision and --recall")
    if decision:
        if where:
            raise SettingsError("--where does not go with --decision, which names its rollouts")
        return counterfactual_changes.of_decisions(ledger, decision)
    if recall is not None:
        return counterfactual_changes.of_recall(ledger, verifier_named(ledger, recall).verifier_id, filter_of(where))
    with opened_worlds(settings, json_object(options, "options")) as world_of:
        return counterfactual_changes.of_verifier(ledger, reverify(ledger, verifier_from(verifier), world_of, filter_of(where)))


def _recorded(ledger: Any, changes: Any, found: Any) -> int:
    from audit.counterfactual_updates import update_json
    from audit.findings import Finding, raised

    level: Literal["info"] = "info"
    return raised(ledger, [
        Finding(
            "counterfactual", f"update-{item.update.update_id}", None,
            f"{changes.source}: {len(item.touched)} verdicts changed, {item.effect.share_moved:.4f} of the gradient's shares moved", level,
            item.event_ids, {name: value for name, value in update_json(item)["effect"].items() if name not in ("rollouts", "counters")},
        )
        for item in found.updates if item.effect is not None and item.effect.changed
    ])  # fmt: skip


def _print(changes: Any, found: Any, scored: Any) -> None:
    from ledger.terminal import cell, console, table

    out = console()
    flips = sum(change.flips for change in changes.by_rollout.values())
    out.print(cell(f"{changes.source}: {len(changes.by_rollout)} verdicts, {flips} of them another answer", "bold"))
    for reason, count in changes.left_out.items():
        out.print(cell(f"left out: {count} {reason}"))
    rows = []
    for item in found.updates:
        place = f"{item.update.stage}/{item.update.round}"
        e = item.effect
        if e is None:
            rows.append([place, len(item.touched), "-", "-", "-", "-", "-", "-", item.reason])
        elif e.changed:
            rows.append([
                place, len(item.touched), e.count("reward"), e.count("votes"), e.count("trains"), e.count("advantage"), e.sign_flips,
                f"{e.share_moved:.4f}", "",
            ])  # fmt: skip
    columns = ["update", "verdicts", "rewards", "votes", "in the loss", "advantages", "signs", "share moved", "not derived because"]
    same = len(found.updates) - len(rows)
    if rows:
        out.print(
            table(columns, rows[:_SHOWN], title=f"changed updates: {len(rows)}; reached and the same {same}; not reached {found.untouched}")
        )
        if len(rows) > _SHOWN:
            out.print(cell(f"the first {_SHOWN} of {len(rows)}; --json lists all", "dim"))
    else:
        out.print(cell(f"no update changes: {same} are reached and stay the same, {found.untouched} are not reached"))
    if scored.changed:
        out.print(table(
            ["model version", "slice", "split", "rollouts changed", "success before", "after", "of", "expected"],
            [[s.cell["model_version"], s.cell["slice"], s.cell["split"], s.touched, _share(s.before), _share(s.after),
              f"{s.before.n}, {s.after.n}", s.expected] for s in scored.changed[:_SHOWN]],
            title="evaluation scores",
        ))  # fmt: skip
    if scored.test_rollouts:
        out.print(cell(f"{scored.test_rollouts} rollouts of the test split are left unread"))
    out.print(table(["not derivable", "number"], [[name.replace("_", " "), count] for name, count in found.not_derivable.items()]))


def _share(estimate: Any) -> str:
    return "-" if estimate.value is None else f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}]"
