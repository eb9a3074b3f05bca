"""Tasks in TextWorld: a game made from a seed, its walkthrough as the reference."""

from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError
from training.worlds.process_world import ProcessWorld
from training.worlds.source import TaskQuery

NUMBERS = {"rooms": 3, "objects": 4, "quest_length": 3, "quest_breadth": 1, "max_steps": 50}
OPTIONS = (*NUMBERS, "admissible", "split")
MAKE_S = 180.0


def load_tasks(world: ProcessWorld, query: TaskQuery) -> list[BundleDraft]:
    """The games of the first `count` seeds from `query.seed` on.

    Options: `rooms`, `objects`, `quest_length`, `quest_breadth` (of TextWorld's generator), `max_steps`, `admissible` (whether observations
    list the commands that the game takes; default true), `split`.

    Raises:
        SettingsError: an unknown option or a number below 1.
        BundleError: a game cannot be won by its own walkthrough.
    """
    unknown = sorted(query.options.keys() - set(OPTIONS))
    if unknown:
        raise SettingsError(f"world 'textworld' takes no option {unknown[0]!r}; allowed: {', '.join(OPTIONS)}")
    numbers = {name: query.options.get(name, default) for name, default in NUMBERS.items()}
    for name, value in numbers.items():
        if type(value) is not int or value < 1:
            raise SettingsError(f"option {name} of world 'textworld' is {value!r}; allowed: whole numbers from 1 on")
    settled = {**numbers, "admissible": bool(query.options.get("admissible", True))}
    return [_draft(world, {**settled, "seed": seed}, query) for seed in range(query.seed, query.seed + query.count)]


def _draft(world: ProcessWorld, task: dict[str, Any], query: TaskQuery) -> BundleDraft:
    found = world.ask("propose", task=task, seed=task["seed"], limit_s=MAKE_S)
    if not found["right"]:
        raise BundleError(f"the TextWorld game of {task} is not won by its own walkthrough")
    right = [_turn(commands) for commands in found["right"]]
    text = (
        f"{found['opening']}\n\nCall the tool command, one command a call, until the game is over, then answer DONE. "
        f"There are at most {task['max_steps']} commands."
    )
    breaks = ["terminal", "goal"]
    return BundleDraft(
        name=f"textworld-{task['rooms']}-{task['objects']}-{task['quest_length']}-{task['seed']}",
        world="textworld",
        request={"system": None, "turns": [[{"role": "user", "content": text}]]},
        initial_state={**task, "game": found["game"]},
        spec={"at_least": found["max_score"], "ends": "terminated", "goal": "won"},
        reference={
            "turns": [right[0]],
            "equivalent": [{"name": "looks_at_what_it_carries", "turns": [turn]} for turn in right[1:]],
            "wrong": [{"name": "stops_early", "turns": [right[0][:-1]], "breaks": breaks}],
        },
        split=query.options.get("split", "train"),
        provenance={
            "proposer": "textworld", "seed": task["seed"], "source": "TextWorld's game generator", "licence": "MIT",
            "family": f"quest of {task['quest_length']}", "wording": "textworld/1", "names": [found["game"]],
        },
    )  # fmt: skip


def _turn(commands: list[str]) -> list[dict[str, Any]]:
    return [{"name": "command", "arguments": {"text": command}} for command in commands]
