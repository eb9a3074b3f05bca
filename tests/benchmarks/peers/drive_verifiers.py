"""verifiers' interception server with its relay to an OpenAI-compatible endpoint, as an evaluation runs it. Serves HTTP, writes files.

It prints `{"pid": …, "version": …, "targets": […]}` once it listens. A rollout ends after `--turns` calls: its trace is then sealed and appended to
`traces.jsonl` in the working directory by verifiers' own writer, as `vf-eval` does when an episode ends. Tokens are not captured: that takes the client for
training, which needs a tokenizer and an engine with vLLM's `/inference/v1/generate`. With `--found` it only counts the calls in that file.
"""

import argparse
import asyncio
import json
import os
from importlib.metadata import version
from pathlib import Path

from verifiers.v1.clients.client import ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.state import State
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.utils.trace_store import TRACES_FILE, append_trace

# The answer to a rollout's last call is sent before its session is closed, which cancels what still runs.
LINGER_S = 0.2


class Relay:
    """An interception server whose rollouts end by themselves."""

    def __init__(self, server: InterceptionServer, upstream: str, turns: int) -> None:
        self.server, self.turns = server, turns
        self.context = ModelContext(model="stub", client=EvalClientConfig(base_url=upstream, api_key_var="STUB_API_KEY"))
        self.lock = asyncio.Lock()
        self.saving: set[asyncio.Task[None]] = set()

    def rollout(self, number: int) -> dict[str, object]:
        """The target of a new rollout."""
        trace = Trace(
            task=TraceTask(type="Task", data=TaskData(idx=number, prompt="Fix the failing test.")), state=State(),
            agent=AgentInfo(config=AgentConfig()),
        )  # fmt: skip
        session = RolloutSession(ctx=self.context, trace=trace)
        secrets = self.server.register(session)
        trace.watch(lambda trace: self._ended(trace, secrets) if len(trace.calls) == self.turns else None)
        return {"url": f"{self.server.base_url}/v1/chat/completions", "headers": {"Authorization": f"Bearer {secrets[0]}"}}

    def _ended(self, trace: Trace, secrets: tuple[str, str]) -> None:
        if not trace.is_completed:
            trace.is_completed = trace.ok = True
            task = asyncio.get_running_loop().create_task(self._seal(trace, secrets))
            self.saving.add(task)
            task.add_done_callback(self.saving.discard)

    async def _seal(self, trace: Trace, secrets: tuple[str, str]) -> None:
        await asyncio.sleep(LINGER_S)
        self.server.unregister(*secrets)
        await append_trace(Path.cwd(), trace, self.lock)


async def serve(upstream: str, rollouts: int, turns: int) -> None:
    """Serve for ever."""
    async with InterceptionServer() as server:
        relay = Relay(server, upstream, turns)
        targets = [relay.rollout(n) for n in range(rollouts)]
        print(json.dumps({"pid": os.getpid(), "version": version("verifiers"), "targets": targets}), flush=True)
        await asyncio.Event().wait()


def found() -> int:
    """How many calls the traces on disk have."""
    path = Path(TRACES_FILE)
    episodes = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return sum(len(trace["calls"]) for episode in episodes for trace in episode["traces"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", help="address up to and including /v1")
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--found", action="store_true", help="only count the calls in the traces on disk")
    options = parser.parse_args()
    if options.found:
        print(json.dumps({"found": found()}))
    else:
        asyncio.run(serve(options.upstream, options.rollouts, options.turns))
