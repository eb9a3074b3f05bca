"""Runs Gymnasium environments for the world: observations as text, discrete and text actions, references found by search.

This file is loaded by `worker_loop`; it imports nothing of this project, and Gymnasium only when it is started.
"""

import hashlib
import importlib
import inspect
import json
import pickle
import re
from collections import deque
from typing import Any

SGR = re.compile("\x1b\\[([0-9;]*)m")
MARKS = {"4": "[{}]", "34": "({})", "35": "<{}>"}
SIMPLE = (bool, int, float, str, type(None))
FIXED = (*SIMPLE, tuple)


class Adapter:
    """One environment at a time; `options` may name a `module` whose import registers further environments."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.gym = importlib.import_module("gymnasium")
        if options.get("module"):
            importlib.import_module(options["module"])
        self.env: Any = None
        self.made: Any = None
        self.observation: Any = None
        self.episode: dict[str, Any] = {}

    def make(self, task: dict[str, Any]) -> Any:
        """The environment of a task, with its text rendering where it has one."""
        spec = self.gym.spec(task["env_id"])
        entry = spec.entry_point if callable(spec.entry_point) else self.gym.envs.registration.load_env_creator(spec.entry_point)
        modes = getattr(entry, "metadata", {}).get("render_modes", [])
        mode = {"render_mode": "ansi"} if "ansi" in modes else {}
        kwargs = dict(task["kwargs"])
        if "map_size" in kwargs:
            lake = importlib.import_module("gymnasium.envs.toy_text.frozen_lake")
            kwargs["desc"] = lake.generate_random_map(size=kwargs.pop("map_size"), seed=task["seed"])
        return self.gym.make(task["env_id"], max_episode_steps=task["max_steps"], disable_env_checker=True, **mode, **kwargs)

    def tools(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        """One tool, whose only argument is an element of the action space."""
        env = self.make(task)
        schema = {**_action_schema(env.action_space), "description": _legend(task.get("actions"))}
        env.close()
        parameters = {"type": "object", "properties": {"action": schema}, "required": ["action"], "additionalProperties": False}
        function = {"name": "step", "description": "Take one action in the environment.", "parameters": parameters}
        return [{"type": "function", "function": function}]

    def reset(self, task: dict[str, Any], seed: int) -> str:
        """A new episode; the environment is kept when the task is the one before, as Gymnasium means it."""
        if self.made != task:
            if self.env is not None:
                self.env.close()
            self.env, self.made = self.make(task), task
        self.observation, info = self.env.reset(seed=seed)
        self.episode = {"terminated": False, "truncated": False, "steps": 0, "rewards": [], "info": info}
        return self._shown()

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str | None]:
        """One step, or why it was refused; a refused one does not reach the environment."""
        if name != "step":
            return f"no tool {name!r}; there is step", "unknown_tool"
        if self.episode["terminated"] or self.episode["truncated"]:
            return "the episode is over", "tool_error"
        action = _action(self.env.action_space, arguments.get("action"))
        if set(arguments) != {"action"} or action is None:
            return f"arguments must be {{'action': one of {self.env.action_space}}}", "invalid_arguments"
        self._step(action)
        return self._shown(), None

    def view(self) -> Any:
        """Observation, rendering, the environment's own simple attributes, a digest of its generator, and the episode so far."""
        return {
            "environment": {
                "observation": self.observation,
                "rendering": self._rendering(),
                "state": self._state(),
                "generator": self._generator(),
            },
            "episode": self.episode,
        }

    def _state(self) -> dict[str, Any]:
        attributes = vars(self.env.unwrapped).items()
        return {key: value for key, value in attributes if value is not None and not key.startswith("_") and _is_simple(value)}

    def _generator(self) -> str | None:
        generator = self.env.unwrapped._np_random
        return None if generator is None else hashlib.sha256(repr(generator.bit_generator.state).encode()).hexdigest()

    def propose(self, task: dict[str, Any], seed: int, at_least: float, limit: int) -> dict[str, Any]:
        """What a task needs to be written: the first observation, the rules in one paragraph, and action lists found by search.

        The search is breadth first over copies of the seeded environment, so chance falls as it will fall for a policy. `right` are up
        to two lists that end the episode with a return of at least `at_least`, `wrong` is one that ends it with less.
        """
        opening = self.reset(task, seed)
        paragraph = (inspect.getdoc(type(self.env.unwrapped)) or "").split("\n\n")[0]
        right, wrong, tried = self._searched(at_least, limit)
        found = [path for path in right if self._ends(task, seed, path) >= at_least]
        bad = wrong is not None and self._ends(task, seed, wrong) < at_least
        return {"opening": opening, "rules": " ".join(paragraph.split()), "right": found, "wrong": wrong if bad else None, "tried": tried}

    def _searched(self, at_least: float, limit: int) -> tuple[list[list[int]], list[int] | None, int]:
        right: list[list[int]] = []
        wrong: list[int] | None = None
        tried = 0
        queue: deque[tuple[list[Any], list[int]]] = deque([(self._held(), [])])
        seen = {self._place()}
        while queue and tried < limit and len(right) < 2:
            held, path = queue.popleft()
            for action in _discrete(self.env.action_space):
                self._hold(held)
                self._step(action)
                tried += 1
                taken = [*path, action]
                if self.episode["terminated"]:
                    if sum(self.episode["rewards"]) >= at_least:
                        right.append(taken)
                    elif wrong is None:
                        wrong = taken
                elif not self.episode["truncated"] and (place := self._place()) not in seen:
                    seen.add(place)
                    queue.append((self._held(), taken))
        return right[:2], wrong, tried

    def _ends(self, task: dict[str, Any], seed: int, actions: list[int]) -> float:
        """The return of the actions in a new environment; the search holds only simple attributes apart, so its finds are tried."""
        self.made = None
        self.reset(task, seed)
        for action in actions:
            self._step(action)
        return float(sum(self.episode["rewards"])) if self.episode["terminated"] else float("nan")

    def defaults(self, env_id: str) -> dict[str, Any]:
        """What the registry says of an environment."""
        spec = self.gym.spec(env_id)
        return {"max_steps": spec.max_episode_steps, "reward_threshold": spec.reward_threshold}

    def _step(self, action: Any) -> None:
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        self.episode = {
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "steps": self.episode["steps"] + 1,
            "rewards": [*self.episode["rewards"], None if reward is None else float(reward)],
            "info": info,
        }

    def _rendering(self) -> str | None:
        if self.env.render_mode != "ansi":
            return None
        rendered = self.env.render()
        return rendered if isinstance(rendered, str) else None

    def _shown(self) -> str:
        parts = [f"observation: {_observation_text(self.observation)}"]
        rendering = self._rendering()
        if rendering is not None:
            parts.append(marked(rendering).strip("\n"))
        if self.episode["steps"]:
            parts.append(f"reward: {self.episode['rewards'][-1]:g}")
        if self.episode["terminated"] or self.episode["truncated"]:
            parts.append("the episode is over" + (" (time limit)" if self.episode["truncated"] else ""))
        return "\n".join(parts)

    def _held(self) -> list[Any]:
        """The simple attributes of every layer of the environment, its generator's state and the episode."""
        layers, layer = [], self.env
        while layer is not None:
            simple = {key: value for key, value in vars(layer).items() if _is_simple(value)}
            changing = {key: value for key, value in simple.items() if not isinstance(value, FIXED)}
            layers.append((layer, {key: simple[key] for key in simple.keys() - changing.keys()}, pickle.dumps(changing)))
            layer = getattr(layer, "env", None)
        generator = self.env.unwrapped._np_random
        return [layers, None if generator is None else pickle.dumps(generator.bit_generator.state), self.observation, self.episode]

    def _hold(self, held: list[Any]) -> None:
        layers, generator, self.observation, self.episode = held
        for layer, fixed, changing in layers:
            vars(layer).update({**fixed, **pickle.loads(changing)})
        if generator is not None:
            self.env.unwrapped._np_random.bit_generator.state = pickle.loads(generator)

    def _place(self) -> str:
        """What decides how the environment goes on, as far as `view` sees it."""
        state = [(key, value.tobytes() if hasattr(value, "tobytes") else value) for key, value in self._state().items()]
        return repr((state, self._generator(), _observation_text(self.observation)))


def marked(rendering: str) -> str:
    """A coloured rendering as plain text: [x] on a coloured ground, (x) blue, <x> magenta."""
    codes: list[str] = []
    out: list[str] = []
    at = 0
    for match in SGR.finditer(rendering):
        out.append(_mark(rendering[at : match.start()], codes))
        at = match.end()
        new = match.group(1).split(";")
        codes = [] if new in ([""], ["0"]) else [*codes, *new]
    return "".join([*out, _mark(rendering[at:], codes)])


def _mark(text: str, codes: list[str]) -> str:
    for code in codes if text else []:
        form = MARKS.get(code) or (MARKS["4"] if len(code) == 2 and code.startswith("4") else None)
        text = form.format(text) if form else text
    return text


def _discrete(space: Any) -> list[int]:
    return [int(space.start) + n for n in range(int(space.n))] if type(space).__name__ == "Discrete" else []


def _is_simple(value: Any) -> bool:
    if isinstance(value, SIMPLE):
        return True
    if isinstance(value, list | tuple):
        return len(value) <= 100 and all(_is_simple(item) for item in value)
    return type(value).__module__ == "numpy" and getattr(value, "size", 0) <= 400 and value.dtype.kind in "biufUS"


def _observation_text(observation: Any) -> str:
    if isinstance(observation, str):
        return observation
    if isinstance(observation, tuple):
        return json.dumps([item.tolist() if hasattr(item, "tolist") else item for item in observation], default=str)
    return json.dumps(observation.tolist() if hasattr(observation, "tolist") else observation, default=str)


def _action_schema(space: Any) -> dict[str, Any]:
    kind = type(space).__name__
    if kind == "Discrete":
        return {"type": "integer", "enum": [int(space.start) + n for n in range(int(space.n))]}
    if kind == "MultiDiscrete":
        items = {"type": "integer", "minimum": 0, "maximum": int(space.nvec.max()) - 1}
        return {"type": "array", "items": items, "minItems": int(space.nvec.size), "maxItems": int(space.nvec.size)}
    if kind == "Text":
        return {"type": "string", "minLength": int(space.min_length), "maxLength": int(space.max_length)}
    raise ValueError(f"an action space {kind} cannot be a tool; allowed: Discrete, MultiDiscrete (one row), Text")


def _action(space: Any, value: Any) -> Any:
    """The element of the space that the argument names, or None."""
    if isinstance(value, bool) or not isinstance(value, int | str | list):
        return None
    if isinstance(value, list):
        if not all(type(item) is int for item in value):
            return None
        value = importlib.import_module("numpy").array(value, dtype=space.dtype)
    try:
        return value if space.contains(value) else None
    except (TypeError, ValueError, IndexError):
        return None


def _legend(actions: list[str] | None) -> str:
    return ", ".join(f"{n}: {name}" for n, name in enumerate(actions)) if actions else "an element of the action space"
