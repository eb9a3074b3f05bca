"""Tasks in an OpenEnv environment: one seed a task, with the request, the threshold and the references that the options give."""

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError
from training.worlds import ToolCall
from training.worlds.process_world import ProcessWorld
from training.worlds.source import TaskQuery

OPENING = ("base_url", "server", "path", "requirements")
OPTIONS = (*OPENING, "prompt", "at_least", "ends", "sparse", "max_steps", "reset", "references", "split", "licence")
MAX_STEPS = 50


def load_tasks(world: ProcessWorld, query: TaskQuery, defaults: Mapping[str, Any]) -> list[BundleDraft]:
    """One task for each of `count` seeds from `query.seed` on; OpenEnv's servers have no common form of tasks to read instead.

    Options: `prompt` (the request's text, to which the first observation is added), `at_least` (the return that success takes), `ends`
    (`terminated`, `any`, or `none` where the environment never ends), `sparse` (rewards before the last may be missing), `max_steps`,
    `reset` (further arguments of the environment's reset), `references` (seed as text to a list of actions), `split`, `licence`.

    Args:
        defaults: options that count where the query has none.
    Raises:
        SettingsError: an unknown option, or no prompt or threshold.
        BundleError: a reference does not reach the threshold.
    """
    options = {**defaults, **query.options}
    unknown = sorted(options.keys() - set(OPTIONS))
    if unknown:
        raise SettingsError(f"world 'openenv' takes no option {unknown[0]!r}; allowed: {', '.join(OPTIONS)}")
    at_least, prompt = options.get("at_least"), options.get("prompt")
    if isinstance(at_least, bool) or not isinstance(at_least, int | float) or not isinstance(prompt, str):
        raise SettingsError(
            f"world 'openenv' needs the options prompt (a text, seen {prompt!r}) and at_least (a number, seen {at_least!r})"
        )
    name = str(world.ask("about")["metadata"].get("name", "openenv"))
    return [_draft(world, (name, seed), options, float(at_least)) for seed in range(query.seed, query.seed + query.count)]


def _draft(world: ProcessWorld, place: tuple[str, int], options: Mapping[str, Any], at_least: float) -> BundleDraft:
    name, seed = place
    task = {"seed": seed, "max_steps": options.get("max_steps", MAX_STEPS), "reset": options.get("reset", {})}
    _, opening = world.begin(task, seed=seed)
    actions = options.get("references", {}).get(str(seed))
    if actions is not None and _reached(world, task, actions) < at_least:
        raise BundleError(
            f"the reference of seed {seed} in {name} has a return of {_reached(world, task, actions):g}; needed: {at_least:g}"
        )
    text = (
        f"{options['prompt']}\n\nCall the tool step, one action a call, until the episode is over or nothing is left to do, then answer "
        f"DONE. There are at most {task['max_steps']} steps. The first observation is:\n{opening.content}"
    )
    ends = options.get("ends", "terminated")
    return BundleDraft(
        name=f"openenv-{name}-{seed}",
        world="openenv",
        request={"system": None, "turns": [[{"role": "user", "content": text}]]},
        initial_state=task,
        spec={"at_least": at_least, "ends": None if ends == "none" else ends, "sparse": bool(options.get("sparse", False))},
        reference=None if actions is None else {"turns": [_turn(actions)], "wrong": [_early(actions)]},
        split=options.get("split", "train"),
        provenance={
            "proposer": "openenv", "seed": seed, "source": name, "licence": options.get("licence", "unknown"), "family": name,
            "wording": "openenv/1", "names": [f"{name}/{seed}"],
        },
    )  # fmt: skip


def _reached(world: ProcessWorld, task: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]) -> float:
    state, _ = world.begin(dict(task), seed=task["seed"])
    for action in actions:
        state, _ = world.call(state, ToolCall("step", action))
    rewards = world.view(state)["episode"]["rewards"]
    return float(sum(reward for reward in rewards if isinstance(reward, int | float)))


def _turn(actions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": "step", "arguments": dict(action)} for action in actions]


def _early(actions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"name": "stops_early", "turns": [_turn(actions[:-1])], "breaks": ["reward"]}
