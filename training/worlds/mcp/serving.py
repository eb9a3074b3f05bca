"""Worlds served over MCP: an outside agent's sessions, each with its state, its trace and its snapshots on our side. Starts a process."""

import base64
import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes, parse
from ledger.errors import BundleError, CanonicalError, WorldFailed
from training.verifiers import Judge, JudgeTask, TraceStep, Verdict
from training.worlds import Observation, Snapshot, ToolCall, World

FRONT = Path(__file__).parent / "front.py"
SNAPSHOT, RESTORE = "tally_snapshot", "tally_restore"
_PAIR = (
    {
        "name": SNAPSHOT,
        "description": "The session's state: snapshot_id, data in base64, view and material.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
    {
        "name": RESTORE,
        "description": "Puts the session into the state of a snapshot.",
        "parameters": {
            "type": "object",
            "properties": {"snapshot_id": {"type": "string"}, "data": {"type": "string"}},
            "required": ["snapshot_id", "data"],
        },
    },
)
Transport = Literal["stdio", "http"]
Say = Callable[[str], None]


@dataclass
class Session:
    """One agent's way through one task.

    Attributes:
        draft: the task.
        start, state: the world's states at the start and now.
        trace: the calls, since the last restored snapshot.
    """

    draft: BundleDraft
    start: Any
    state: Any
    trace: list[TraceStep] = field(default_factory=list)


class Sessions:
    """The sessions of a server by task and session name; a session begins with its first request.

    Args:
        world: where they act.
        drafts: task name to task; the first is the one of a session that names none, as over stdio.
        snapshots: offer the pair of tools with which a client takes and restores snapshots. For our own client: an agent with these
            tools reads the whole state and undoes what it did.
        journal: called with one JSON object for every call.
    """

    def __init__(
        self,
        world: World[Any],
        drafts: Mapping[str, BundleDraft],
        *,
        snapshots: bool = False,
        journal: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        if not drafts:
            raise BundleError("a server needs at least one task")
        self._world, self._drafts, self._snapshots, self._journal = world, dict(drafts), snapshots, journal
        self.open: dict[tuple[str, str], Session] = {}

    def session(self, task: str, name: str) -> Session:
        """The session of this name.

        Raises:
            BundleError: no such task.
        """
        task = task or next(iter(self._drafts))
        if task not in self._drafts:
            raise BundleError(f"no task {task!r}; there are {', '.join(self._drafts)}")
        if (task, name) not in self.open:
            state = self._world.reset(self._drafts[task], seed=0)
            self.open[task, name] = Session(self._drafts[task], state, state)
        return self.open[task, name]

    def snapshot(self, task: str, name: str) -> Snapshot:
        """The session's state at rest."""
        return self._world.snapshot(self.session(task, name).state)

    def verdict(self, task: str, name: str, judge: Judge) -> Verdict:
        """What a verifier says of the session as it stands."""
        session, view = self.session(task, name), self._world.view
        return judge(view(session.start), view(session.state), session.trace, JudgeTask(session.draft, self._world.material))

    def tools(self, task: str, name: str) -> list[dict[str, Any]]:
        """Name, description and parameters of all tools that the session offers."""
        draft = self.session(task, name).draft
        shown = self._world.tools(draft, turn=len(draft.request["turns"]) - 1)
        return [tool["function"] for tool in shown] + (list(_PAIR) if self._snapshots else [])

    def call(self, task: str, name: str, tool: str, arguments: Mapping[str, Any]) -> Observation:
        """The answer to a call, after which the session stands at the state that it made.

        Raises:
            WorldFailed: the world broke.
        """
        session = self.session(task, name)
        if self._snapshots and tool == SNAPSHOT:
            return Observation(canonical_bytes(self._at_rest(session), allow_nul=True).decode())
        if self._snapshots and tool == RESTORE:
            return self._restored(session, arguments)
        before = self._world.digest(session.state)
        call = ToolCall(tool, arguments, f"call_{len(session.trace)}")
        session.state, observation = self._world.call(session.state, call)
        session.trace.append(TraceStep(0, call, observation))
        self._journal({
            "task": session.draft.name, "session": name, "index": len(session.trace) - 1, "name": tool, "arguments": dict(arguments),
            "content": observation.content, "error_class": observation.error_class, "state_before": before,
            "state_after": self._world.digest(session.state),
        })  # fmt: skip
        return observation

    def _at_rest(self, session: Session) -> dict[str, Any]:
        snapshot, view = self._world.snapshot(session.state), self._world.view(session.state)
        data = base64.b64encode(snapshot.data).decode()
        return {"snapshot_id": snapshot.snapshot_id, "data": data, "view": view, "material": self._world.material(view)}

    def _restored(self, session: Session, arguments: Mapping[str, Any]) -> Observation:
        try:
            snapshot = Snapshot(str(arguments["snapshot_id"]), base64.b64decode(str(arguments["data"]), validate=True))
            session.state = self._world.restore(snapshot)
        except (KeyError, ValueError, WorldFailed) as error:
            return Observation(f"not restored: {error!r}", "invalid_arguments")
        session.trace.clear()
        return Observation(json.dumps({"snapshot_id": snapshot.snapshot_id}))


class Front:
    """The server process and the link to it.

    Args:
        python: interpreter of the environment of the `mcp` package.
        transport: `stdio` hands our own standard input and output on to it.
        name, instructions: how the server introduces itself.
        host, port: of HTTP; port 0 takes a free one.
    """

    def __init__(
        self, python: Path, transport: Transport, *, name: str, instructions: str = "", host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.port: int | None = None
        self._link, theirs = socket.socketpair()
        options = {"name": name, "instructions": instructions, "transport": transport, "host": host, "port": port, "link": theirs.fileno()}
        with theirs:
            self._process = subprocess.Popen(
                [str(python), "-P", "-s", "-B", str(FRONT), json.dumps(options)], pass_fds=[theirs.fileno()],
                stdin=None if transport == "stdio" else subprocess.DEVNULL, stdout=None if transport == "stdio" else subprocess.DEVNULL,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
            )  # fmt: skip

    def serve(self, sessions: Sessions, *, listening: Callable[[int], None] = lambda _: None) -> int:
        """Answer the server's requests until it ends; its exit status."""
        with self._link, self._link.makefile("rwb") as lines:
            for line in lines:
                request = json.loads(line)
                if request["op"] == "listening":
                    self.port = request["port"]
                    listening(request["port"])
                    reply: Mapping[str, Any] = {"ok": None}
                else:
                    reply = answer(sessions, request)
                lines.write(json.dumps({"id": request["id"], **reply}).encode() + b"\n")
                lines.flush()
        return self._process.wait()

    def stop(self) -> None:
        """Ends the server process."""
        self._process.terminate()
        self._process.wait()


def answer(sessions: Sessions, request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to one request of the front: `ok`, or `failed` when the world or the session's name is at fault, not the agent."""
    place = str(request["task"]), str(request["session"])
    try:
        if request["op"] == "tools":
            return {"ok": sessions.tools(*place)}
        arguments = parse(json.dumps(request["arguments"]))
        observation = sessions.call(*place, str(request["name"]), arguments)
    except CanonicalError as error:
        observation = Observation(str(error), "malformed_arguments")
    except (BundleError, WorldFailed) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"ok": {"content": observation.content, "error_class": observation.error_class}}
