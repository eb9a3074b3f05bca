"""The command `tally synthesize`: proposes tasks for a world, seals them, and lets the gates decide. Writes the ledger."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from audit.bundle_gate import Decision, Gated, Gates, gate
from audit.bundle_workers import workers_for
from audit.severity import DEFAULT, load_policy
from ledger.bundle import SPLITS, Bundle, BundleDraft
from ledger.cli_settings import asked_settings, open_asked
from ledger.errors import SettingsError
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from ledger.terminal import bar, cell, console, print_json, table
from training.bundles import Harness, register, seal
from training.proposers import ProposalContext, proposers
from training.proposing.command import json_object
from training.rollout.harness import tool_loop
from training.verifiers import verifiers
from training.worlds import World
from training.worlds.source import TaskQuery, VerifierKind, WorldSource, source_names, source_of

SHORT_NAMES: dict[str, tuple[str, dict[str, Any]]] = {"desk": ("ticket_desk", {"families": True})}
"""Names of a world with options that go with them."""
_GIVEN = 8
"""Tasks of the world's own that a proposer starts from."""


def synthesize(
    ctx: typer.Context,
    world: Annotated[str, typer.Argument(help="a world by its folder's name; desk is short for ticket_desk")],
    *,
    families: Annotated[int, typer.Option(min=1, help="how many tasks")] = 200,
    seed: Annotated[int, typer.Option(help="of everything that is drawn")] = 0,
    level: Annotated[int | None, typer.Option(help="difficulty, where the world has levels")] = None,
    proposer: Annotated[str | None, typer.Option(help="makes the tasks from some of the world's own")] = None,
    options: Annotated[str, typer.Option("--options", help="JSON: options of the world's source, such as a name")] = "{}",
    verifier: Annotated[str | None, typer.Option(help="in place of the world's own verifier")] = None,
    policy: Annotated[str, typer.Option(help="severity policy")] = DEFAULT,
    limit: Annotated[int, typer.Option(min=0, help="rejected bundles to show")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
    out: Annotated[Path | None, typer.Option(help="write every decision with all its results here, one JSON object a line")] = None,
) -> None:
    """Propose tasks, seal them, and admit those that pass the environment gate and the task gate; again, it adds nothing."""
    settings = asked_settings(ctx)
    name, chosen = SHORT_NAMES.get(world, (world, {}))
    chosen = {**chosen, **json_object(options, "options"), **({} if level is None else {"level": level})}
    if name not in source_names():
        raise SettingsError(f"no world {world!r}; there are {', '.join([*SHORT_NAMES, *source_names()])}")
    # What is named wrongly is refused before the tasks are made, which takes seconds.
    load_policy(policy)
    if proposer is not None:
        proposers.bind(proposer)
    source = source_of(name)
    opened = source.open(settings, {key: chosen[key] for key in source.opening if key in chosen})
    try:
        with open_asked(ctx) as ledger:
            query = TaskQuery(families, seed, chosen)
            drafts = _drafts(source, opened, query, settings, proposer)
            sealed, gated = synthesized(ledger, source, opened, drafts, policy=policy, verifier=verifier)
    finally:
        getattr(opened, "close", lambda: None)()
    if out is not None:
        out.write_text("".join(json.dumps(decision.as_json(), sort_keys=True) + "\n" for decision in gated.decisions), encoding="utf-8")
    if as_json:
        print_json(summary(sealed, gated))
    else:
        _print(name, seed, sealed, gated, limit)
    if not any(decision.admitted for decision in gated.decisions):
        raise typer.Exit(1)


def _drafts(source: WorldSource, world: World[Any], query: TaskQuery, settings: Settings, proposer: str | None) -> Sequence[BundleDraft]:
    """The tasks of the world's own source, or those that a proposer makes from the first few of them."""
    if proposer is None:
        return source.tasks(world, query, settings)
    given = tuple(source.tasks(world, replace(query, count=min(query.count, _GIVEN)), settings))
    return proposers.bind(proposer).call(ProposalContext(world, drafts=given), query.count, rng=Random(query.seed), ask=None)


def synthesized(
    ledger: LedgerHandle,
    source: WorldSource,
    world: World[Any],
    drafts: Sequence[BundleDraft],
    *,
    policy: str = DEFAULT,
    verifier: str | None = None,
    harness: Harness | None = None,
) -> tuple[int, Gated]:
    """How many bundles were new, and what became of all of them.

    Args:
        source: the kind of world, which knows its verifiers.
        world: where the tasks are done, open.
        drafts: the tasks.
        policy: severity policy.
        verifier: in place of the one that the drafts name, or of the source's own.
        harness: with which they are sealed; the tool loop with room for long tasks when None.

    Raises:
        SettingsError: no such verifier or policy, no drafts, or drafts that name different verifiers.
    """
    if not drafts:
        raise SettingsError(f"no task was proposed for world {source.name!r}")
    named = sorted({str(draft.spec.get("verifier", source.verifiers[0][0])) for draft in drafts})
    if verifier is None and len(named) > 1:
        raise SettingsError(f"the proposed tasks name the verifiers {', '.join(named)}; allowed: one at a time, with --verifier")
    name = named[0] if verifier is None else verifier
    kinds: dict[str, VerifierKind] = {"end_state": "state_diff", **dict(source.verifiers)}
    if name not in kinds and name not in named:
        raise SettingsError(f"world {source.name!r} has no verifier {name!r}; it has {', '.join(kinds)}")
    bound = verifiers.bind(name)
    gates = Gates(world, bound, tool_loop(calls_per_turn=32, calls=64) if harness is None else harness, load_policy(policy))
    bundles = [Bundle(draft, world.version, bound.ref.method_id, gates.harness.harness_id) for draft in drafts]
    planted = [name] if hasattr(verifiers[name], "planted_gap") else []
    register(ledger, world, [(bound, kinds.get(name, "program"))], gates.harness, planted=planted)
    new = seal(ledger, bundles)
    workers = workers_for(world, len(bundles))
    with bar() as shown:
        task = shown.add_task("gates", total=len(bundles))
        return new, gate(ledger, gates, bundles, workers=workers, progress=lambda done: shown.advance(task, done))


def summary(sealed: int, gated: Gated) -> dict[str, Any]:
    """Counts, reasons and every decision in short, as JSON."""
    decisions = gated.decisions
    return {
        "bundles": len(decisions), "sealed": sealed, "admitted": sum(item.admitted for item in decisions),
        "rejected": sum(not item.admitted for item in decisions), "decided": gated.new, "world_checks": gated.world.new,
        "world_id": gated.world.world_id, "environment_gate": {name: item.status for name, item in sorted(gated.world.results.items())},
        "rejected_by": gated.reasons, "splits": _splits(decisions),
        "decisions": [
            {
                "bundle_id": item.bundle.bundle_id, "name": item.bundle.draft.name, "split": item.bundle.draft.split,
                "admitted": item.admitted, "reasons": {name: item.results[name].reason for name in item.blocking},
            }
            for item in decisions
        ],
    }  # fmt: skip


def _splits(decisions: Sequence[Decision]) -> dict[str, str]:
    made, kept = Counter(item.bundle.draft.split for item in decisions), Counter(d.bundle.draft.split for d in decisions if d.admitted)
    return {split: f"{kept[split]}/{made[split]}" for split in SPLITS if made[split]}


def _print(name: str, seed: int, sealed: int, gated: Gated, limit: int) -> None:
    screen, decisions = console(), gated.decisions
    rejected = [item for item in decisions if not item.admitted]
    screen.print(cell(f"{len(decisions)} bundles for {name}, seed {seed}: {sealed} newly sealed"))
    passed = sum(item.status == "pass" for item in gated.world.results.values())
    exercise = gated.world.results["world.exercise"].measured
    screen.print(
        cell(
            f"environment gate of world {gated.world.world_id[:12]}: {'fails' if gated.world.blocking else 'passes'}, {passed} of"
            f" {len(gated.world.results)} checks, {exercise.get('rounds', 0)} rounds, pass rate {exercise.get('pass_rate', 0)},"
            f" {exercise.get('warning', 0)} warnings"
        )
    )
    kept = ", ".join(f"{split} {count}" for split, count in _splits(decisions).items())
    counts = f"admitted {len(decisions) - len(rejected)}, rejected {len(rejected)} (admitted of proposed: {kept})"
    screen.print(cell(f"{counts}; new decisions: {gated.new}"))
    if gated.reasons:
        screen.print(table(("rejected by", "bundles"), list(gated.reasons.items())))
    if rejected and limit:
        rows = [
            (item.bundle.draft.name, item.bundle.draft.split, reason, item.results[reason].reason)
            for item in rejected
            for reason in item.blocking
        ]
        screen.print(
            table(("bundle", "split", "check", "reason"), rows[:limit], title=f"first {min(limit, len(rows))} of {len(rows)} reasons")
        )
