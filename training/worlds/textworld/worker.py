"""Makes and plays TextWorld games for the world: one command a step, the game's own score and end.

This file is loaded by `worker_loop`; it imports nothing of this project, and TextWorld only when it is started.
"""

import hashlib
import importlib
import json
import os
import re
import tempfile
from typing import Any

INFOS = ("admissible_commands", "won", "lost", "score", "max_score", "description", "inventory", "facts", "moves")
LONGEST = 100
# They speak to the interpreter, not to the game: it would ask back, end, or leave the state that TextWorld tracks.
META = {"quit", "q", "restart", "restore", "save", "undo", "oops", "script", "transcript", "recording", "replay", "verify", "again", "g"}
PROMPT = re.compile(r"\n>[^\n]*\Z")


class Adapter:
    """One game at a time; `options` name the folder `games` where compiled ones are kept."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.textworld = importlib.import_module("textworld")
        self.generator = importlib.import_module("textworld.generator")
        self.folder = options["games"]
        self.env: Any = None
        self.state: Any = None
        self.task: dict[str, Any] = {}
        self.steps = 0
        self.rewards: list[float] = []

    def tools(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        """One tool that takes a command in words."""
        text = {"type": "string", "minLength": 1, "maxLength": LONGEST, "description": "such as: open the chest"}
        parameters = {"type": "object", "properties": {"text": text}, "required": ["text"], "additionalProperties": False}
        function = {"name": "command", "description": "Give the game one command and read what happens.", "parameters": parameters}
        return [{"type": "function", "function": function}]

    def reset(self, task: dict[str, Any], seed: int) -> str:
        """The game's opening; a game file that is not the task's is an error."""
        path = self._game_file({**task, "seed": seed})
        found = _digest(path)
        if task.get("game") not in (None, found):
            raise ValueError(f"the game made of seed {seed} has digest {found}; the task's is {task['game']}")
        infos = self.textworld.EnvInfos(**dict.fromkeys(INFOS, True))
        if self.env is not None:
            self.env.close()
        self.env = self.textworld.start(path, request_infos=infos)
        self.state, self.task, self.steps, self.rewards = self.env.reset(), task, 0, []
        return self._shown(_opening(self.state.feedback, self.state.objective))

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str | None]:
        """One command, or why it was refused; a refused one does not reach the game."""
        text = arguments.get("text")
        if name != "command":
            return f"no tool {name!r}; there is command", "unknown_tool"
        if self._over():
            return "the game is over", "tool_error"
        if set(arguments) != {"text"} or not isinstance(text, str) or not 0 < len(text) <= LONGEST or not _is_plain(text):
            return f"arguments must be {{'text': one line of at most {LONGEST} ASCII characters}}", "invalid_arguments"
        said = [part.split()[0].casefold() for part in re.split(r"[.,;]|\bthen\b", text, flags=re.IGNORECASE) if part.split()]
        if META & set(said):
            return f"commands to the interpreter are not allowed: {', '.join(sorted(META & set(said)))}", "invalid_arguments"
        before = self.state.score or 0
        self.state, _, _ = self.env.step(text)
        self.steps += 1
        self.rewards.append(float((self.state.score or 0) - before))
        return self._shown(PROMPT.sub("", self.state.feedback).strip()), None

    def view(self) -> Any:
        """The facts that hold in the game, what is carried, and the episode so far."""
        won, lost = bool(self.state.won), bool(self.state.lost)
        facts = [f"{fact.name}({', '.join(f'{item.name}: {item.type}' for item in fact.arguments)})" for fact in self.state.facts]
        return {
            "environment": {"facts": sorted(facts), "inventory": (self.state.inventory or "").strip()},
            "episode": {
                "terminated": won or lost,
                "truncated": not (won or lost) and self.steps >= self.task["max_steps"],
                "steps": self.steps,
                "rewards": self.rewards,
                "won": won,
                "lost": lost,
                "score": self.state.score,
                "max_score": self.state.max_score,
                "moves": self.state.moves,
            },
        }

    def propose(self, task: dict[str, Any], seed: int) -> dict[str, Any]:
        """What a task needs to be written: the opening, the game's digest and its walkthrough; all of them played here."""
        opening = self.reset(task, seed)
        game, most = _digest(self._game_file({**task, "seed": seed})), self.state.max_score
        with open(self._game_file({**task, "seed": seed})[: -len("z8")] + "json", encoding="utf-8") as file:
            walkthrough = json.load(file)["metadata"]["walkthrough"]
        detour = [part for command in walkthrough for part in ("inventory", command)]
        right = [commands for commands in (walkthrough, detour) if self._played(task, seed, commands)["won"]]
        return {"opening": opening, "game": game, "max_score": most, "right": right}

    def _played(self, task: dict[str, Any], seed: int, commands: list[str]) -> dict[str, Any]:
        self.reset(task, seed)
        for command in commands:
            self.call("command", {"text": command})
        episode: dict[str, Any] = self.view()["episode"]
        return episode

    def _game_file(self, task: dict[str, Any]) -> str:
        """The compiled game of a task's settings and seed, made when it is not there; the same settings give the same bytes."""
        settings = {key: task[key] for key in ("rooms", "objects", "quest_length", "quest_breadth", "seed")}
        key = hashlib.sha256(json.dumps([self.textworld.__version__, settings], sort_keys=True).encode()).hexdigest()[:24]
        path = os.path.join(self.folder, f"{key}.z8")
        if not os.path.exists(path):
            options = self.textworld.GameOptions()
            options.nb_rooms, options.nb_objects = settings["rooms"], settings["objects"]
            options.quest_length, options.quest_breadth = settings["quest_length"], settings["quest_breadth"]
            options.seeds = settings["seed"]
            os.makedirs(self.folder, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder) as partial:
                options.path = os.path.join(partial, f"{key}.z8")
                self.generator.compile_game(self.generator.make_game(options), options)
                for suffix in (".json", ".ni", ".z8"):
                    os.replace(os.path.join(partial, f"{key}{suffix}"), os.path.join(self.folder, f"{key}{suffix}"))
        return path

    def _over(self) -> bool:
        return bool(self.state.won or self.state.lost) or self.steps >= self.task["max_steps"]

    def _shown(self, text: str) -> str:
        if self._over():
            return f"{text}\n\nThe game is over{': you won' if self.state.won else ''}."
        return f"{text}\n\nCommands: {'; '.join(self.state.admissible_commands)}" if self.task["admissible"] else text


def _opening(feedback: str, objective: str) -> str:
    """The first words without the banner above them."""
    start = feedback.find(objective[:20]) if objective else -1
    return PROMPT.sub("", feedback[max(start, 0) :]).strip()


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and bool(text.strip())


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
