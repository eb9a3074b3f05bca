"""Tasks over an MCP server from a TOML file, their end states made by replaying the references. Reads files."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import BundleError
from training.worlds import ToolCall
from training.worlds.mcp.world import McpWorld

Calls = list[dict[str, Any]]


class _Task(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    task: str = ""
    family: str = ""
    split: Literal["train", "validation", "test"] = "train"
    turns: tuple[str, ...] = Field(min_length=1)
    setup: Calls = Field(default_factory=list)
    calls: list[Calls]
    equivalent: list[dict[str, Any]] = Field(default_factory=list)
    wrong: list[dict[str, Any]] = Field(default_factory=list)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    system: str
    licence: str
    probes: Calls = Field(default_factory=list)
    tasks: tuple[_Task, ...] = Field(min_length=1)


def load_tasks(world: McpWorld, path: Path, *, count: int) -> list[BundleDraft]:
    """The first `count` tasks of the file.

    A file holds `system`, `licence`, `probes` (calls that show the state and change nothing) and `tasks`, each with `name`, `turns`,
    `calls` (the reference, one list for each turn), and where needed `task` (for `{task}` in the server's address), `setup` (calls that
    make the initial state), `family`, `split`, `equivalent` and `wrong`.

    Raises:
        BundleError: the file cannot be read or does not fit, has fewer tasks, or a reference call is refused.
    """
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BundleError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BundleError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; seen {first.get('input')!r}") from error
    if count > len(file.tasks):
        raise BundleError(f"{path} has {len(file.tasks)} tasks; asked for {count}")
    return [_draft(world, file, task, path.stem) for task in file.tasks[:count]]


def _draft(world: McpWorld, file: _File, task: _Task, source: str) -> BundleDraft:
    initial = {"task": task.task, "setup": task.setup, "probes": file.probes}
    turns = [[{"role": "user", "content": text.strip()}] for text in task.turns]
    return BundleDraft(
        name=task.name,
        world=world.name,
        request={"system": file.system, "turns": turns},
        initial_state=initial,
        reference={
            "turns": task.calls, "end_state": end_state(world, initial, task.calls), "equivalent": task.equivalent, "wrong": task.wrong,
        },
        split=task.split,
        provenance={
            "proposer": "hand", "seed": None, "source": source, "licence": file.licence, "family": task.family or task.name,
            "wording": digest({"system": file.system, "turns": turns})[:16], "names": digest(task.setup, allow_nul=True)[:16],
        },
    )  # fmt: skip


def end_state(world: McpWorld, initial: Mapping[str, Any], turns: Sequence[Sequence[Mapping[str, Any]]]) -> Any:
    """The material state after the calls of all turns.

    Raises:
        BundleError: a call is refused.
    """
    state, _ = world.begin(dict(initial))
    for call in (call for calls in turns for call in calls):
        state, observation = world.call(state, ToolCall(call["name"], call["arguments"]))
        if observation.error_class is not None:
            raise BundleError(f"reference call {call['name']!r} with {call['arguments']} is refused: {observation.content}")
    return world.material(world.view(state))
