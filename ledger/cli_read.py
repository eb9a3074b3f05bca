"""Commands that read: events, rollouts, rewards, disagreements, outcomes, trace. Writes to the terminal."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ledger import lineage, queries
from ledger.cli_settings import open_asked
from ledger.cli_trace import print_trace, trace_json
from ledger.decoders import installed_decoder
from ledger.errors import UnknownEventKind, UnknownId
from ledger.outcome import OUTCOMES
from ledger.queries import Filter
from ledger.terminal import console, plain, print_json, table
from ledger.upcast import CLASSES

Limit = Annotated[int, typer.Option(min=1, max=100_000, help="Most lines to show.")]
Offset = Annotated[int, typer.Option(min=0, help="Lines to pass over first.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, complete.")]
Outcome = Annotated[str | None, typer.Option(help=f"One of {', '.join(OUTCOMES)}.")]
Policy = Annotated[str | None, typer.Option(help="Name of a policy.")]
World = Annotated[str | None, typer.Option(help="Name of a world.")]
Experiment = Annotated[str | None, typer.Option(help="Id of an experiment.")]


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    for command in (events, rollouts, rewards, disagreements, outcomes, trace):
        app.command()(command)


def events(
    ctx: typer.Context,
    *,
    kind: Annotated[list[str] | None, typer.Option(help="Kind of event, such as ModelCalled; may be repeated.")] = None,
    since: Annotated[int | None, typer.Option(min=0, help="Position after which to begin; without it the newest are shown.")] = None,
    stream: Annotated[str | None, typer.Option(help="One stream, such as rollout-<id>.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List ordered events."""
    for name in kind or []:
        if name not in CLASSES:
            raise UnknownEventKind(f"event kind {name!r} is not known to this release; it knows {', '.join(sorted(CLASSES))}")
    with open_asked(ctx) as ledger:
        ledger.barrier()
        found = queries.events(ledger, since=since or 0, kinds=kind or None, stream=stream, limit=limit, newest=since is None)
    found = found if since is not None else found[::-1]
    if as_json:
        _print_lines(found)
        return
    rows = [[e.position, e.occurred_at.strftime("%Y-%m-%d %H:%M:%S"), e.kind, e.stream, plain(e.body, limit=90)] for e in found]
    console().print(table(["position", "occurred (UTC)", "kind", "stream", "body"], rows))


def rollouts(
    ctx: typer.Context,
    *,
    outcome: Outcome = None,
    policy: Policy = None,
    world: World = None,
    experiment: Experiment = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List rollouts, newest first."""
    with open_asked(ctx) as ledger:
        queries.fresh(ledger)
        page = queries.rollouts(ledger, _filter(outcome, policy, world, experiment), limit=limit, offset=offset)
    if as_json:
        _print_lines(page.lines)
        return
    rows = [
        [r.rollout_id, r.bundle, r.world, r.policy, r.slot, r.attempt, r.outcome, r.ended_by, r.model_calls, r.tool_calls,
         r.sampled_tokens, r.reward]
        for r in page.lines
    ]  # fmt: skip
    columns = ["rollout", "task", "world", "policy", "slot", "attempt", "outcome", "ended by", "calls", "tools", "tokens", "reward"]
    console().print(table(columns, rows))
    _print_total(len(page.lines), page.total, "rollouts")


def rewards(
    ctx: typer.Context,
    *,
    outcome: Outcome = None,
    policy: Policy = None,
    world: World = None,
    experiment: Experiment = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List rewards, newest first; a missing one is shown as missing, never as zero."""
    with open_asked(ctx) as ledger:
        queries.fresh(ledger)
        page = queries.rewards(ledger, _filter(outcome, policy, world, experiment), limit=limit, offset=offset)
    if as_json:
        _print_lines(page.lines)
        return
    rows = [
        [w.reward_id, "missing" if w.value is None else f"{w.value:g}", plain(w.reason, limit=40), w.rollout.bundle, w.rollout.policy,
         w.rollout.outcome, w.rollout.ended_by]
        for w in page.lines
    ]  # fmt: skip
    console().print(table(["reward", "value", "reason", "task", "policy", "outcome", "ended by"], rows))
    _print_total(len(page.lines), page.total, "rewards")


def disagreements(
    ctx: typer.Context,
    *,
    reviewed: Annotated[bool | None, typer.Option("--reviewed/--open", help="Only those a person has settled, or has not.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List rollouts whose verifiers disagree."""
    with open_asked(ctx) as ledger:
        queries.fresh(ledger)
        page = queries.disagreements(ledger, reviewed=reviewed, limit=limit)
    if as_json:
        _print_lines(page.lines)
        return
    rows = [
        [d.rollout.rollout_id, d.rollout.bundle, d.rollout.policy,
         ", ".join(f"{v.verifier or (v.verifier_id or '')[:12]} {_says(v.passed)}" for v in d.verdicts),
         ", ".join(_says(review.passed) for review in d.reviews) or "open"]
        for d in page.lines
    ]  # fmt: skip
    console().print(table(["rollout", "task", "policy", "verdicts", "review"], rows))
    _print_total(len(page.lines), page.total, "disagreements")


def outcomes(
    ctx: typer.Context,
    *,
    by: Annotated[str, typer.Option(help="Keys to group by, separated by commas.")] = "world,policy",
    experiment: Experiment = None,
    as_json: AsJson = False,
) -> None:
    """Count rollouts by outcome, with the denominators."""
    keys = [key.strip() for key in by.split(",") if key.strip()]
    with open_asked(ctx) as ledger:
        queries.fresh(ledger)
        found = queries.outcomes(ledger, Filter(experiment_id=experiment), by=keys)
    if as_json:
        _print_lines([{**dataclasses.asdict(s), "judged": s.judged, "faults": s.faults, "success_rate": s.success_rate,
                       "success_rate_of_all": s.success_rate_of_all} for s in found])  # fmt: skip
        return
    shown = [name for name in OUTCOMES if any(s.counts[name] for s in found)]
    rows = [
        [
            *s.key.values(), s.rollouts, *(s.counts[name] for name in shown), s.superseded,
            "-" if s.success_rate is None else f"{s.counts['succeeded']}/{s.judged} = {s.success_rate:.3f}",
            "-" if s.success_rate_of_all is None else f"{s.counts['succeeded']}/{s.rollouts} = {s.success_rate_of_all:.3f}",
            "-" if s.mean_reward is None else f"{s.mean_reward:.3f} of {s.rewards}",
        ]
        for s in found
    ]  # fmt: skip
    columns = [*keys, "rollouts", *(name.replace("_", " ") for name in shown), "superseded", "success of judged", "of all", "mean reward"]
    console().print(table(columns, rows))


def trace(
    ctx: typer.Context,
    ident: Annotated[str, typer.Argument(metavar="ID", help="Id of a reward or a rollout, or a beginning of it that no other shares.")],
    as_json: AsJson = False,
) -> None:
    """Show the whole chain from a reward to the raw tokens, each part checked; exit code 1 when a part does not fit."""
    with open_asked(ctx) as ledger:
        noun, full = queries.resolve_any(ledger, ident)
        found = lineage.trace(ledger, full) if noun == "reward" else lineage.trace_rollout(ledger, full)
    decode = installed_decoder()
    if as_json:
        print_json(trace_json(found, decode))
    else:
        print_trace(console(), found, decode)
    if not found.intact:
        raise typer.Exit(1)


def _filter(outcome: str | None, policy: str | None, world: str | None, experiment: str | None) -> Filter:
    if outcome is not None and outcome not in OUTCOMES:
        raise UnknownId(f"no outcome {outcome!r}; there are {', '.join(OUTCOMES)}")
    return Filter(outcome=outcome, policy=policy, world=world, experiment_id=experiment)


def _print_lines(lines: Sequence[Any]) -> None:
    for line in lines:
        print_json(line if isinstance(line, dict) else dataclasses.asdict(line))


def _print_total(shown: int, total: int, what: str) -> None:
    console().print(f"{shown} of {total} {what}", style="dim")


def _says(passed: bool | None) -> str:
    return {True: "passed", False: "failed", None: "unclear"}[passed]
