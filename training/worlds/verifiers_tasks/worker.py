"""Loads a verifiers v1 taskset for the world, and scores a recorded conversation with the task's own rewards.

This file is loaded by `worker_loop`; it imports nothing of this project, and verifiers only when it is started.
"""

import asyncio
import importlib
import inspect
import itertools
import sys
import traceback
from collections.abc import Iterator
from typing import Any


class RuntimeNeeded(Exception):
    """A reward asks for the task's runtime, which a recorded conversation does not have: it cannot be scored here, and is an error."""


class Adapter:
    """One taskset; `options` hold its id or module `taskset`, the folder `path` where it is, or None, and its `config`."""

    def __init__(self, options: dict[str, Any]) -> None:
        if options.get("path"):
            sys.path.append(options["path"])
        self.vf: Any = importlib.import_module("verifiers.v1")
        self.decorators: Any = importlib.import_module("verifiers.v1.utils.decorators")
        config = self.vf.taskset_config_type(options["taskset"]).model_validate({**options["config"], "id": options["taskset"]})
        self.taskset: Any = self.vf.load_taskset(config)
        self.coming: Iterator[Any] = iter(self.taskset)
        self.tasks: list[Any] = []
        self.answer: str | None = None
        self.steps = 0

    def rows(self, first: int, count: int) -> list[dict[str, Any]]:
        """Tasks of the taskset by place: their data, hash, messages, rewards, and why this world cannot carry one out, or None."""
        self._fill(first + count)
        return [self._row(task) for task in self.tasks[first : first + count]]

    def tools(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        """One tool, which hands in the answer."""
        text = {"type": "string", "description": "the complete answer"}
        parameters = {"type": "object", "properties": {"answer": text}, "required": ["answer"], "additionalProperties": False}
        function = {"name": "submit", "description": "Hand in your answer. It can be done once.", "parameters": parameters}
        return [{"type": "function", "function": function}]

    def reset(self, task: dict[str, Any], seed: int) -> str:
        """The task with nothing handed in."""
        self._task(task)
        self.answer, self.steps = None, 0
        return ""

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str | None]:
        """The answer taken, or why it was refused."""
        if name != "submit":
            return f"no tool {name!r}; there is submit", "unknown_tool"
        if self.answer is not None:
            return "an answer was handed in before", "tool_error"
        if set(arguments) != {"answer"} or not isinstance(arguments["answer"], str):
            return "arguments must be {'answer': a text}", "invalid_arguments"
        self.answer, self.steps = arguments["answer"], 1
        return "handed in", None

    def view(self) -> Any:
        """The answer, and whether one was handed in."""
        return {"answer": self.answer, "answered": self.answer is not None}

    def score(self, task: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
        """What each of the task's rewards says of the conversation: a score with its weight, or the error that it ended in."""
        found = self._task(task)
        return {reward.__name__: self._scored(reward, found, messages) for reward in found.hooks("reward")}

    def _scored(self, reward: Any, task: Any, messages: list[dict[str, Any]]) -> dict[str, Any]:
        weight = float(getattr(reward, "_vf_weight", 1.0))
        trace = self._trace(task, messages)
        try:
            if _needs_runtime(reward):
                raise RuntimeNeeded(f"{reward.__name__} takes the task's runtime; allowed: rewards of the conversation alone")
            # Each reward gets a trace of its own, so that what one leaves in it does not reach another.
            result = asyncio.run(_awaited(self.decorators.invoke(reward, {"task": task.data, "trace": trace})))
            scores = dict(result) if isinstance(result, dict) else {reward.__name__: result}
            return {"weight": weight, "scores": {name: float(score) for name, score in scores.items()}}
        except BaseException as error:
            text = "".join(traceback.format_exception(error, limit=-4))[-3000:]
            return {"weight": weight, "error": {"class": type(error).__name__, "text": text}}

    def _trace(self, task: Any, messages: list[dict[str, Any]]) -> Any:
        kinds = {"system": "SystemMessage", "user": "UserMessage", "assistant": "AssistantMessage", "tool": "ToolMessage"}
        nodes = [
            self.vf.MessageNode(
                parent=at - 1 if at else None,
                message=getattr(self.vf, kinds[message["role"]]).model_validate(message),
                sampled=message["role"] == "assistant",
                timestamp=0.0,
            )
            for at, message in enumerate(messages)
        ]
        agent = importlib.import_module("verifiers.v1.configs.agent").WireAgentConfig()
        row = self.vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        return self.vf.Trace(
            id="recorded", task=row, agent=self.vf.AgentInfo(config=agent), nodes=nodes, is_completed=True, ok=True,
            stop_condition="agent_completed",
        )  # fmt: skip

    def _row(self, task: Any) -> dict[str, Any]:
        prompt = task.data.prompt
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []
        if prompt is not None and not isinstance(prompt, str):
            messages = [message.model_dump(mode="json", exclude_none=True) for message in prompt]
        return {
            "idx": task.data.idx,
            "name": task.data.name or task.data.id,
            "hash": task.hash,
            "data": task.data.model_dump(mode="json", exclude_none=True),
            "system": task.data.system_prompt,
            "messages": messages,
            "rewards": {reward.__name__: float(getattr(reward, "_vf_weight", 1.0)) for reward in task.hooks("reward")},
            "unfit": self._unfit(task, messages),
        }

    def _unfit(self, task: Any, messages: list[dict[str, Any]]) -> str | None:
        base, kind = self.vf.Task, type(task)
        if not messages or any(
            message["role"] not in ("system", "user") or not isinstance(message["content"], str) for message in messages
        ):
            return "its prompt is not a text of the system or the user"
        if kind.toolsets(task.config) or type(self.taskset).toolsets(self.taskset.config):
            return "it has tool servers"
        if kind.NEEDS_CONTAINER or kind.setup is not base.setup or kind.finalize is not base.finalize:
            return "it prepares a runtime"
        if any(_needs_runtime(reward) for reward in task.hooks("reward")) or not task.hooks("reward"):
            return "it has no rewards, or one that needs a runtime"
        return "it has a judge that asks a model" if task.config.judges else None

    def _fill(self, count: int) -> None:
        self.tasks += itertools.islice(self.coming, max(0, count - len(self.tasks)))

    def _task(self, task: dict[str, Any]) -> Any:
        self._fill(task["idx"] + 1)
        if task["idx"] >= len(self.tasks):
            raise ValueError(f"the taskset has {len(self.tasks)} tasks; asked for number {task['idx']}")
        found = self.tasks[task["idx"]]
        if found.hash != task["hash"]:
            raise ValueError(f"task {task['idx']} of the taskset has hash {found.hash}; the bundle's is {task['hash']}")
        return found


def _needs_runtime(reward: Any) -> bool:
    parameter = inspect.signature(reward).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
