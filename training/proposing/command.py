"""The command `tally propose`: drafts of tasks by one proposer, shown or written to a file. Runs worlds, may write the ledger."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Annotated, Any, get_args

import typer

from ledger.canonical import parse
from ledger.cli_settings import asked_settings, open_asked
from ledger.errors import CanonicalError, SettingsError
from ledger.terminal import cell, console, print_json, table
from training.proposers import AskModel, Document, ProposalContext, Proposed, proposers
from training.proposing.class_folder import PREFIX, write_folder
from training.proposing.recorded import Asking, recorded, replayed
from training.rollout.gateway_upstream import Upstream, UpstreamKind
from training.worlds.source import TaskQuery, source_of

_SHOWN = 90


def propose(
    ctx: typer.Context,
    proposer: Annotated[str, typer.Argument(help="a file of training/proposers")],
    *,
    world: Annotated[str, typer.Option(help="a world by its folder's name")] = "ticket_desk",
    count: Annotated[int, typer.Option("-n", min=0, help="how many drafts")] = 10,
    seed: Annotated[int, typer.Option(help="of everything that is drawn")] = 0,
    tasks: Annotated[int, typer.Option(min=1, help="how many of the world's own tasks to start from")] = 8,
    options: Annotated[str, typer.Option(help="JSON: options of the world's source, such as services")] = "{}",
    params: Annotated[str, typer.Option(help="JSON: the proposer's own parameters")] = "{}",
    document: Annotated[list[Path] | None, typer.Option(help="a text or code file that seeds topics; may be repeated")] = None,
    counterexamples: Annotated[Path | None, typer.Option(help="a JSON list of wrongly judged solutions")] = None,
    model: Annotated[str | None, typer.Option(help="model to ask, at --url")] = None,
    url: Annotated[str | None, typer.Option(help="its OpenAI-compatible address, up to /v1")] = None,
    kind: Annotated[str, typer.Option(help="of the server: openai or scripted")] = "openai",
    key_env: Annotated[str | None, typer.Option(help="environment variable that holds the server's key")] = None,
    run: Annotated[str, typer.Option(help="what the model's calls belong to")] = "proposing",
    replay: Annotated[bool, typer.Option("--replay", help="answer from the calls that the run recorded; nothing is asked")] = False,
    out: Annotated[Path | None, typer.Option(help="write the drafts here, one JSON object a line")] = None,
    folder: Annotated[Path | None, typer.Option(help="write proposed class worlds and their tasks here")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:  # fmt: skip
    """Propose tasks for a world, with references that were acted out; what did not hold is counted by reason."""
    settings = asked_settings(ctx)
    source = source_of(world)
    chosen = json_object(options, "options")
    opened = source.open(settings, {name: chosen[name] for name in source.opening if name in chosen})
    bound = proposers.bind(proposer, **json_object(params, "params"))
    try:
        drafts = tuple(source.tasks(opened, TaskQuery(tasks, seed, chosen), settings))
        documents = tuple(Document(path.name, _read(path)) for path in document or [])
        given = () if counterexamples is None else tuple(_list(counterexamples))
        context = ProposalContext(opened, documents, drafts, given)
        with _asking(ctx, Asking(run, model or "", {}, seed), (url, kind, key_env), replay=replay) as ask:
            proposed = bound.call(context, count, rng=Random(seed), ask=ask)
    finally:
        getattr(opened, "close", lambda: None)()
    if out is not None:
        out.write_text(
            "".join(json.dumps(asdict(draft), ensure_ascii=False, sort_keys=True) + "\n" for draft in proposed), encoding="utf-8"
        )
    if folder is not None:
        write_folder(proposed, folder)
    if as_json:
        print_json(
            {"drafts": [asdict(draft) for draft in proposed], "rejected": dict(proposed.rejected), "artifacts": dict(proposed.artifacts)}
        )
    else:
        _print(proposed, count)


@contextmanager
def _asking(ctx: typer.Context, asking: Asking, server: tuple[str | None, str, str | None], *, replay: bool) -> Iterator[AskModel | None]:
    """The model client that was asked for, or None; only then is the ledger opened.

    Args:
        server: address, kind, and the variable with the key.
    """
    url, kind, key_env = server
    if not asking.model:
        yield None
        return
    with open_asked(ctx) as ledger:
        if replay:
            yield replayed(ledger, asking)
            return
        kinds = [known for known in get_args(UpstreamKind) if known == kind]
        if url is None or not kinds or kind == "vllm":
            raise SettingsError(f"--url is {url!r} and --kind {kind!r}; allowed: an address up to /v1, and openai or scripted")
        if key_env is not None and key_env not in os.environ:
            raise SettingsError(f"environment variable {key_env!r} for the server's key is not set")
        upstream = Upstream(url, asking.model, kinds[0], api_key=None if key_env is None else os.environ[key_env])
        with recorded(ledger, upstream, asking) as ask:
            yield ask


def _print(proposed: Proposed, count: int) -> None:
    screen = console()
    screen.print(cell(f"{len(proposed)} of {count} drafts"))
    rows = []
    for draft in proposed:
        reference = draft.reference or {}
        calls = sum(len(turn) for turn in reference.get("turns", ()))
        text = " | ".join(message["content"] for turn in draft.request["turns"] for message in turn).replace("\n", " ")
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
        rows.append((draft.name, str(calls), str(len(reference.get("equivalent", ()))), str(len(reference.get("wrong", ()))), shown))
    if rows:
        screen.print(table(("draft", "calls", "equivalent", "wrong", "request"), rows))
    if proposed.rejected:
        screen.print(table(("dropped for", "times"), [(reason, str(times)) for reason, times in sorted(proposed.rejected.items())]))
    for name, value in proposed.artifacts.items():
        _print_artifact(name, value)


def _print_artifact(name: str, value: Any) -> None:
    screen = console()
    if name == "balance":
        kept = [(row["axis"], row["value"], str(row["count"]), f"{row['share']:.2f}", f"{row['aimed']:.2f}") for row in value]
        screen.print(table(("axis", "value", "drafts", "share", "aimed at"), kept))
    elif name.startswith("tool_graph/"):
        edges = [(e["source"], e["output"], e["target"], e["parameter"], f"{e['accepted']}/{e['tried']}") for e in value["edges"]]
        screen.print(table(("tool", "says", "feeds", "argument", "accepted"), edges, title=name))
    elif name.startswith(PREFIX):
        screen.print(cell(f"class world {name.removeprefix(PREFIX)}: {len(value.splitlines())} lines"))


def json_object(text: str, name: str) -> dict[str, Any]:
    """The JSON object that option `name` of a command was given as.

    Raises:
        SettingsError: it is none.
    """
    try:
        value = parse(text)
    except CanonicalError as error:
        raise SettingsError(f"--{name}: {error}") from error
    if not isinstance(value, dict):
        raise SettingsError(f"--{name} is {text!r}; allowed: a JSON object")
    return value


def _list(path: Path) -> list[Any]:
    try:
        value = parse(_read(path))
    except CanonicalError as error:
        raise SettingsError(f"{path}: {error}") from error
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise SettingsError(f"{path} must hold a list of JSON objects")
    return value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
