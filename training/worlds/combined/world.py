"""Several worlds side by side as one: each keeps its own state and its tools carry its name. Runs the worlds that it is made of."""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes, digest, parse
from ledger.errors import BundleError, WorldFailed
from training.worlds import Diff, Observation, Snapshot, ToolCall, World
from training.worlds.difference import differences

SEPARATOR = "__"
States = Mapping[str, Any]


class Combined:
    """Worlds side by side.

    A task's initial state maps each service to `{"state", "request", "first_turn", "turns"}`: its own initial state, the keys of its
    request beside system and turns, and which of the task's turns are its own.

    Attributes:
        name: `combined`.
        version: hex SHA-256 over its own source and its services' names and versions.
        source: the text of this file and the services' names and versions.
        fidelity: `exact` when all services are, else `replay`.
        services: the worlds by the name that their tools carry.
    """

    name = "combined"

    def __init__(self, services: Mapping[str, World[Any]]) -> None:
        if len(services) < 2 or any(not key.isidentifier() or SEPARATOR in key for key in services):
            raise BundleError(f"services {sorted(services)}; allowed: two or more, named by identifiers without {SEPARATOR!r}")
        self.services = dict(services)
        versions = [f"# service: {key} {world.name} {world.version}" for key, world in sorted(self.services.items())]
        self.source = "\n".join([Path(__file__).read_text(encoding="utf-8"), *versions])
        self.version = hashlib.sha256(self.source.encode()).hexdigest()
        self.fidelity = "exact" if all(world.fidelity == "exact" for world in self.services.values()) else "replay"

    def part(self, draft: BundleDraft, service: str) -> BundleDraft:
        """One service's part of a task, as a task of its own world.

        Raises:
            BundleError: the draft is for another world or has no such part.
        """
        if draft.world != self.name:
            raise BundleError(f"bundle {draft.name!r} is for world {draft.world!r}; allowed: {self.name}")
        if not isinstance(draft.initial_state, Mapping) or set(draft.initial_state) != set(self.services):
            raise BundleError(f"bundle {draft.name!r} needs an initial state for each of the services {sorted(self.services)}")
        own = draft.initial_state[service]
        turns = list(draft.request["turns"])[own["first_turn"] : own["first_turn"] + own["turns"]]
        request = {**own["request"], "system": draft.request.get("system"), "turns": turns or list(draft.request["turns"])[:1]}
        return replace(draft, world=self.services[service].name, initial_state=own["state"], request=request, reference=None)

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """The schemas of all services' tools, each name as `<service>__<tool>`."""
        found = []
        for service, world in self.services.items():
            own = self.part(draft, service)
            first = draft.initial_state[service]["first_turn"]
            for tool in world.tools(own, turn=min(max(turn - first, 0), len(own.request["turns"]) - 1)):
                found.append({**tool, "function": {**tool["function"], "name": f"{service}{SEPARATOR}{tool['function']['name']}"}})
        return found

    def reset(self, draft: BundleDraft, *, seed: int) -> States:
        """The services' initial states."""
        return {service: world.reset(self.part(draft, service), seed=seed) for service, world in self.services.items()}

    def call(self, state: States, call: ToolCall) -> tuple[States, Observation]:
        """The states after the call, of which one may differ, and that service's answer."""
        service, _, name = call.name.partition(SEPARATOR) if isinstance(call.name, str) else ("", "", "")
        if service not in self.services or not name:
            return state, Observation(
                f"no tool of that name; names begin with {', '.join(f'{s}{SEPARATOR}' for s in self.services)}", "unknown_tool"
            )
        after, observation = self.services[service].call(state[service], replace(call, name=name))
        return {**state, service: after}, observation

    def snapshot(self, state: States) -> Snapshot:
        """The services' snapshots in one."""
        parts = {service: world.snapshot(state[service]) for service, world in self.services.items()}
        data = {service: [part.snapshot_id, b64encode(part.data).decode()] for service, part in parts.items()}
        return Snapshot(self.digest(state), canonical_bytes(data))

    def restore(self, snapshot: Snapshot) -> States:
        """The states that were put to rest.

        Raises:
            WorldFailed: they do not have the digest that the snapshot names.
        """
        data = parse(snapshot.data)
        state = {
            service: world.restore(Snapshot(data[service][0], b64decode(data[service][1]))) for service, world in self.services.items()
        }
        if self.digest(state) != snapshot.snapshot_id:
            raise WorldFailed(f"snapshot {snapshot.snapshot_id} restores a state with digest {self.digest(state)}")
        return state

    def fork(self, snapshot: Snapshot, n: int) -> list[States]:
        """`n` states, each restored by itself."""
        return [self.restore(snapshot) for _ in range(n)]

    def view(self, state: States) -> Any:
        """The services' views by name."""
        return {service: world.view(state[service]) for service, world in self.services.items()}

    def material(self, view: Any) -> Any:
        """The services' material states, each top-level part as `<service>.<part>`, so that a verdict names it."""
        found: dict[str, Any] = {}
        for service, world in self.services.items():
            own = world.material(view[service])
            found |= {f"{service}.{part}": value for part, value in own.items()} if isinstance(own, Mapping) else {service: own}
        return found

    def diff(self, before: States, after: States) -> Diff:
        """Where the services' views differ, each path beginning with the service."""
        return differences(self.view(before), self.view(after))

    def digest(self, state: States) -> str:
        """Hex SHA-256 of the services' digests."""
        return digest({service: world.digest(state[service]) for service, world in self.services.items()})

    def close(self) -> None:
        """Close those services that can be closed."""
        for world in self.services.values():
            getattr(world, "close", lambda: None)()
