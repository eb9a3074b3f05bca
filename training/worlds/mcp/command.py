"""`tally mcp-serve`: a world's tasks over MCP, so that any agent can act in them. Serves stdio or HTTP until it is told to stop."""

import json
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from ledger.errors import SettingsError, TallyError
from ledger.settings import Settings
from training.verifiers import verifiers
from training.worlds.mcp.serving import Front, Sessions, Transport
from training.worlds.mcp.world import REQUIREMENTS
from training.worlds.package_venv import package_venv
from training.worlds.source import TaskQuery, source_of


def main() -> None:
    """Run the command."""
    typer.run(mcp_serve)


def mcp_serve(
    *,
    world: Annotated[str, typer.Option(help="a kind of world")] = "sqlite",
    option: Annotated[list[str], typer.Option(help="name=value, an option of the world, such as name=shop")] = [],  # noqa: B006
    count: Annotated[int, typer.Option(help="serve the first so many tasks", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="for generated tasks")] = 0,
    http: Annotated[int | None, typer.Option(help="port of streamable HTTP (0 takes a free one) instead of stdio")] = None,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    snapshots: Annotated[bool, typer.Option(help="offer tally_snapshot and tally_restore; for our own client, not for an agent")] = False,
    journal: Annotated[Path | None, typer.Option(help="append every call as a line of JSON to this file")] = None,
) -> None:
    """Serve a world over MCP: stdio, or http://HOST:PORT/<task>/<session>/mcp. At the end each session's verdict goes to standard error."""
    signal.signal(signal.SIGTERM, lambda *_: _stop())
    settings = Settings()
    transport: Transport = "stdio" if http is None else "http"
    try:
        with ExitStack() as stack:
            source, options = source_of(world), dict(map(_option, option))
            opened = source.open(settings, {name: value for name, value in options.items() if name in source.opening})
            stack.callback(getattr(opened, "close", lambda: None))
            drafts = {draft.name: draft for draft in source.tasks(opened, TaskQuery(count, seed, options), settings)}
            note = _writer(None if journal is None else stack.enter_context(journal.open("a", encoding="utf-8")))
            sessions = Sessions(opened, drafts, snapshots=snapshots, journal=note)
            python = package_venv("mcp", REQUIREMENTS, settings.data_dir / "venvs").python
            front = Front(python, transport, name=f"tallystick-{world}", host=host, port=http or 0)
            stack.callback(front.stop)
            with suppress(KeyboardInterrupt):
                front.serve(
                    sessions,
                    listening=lambda port: _say(f"tasks: {', '.join(drafts)}\nserving at http://{host}:{port}/<task>/<session>/mcp"),
                )
            _report(sessions, source.verifiers[0][0])
    except TallyError as error:
        _say(f"{type(error).__name__}: {error}")
        raise typer.Exit(2) from error


def _say(text: str) -> None:
    """Standard output belongs to the protocol."""
    typer.echo(text, err=True)


def _writer(lines: TextIO | None) -> Callable[[Mapping[str, Any]], None]:
    def note(entry: Mapping[str, Any]) -> None:
        if lines is not None:
            print(json.dumps(entry), file=lines, flush=True)

    return note


def _report(sessions: Sessions, verifier: str) -> None:
    judge = verifiers[verifier]
    for task, name in sessions.open:
        session, verdict = sessions.session(task, name), sessions.verdict(task, name, judge)
        said = {True: "passed", False: "failed", None: "undecided"}[verdict.passed]
        broken = [condition.name for condition in verdict.conditions if condition.status != "passed"]
        state = sessions.snapshot(task, name).snapshot_id[:12]
        told = f"{task} {name}: {len(session.trace)} calls, state {state}, {verifier} {said}"
        _say(told + (f" ({', '.join(broken)})" if broken else ""))


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SettingsError(f"option {text!r}; allowed: name=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _stop() -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
