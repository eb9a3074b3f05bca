"""Tasks in Gymnasium environments: one seed a task, with references that a search over copies of the environment found."""

from collections.abc import Iterator, Sequence
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError
from training.worlds.process_world import ProcessWorld
from training.worlds.source import TaskQuery

ACTIONS = {
    "FrozenLake-v1": ["left", "down", "right", "up"],
    "FrozenLake8x8-v1": ["left", "down", "right", "up"],
    "CliffWalking-v1": ["up", "right", "down", "left"],
    "CliffWalkingSlippery-v1": ["up", "right", "down", "left"],
    "Taxi-v4": ["south", "north", "east", "west", "pick the passenger up", "drop the passenger off"],
    "Blackjack-v1": ["stick", "hit"],
}
AT_LEAST = {
    "FrozenLake-v1": 1.0, "FrozenLake8x8-v1": 1.0, "CliffWalking-v1": -20.0, "CliffWalkingSlippery-v1": -60.0, "Taxi-v4": 1.0,
    "Blackjack-v1": 1.0,
}  # fmt: skip
OPTIONS = ("env_id", "kwargs", "max_steps", "at_least", "actions", "search", "module", "requirements", "split")
SEARCH = 20_000
TRIES = 20
MAX_STEPS = 200


def load_tasks(world: ProcessWorld, query: TaskQuery) -> list[BundleDraft]:
    """The first `count` seeds from `query.seed` on that have a solution and give a task unlike those before.

    Options: `env_id` (default FrozenLake-v1), `kwargs` of `gymnasium.make` (for FrozenLake also `map_size`, a random map of each seed),
    `max_steps`, `at_least` (the return that success needs), `actions` (their names), `search` (steps that the search for a reference may
    take), `split`.

    Raises:
        SettingsError: an unknown option, or no `at_least` for an environment whose registration names no threshold.
        BundleError: many seeds in a row have no solution or repeat a task.
    """
    unknown = sorted(query.options.keys() - set(OPTIONS))
    if unknown:
        raise SettingsError(f"world 'gymnasium' takes no option {unknown[0]!r}; allowed: {', '.join(OPTIONS)}")
    env_id = str(query.options.get("env_id", "FrozenLake-v1"))
    registered = world.ask("defaults", env_id=env_id)
    at_least = query.options.get("at_least", AT_LEAST.get(env_id, registered["reward_threshold"]))
    if not isinstance(at_least, int | float) or isinstance(at_least, bool):
        raise SettingsError(f"option at_least is {at_least!r}; {env_id} needs a number, the return that success takes")
    settled = {
        "env_id": env_id,
        "kwargs": dict(query.options.get("kwargs", {})),
        "max_steps": query.options.get("max_steps", registered["max_steps"] or MAX_STEPS),
        "actions": query.options.get("actions", ACTIONS.get(env_id)),
    }
    drafts: list[BundleDraft] = []
    texts: set[tuple[str, str]] = set()
    seed, vain = query.seed, 0
    while len(drafts) < query.count:
        task = {**settled, "seed": seed}
        found = world.ask("propose", task=task, seed=seed, at_least=at_least, limit=int(query.options.get("search", SEARCH)), limit_s=120.0)
        same = (found["opening"], str(found["right"]))
        if found["right"] and same not in texts:
            texts.add(same)
            drafts.append(_draft(task, found, float(at_least), query))
            vain = -1
        seed, vain = seed + 1, vain + 1
        if vain == TRIES:
            raise BundleError(
                f"{env_id}: the {TRIES} seeds up to {seed - 1} have no return of {at_least:g} or repeat a task; "
                f"{len(drafts)} tasks found, asked for {query.count}"
            )
    return drafts


def _draft(task: dict[str, Any], found: dict[str, Any], at_least: float, query: TaskQuery) -> BundleDraft:
    right = [_turn(actions) for actions in found["right"]]
    bad = [{"name": "ends_badly", "turns": [_turn(found["wrong"])], "breaks": ["reward"]}] if found["wrong"] else []
    reference: dict[str, Any] = {
        "turns": [right[0]],
        "equivalent": [{"name": "another_way", "turns": [turn]} for turn in right[1:]],
        "wrong": [*bad, {"name": "stops_early", "turns": [right[0][:-1]], "breaks": ["terminal"]}],
    }
    return BundleDraft(
        name=f"{task['env_id'].lower()}-{task['seed']}",
        world="gymnasium",
        request={"system": None, "turns": [[{"role": "user", "content": "\n\n".join(_text(task, found, at_least))}]]},
        initial_state=task,
        spec={"at_least": at_least, "ends": "terminated"},
        reference=reference,
        split=query.options.get("split", "train"),
        provenance={
            "proposer": "gymnasium", "seed": task["seed"], "source": task["env_id"], "licence": "MIT",
            "family": task["env_id"], "wording": "gymnasium/1", "names": [f"{task['env_id']}/{task['seed']}"], "searched": found["tried"],
        },
    )  # fmt: skip


def _text(task: dict[str, Any], found: dict[str, Any], at_least: float) -> Iterator[str]:
    yield f"You act in the environment {task['env_id']}. {found['rules']}"
    if task["actions"]:
        yield "Actions: " + ", ".join(f"{n} is {name}" for n, name in enumerate(task["actions"])) + "."
    yield (
        "Call the tool step, one action a call, until the episode is over, then answer DONE. "
        f"The sum of the rewards must be at least {at_least:g}; there are at most {task['max_steps']} steps."
    )
    yield f"You see this ([x] stands on a coloured ground, (x) is blue, <x> is magenta):\n{found['opening']}"


def _turn(actions: Sequence[int]) -> list[dict[str, Any]]:
    return [{"name": "step", "arguments": {"action": action}} for action in actions]
