"""The world: states are values made by the worker; this process holds their bytes and never unpickles them."""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes
from ledger.errors import BundleError, CanonicalError, WorldFailed
from training.worlds import Change, Diff, Observation, Snapshot, ToolCall
from training.worlds.bfcl.docs import WHEEL, documented, load_docs, tool_schema
from training.worlds.bfcl.pool import Workers


@dataclass(frozen=True)
class BfclState:
    """All instances of a task's classes at one moment.

    Attributes:
        data: the worker's pickle of the instances.
        view_json: canonical bytes of the JSON view.
    """

    data: bytes
    view_json: bytes

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the view."""
        return hashlib.sha256(self.view_json).hexdigest()


class Bfcl:
    """The eight simulated APIs; starts worker processes and must be closed.

    A function that is withheld from a turn's tools is still carried out when called, as on the leaderboard: which tools a
    policy is offered is the request's matter, not the state's.

    Args:
        unpacked: folder of the unpacked wheel.
        brief: offer tool descriptions without the paragraph about the whole API, which saves a third of the prompt.
        workers: worker processes, so how many calls run at once.
        limit_s: seconds one call may take.
    """

    name = "bfcl"
    fidelity = "exact"

    def __init__(self, unpacked: Path, *, brief: bool = False, workers: int = 2, limit_s: float = 20.0) -> None:
        self._docs = load_docs(unpacked)
        self._brief = brief
        self._workers = Workers(unpacked, count=workers, limit_s=limit_s)
        self.source = _source(unpacked, brief)
        self.version = hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        return self._workers.pids

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas that the policy may call in user turn `turn`; functions withheld earlier come last in their turn."""
        functions = documented(self._docs, _initial(draft)["classes"])
        appear = {name: int(at) for at, names in draft.request.get("withheld", {}).items() for name in names}
        offered = [name for name in functions if name not in appear]
        offered += [name for name in sorted(appear, key=lambda name: appear[name]) if appear[name] <= turn and name in functions]
        return [tool_schema(functions[name], brief=self._brief) for name in offered]

    def reset(self, draft: BundleDraft, *, seed: int) -> BfclState:
        """The initial state of the task; the scenario carries its own random seeds, so `seed` changes nothing."""
        initial = _initial(draft)
        documented(self._docs, initial["classes"])
        request = {"op": "reset", "classes": initial["classes"], "config": initial["config"], "long_context": initial["long_context"]}
        return _state(self._workers.ask(request))

    def call(self, state: BfclState, call: ToolCall) -> tuple[BfclState, Observation]:
        """The state after the call, and the observation as the leaderboard's own harness words it; `state` is unchanged."""
        try:
            canonical_bytes(dict(call.arguments), allow_nul=True)
        except CanonicalError as error:
            return state, Observation(f"Error during execution: {error}", "malformed_arguments")
        request = {"op": "call", "state": base64.b64encode(state.data).decode(), "name": call.name, "arguments": dict(call.arguments)}
        reply = self._workers.ask(request)
        return _state(reply), Observation(reply["content"], reply["error_class"])

    def snapshot(self, state: BfclState) -> Snapshot:
        """The state at rest."""
        return Snapshot(state.digest, state.data)

    def restore(self, snapshot: Snapshot) -> BfclState:
        """The state that was put to rest.

        Raises:
            WorldFailed: the bytes are no state of this world, or of another digest than the snapshot says.
        """
        data = base64.b64encode(snapshot.data).decode()
        state = _state({"state": data, **self._workers.ask({"op": "view", "state": data})})
        if state.digest != snapshot.snapshot_id:
            raise WorldFailed(f"the snapshot restores to digest {state.digest}; its id is {snapshot.snapshot_id}")
        return state

    def fork(self, snapshot: Snapshot, n: int) -> list[BfclState]:
        """`n` states, each equal to the snapshot; states are values, so a call on one leaves the others alone."""
        return [self.restore(snapshot)] * n

    def view(self, state: BfclState) -> Any:
        """Every attribute of every class as JSON; names with a leading underscore are hidden from the checker, not from a replay."""
        return json.loads(state.view_json)

    def material(self, view: Any) -> Any:
        """The public attributes, which are what the official checker compares."""
        return {name: {key: value for key, value in attributes.items() if not key.startswith("_")} for name, attributes in view.items()}

    def diff(self, before: BfclState, after: BfclState) -> Diff:
        """Where the two views differ, leaf by leaf."""
        return Diff(tuple(sorted(changes(self.view(before), self.view(after)), key=lambda change: change.path)))

    def digest(self, state: BfclState) -> str:
        """Hex SHA-256 of the canonical form of the state's view."""
        return state.digest

    def close(self) -> None:
        """Ends the worker processes."""
        self._workers.close()


def changes(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """The leaves at which two JSON values differ, as paths of keys and indices."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from changes(before.get(key), after.get(key), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            left = before[index] if index < len(before) else None
            yield from changes(left, after[index] if index < len(after) else None, f"{path}/{index}")
    elif before != after or type(before) is not type(after):
        yield Change(path or "/", before, after)


def _initial(draft: BundleDraft) -> dict[str, Any]:
    initial = draft.initial_state
    if not isinstance(initial, dict) or not {"classes", "config", "long_context"} <= initial.keys():
        raise BundleError(f"bundle {draft.name!r}: initial_state must hold classes, config and long_context, seen {str(initial)[:80]}")
    return initial


def _state(reply: dict[str, Any]) -> BfclState:
    return BfclState(base64.b64decode(reply["state"]), canonical_bytes(reply["view"], allow_nul=True))


def _source(unpacked: Path, brief: bool) -> str:
    """This folder's files, the wheel's name and version, and the digest of the wheel's record of its files."""
    folder = Path(__file__).parent
    texts = [f"# {file.name}\n{file.read_text(encoding='utf-8')}" for file in sorted(folder.glob("*.py"))]
    records = sorted(unpacked.glob("*.dist-info/RECORD"))
    if len(records) != 1:
        raise BundleError(f"{unpacked} holds {len(records)} RECORD files; the unpacked wheel {WHEEL} holds 1")
    record = hashlib.sha256(records[0].read_bytes()).hexdigest()
    return "\n".join([*texts, f"# wheel {WHEEL} RECORD {record} brief={brief}\n"])
