"""Speaks to an OpenEnv server for the world, over the package's own client; starts the server where the options name one.

This file is loaded by `worker_loop`; it imports nothing of this project, and OpenEnv only when it is started.
"""

import importlib
import json
import socket
import sys
import threading
import time
import urllib.request
from typing import Any

START_S = 60.0
REFUSED = "(code: VALIDATION_ERROR)"


class Adapter:
    """One session at a time; `options` hold `base_url`, or `server` (such as module:app) and the folder `path` where it is."""

    def __init__(self, options: dict[str, Any]) -> None:
        core = importlib.import_module("openenv.core")
        self.base_url = options.get("base_url") or self._started(options["server"], options["path"])
        limit_s = options["message_s"]
        self.session: Any = core.GenericEnvClient(base_url=self.base_url, connect_timeout_s=limit_s, message_timeout_s=limit_s).sync()
        self.session.connect()
        schema = json.loads(self._get("/schema"))
        self.action_schema: dict[str, Any] = schema["action"]
        self.task: dict[str, Any] = {}
        self.observation: Any = None
        self.terminated = False
        self.rewards: list[float | None] = []

    def about(self) -> dict[str, Any]:
        """What the server says of itself: name and version, and its schemas."""
        return {"metadata": json.loads(self._get("/metadata")), "action": self.action_schema}

    def tools(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        """One tool whose arguments are the fields of the environment's action."""
        fields = {name: field for name, field in self.action_schema.get("properties", {}).items() if name != "metadata"}
        parameters: dict[str, Any] = {"type": "object", "properties": fields, "additionalProperties": False}
        parameters |= {key: self.action_schema[key] for key in ("required", "$defs") if key in self.action_schema}
        description = self.action_schema.get("description", "Take one action in the environment.")
        return [{"type": "function", "function": {"name": "step", "description": description, "parameters": parameters}}]

    def reset(self, task: dict[str, Any], seed: int) -> str:
        """A new episode with the seed, and an id made of the seed, so that nothing in it is drawn at random by the server."""
        result = self.session.reset(seed=seed, episode_id=f"seed-{seed}", **task.get("reset", {}))
        self.task, self.rewards = task, []
        self.observation, self.terminated = result.observation, bool(result.done)
        return self._shown()

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str | None]:
        """One step, or why it was refused; an action that is not of the schema does not reach the environment."""
        if name != "step":
            return f"no tool {name!r}; there is step", "unknown_tool"
        if self.terminated or len(self.rewards) >= self.task["max_steps"]:
            return "the episode is over", "tool_error"
        if "metadata" in arguments:
            return "metadata is not an argument of step", "invalid_arguments"
        try:
            result = self.session.step(arguments)
        except RuntimeError as error:
            if REFUSED in str(error):
                return str(error), "invalid_arguments"
            raise
        self.observation, self.terminated = result.observation, bool(result.done)
        self.rewards.append(None if result.reward is None else float(result.reward))
        return self._shown(), None

    def view(self) -> Any:
        """The last observation, the server's state of the session, and the episode so far."""
        return {
            "environment": {"observation": self.observation, "state": self.session.state()},
            "episode": {
                "terminated": self.terminated,
                "truncated": not self.terminated and len(self.rewards) >= self.task["max_steps"],
                "steps": len(self.rewards),
                "rewards": self.rewards,
            },
        }

    def _shown(self) -> str:
        parts = [json.dumps(self.observation, sort_keys=True, ensure_ascii=False)]
        if self.rewards:
            parts.append(f"reward: {'none' if self.rewards[-1] is None else format(self.rewards[-1], 'g')}")
        if self.terminated or len(self.rewards) >= self.task["max_steps"]:
            parts.append("the episode is over")
        return "\n".join(parts)

    def _started(self, server: str, path: str) -> str:
        """The base URL of a server in a thread of this process; the socket is bound here, so that its port is nobody else's."""
        sys.path.append(path)
        module, _, attribute = server.partition(":")
        app = getattr(importlib.import_module(module), attribute)
        uvicorn: Any = importlib.import_module("uvicorn")
        listening = socket.create_server(("127.0.0.1", 0))
        running = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True).start()
        deadline = time.monotonic() + START_S
        while not running.started:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server {server} did not start within {START_S:g} s")
            time.sleep(0.01)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.base_url + path, timeout=10) as answer:
            body: bytes = answer.read()
            return body
