"""The environment gate: a world version's checks, kept in the ledger, run again only for tools not covered. Writes the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from audit.results import CheckResult, result_of
from audit.run import check_ids, run_checks
from audit.severity import Policy
from audit.world_checks import WorldCheck, world_checks
from audit.world_subject import WorldSubject, sample, scope_of, tools_of
from ledger.bundle import BundleDraft
from ledger.canonical import digest, parse
from ledger.events import CheckRan
from ledger.ledger import LedgerHandle
from ledger.methods import Bound
from training.worlds import World


@dataclass(frozen=True)
class WorldGate:
    """What the checks of a world version found.

    Attributes:
        world_id: the version.
        results: check id to result.
        methods: check id to digest of the check.
        inputs_digest: over what was tried beside the world.
        policy: with which severities.
        scope: tool name to digest of its schema, of the tools that were exercised.
        new: events that this call added.
    """

    world_id: str
    results: Mapping[str, CheckResult]
    methods: Mapping[str, str]
    inputs_digest: str
    policy: Policy
    scope: Mapping[str, str]
    new: int = 0

    @property
    def blocking(self) -> tuple[str, ...]:
        """Ids of the results that stand in the way, sorted."""
        return tuple(sorted(name for name, result in self.results.items() if self.policy.blocks(name, result.status)))

    @cached_property
    def gate_digest(self) -> str:
        """Hex SHA-256 over world, checks and results."""
        results = {name: result.as_json() for name, result in self.results.items()}
        return digest({"world_id": self.world_id, "methods": dict(self.methods), "results": results}, allow_nul=True)


def gate_world(ledger: LedgerHandle, world: World[Any], drafts: Sequence[BundleDraft], policy: Policy) -> WorldGate:
    """The world's checks as the ledger has them, or run now when it has none by this policy that cover the tools of these tasks.

    Args:
        drafts: tasks in this world; samples of them are played.
        policy: names the checks and their thresholds.
    """
    methods = _methods(policy)
    tools = scope_of(tools_of(world, drafts))
    for known in _known(ledger, world.version, policy, methods):
        if tools.items() <= known.scope.items():
            return known
    ran = check_world(world, drafts, policy)
    return _recorded(ledger, ran)


def check_world(world: World[Any], drafts: Sequence[BundleDraft], policy: Policy) -> WorldGate:
    """The world's checks, run now and not recorded."""
    limits = policy.thresholds
    chosen = sample(world, drafts, int(limits["exercise_tasks"]))
    subject = WorldSubject(
        world, chosen, rounds_least=int(limits["exercise_rounds"]), rounds_per_tool=int(limits["exercise_rounds_per_tool"]),
        rounds_most=int(limits["exercise_rounds_most"]),
    )  # fmt: skip
    bound = _checks(policy)
    results = run_checks(bound, subject, limits)
    scope = scope_of(subject.tools)
    starts = [[draft.initial_state, (draft.reference or {}).get("turns")] for draft in chosen]
    inputs = digest({"scope": scope, "starts": starts, "seed": subject.seed}, allow_nul=True)
    return WorldGate(world.version, results, _methods(policy), inputs, policy, scope)


def _checks(policy: Policy) -> list[Bound[WorldCheck]]:
    bound = [world_checks.bind(name) for name in world_checks.names()]
    return [item for item in bound if set(check_ids(item)) <= policy.severity.keys()]


def _methods(policy: Policy) -> dict[str, str]:
    return {name: bound.ref.method_id for bound in _checks(policy) for name in check_ids(bound)}


def _recorded(ledger: LedgerHandle, gate: WorldGate) -> WorldGate:
    events = []
    for check_id, result in sorted(gate.results.items()):
        measured = ledger.pending_json({"result": result.as_json(), "scope": dict(gate.scope)})
        body = CheckRan(
            subject=f"world-{gate.world_id}", check_id=check_id, method_id=gate.methods[check_id], status=result.status,
            severity=gate.policy.severity[check_id], policy_id=gate.policy.policy_id,
            inputs_digest=gate.inputs_digest, measured=measured.ref,
        )  # fmt: skip
        events.append(ledger.new(body, measured))
    created = sum(item.created for item in ledger.append(events).events)
    return WorldGate(gate.world_id, gate.results, gate.methods, gate.inputs_digest, gate.policy, gate.scope, created)


def _known(ledger: LedgerHandle, world_id: str, policy: Policy, methods: Mapping[str, str]) -> list[WorldGate]:
    """What the ledger holds of this world by this policy and these checks, newest first."""
    ran: dict[str, dict[str, CheckRan]] = {}
    for event in ledger.read_stream(f"world-{world_id}"):
        body = event.body
        if isinstance(body, CheckRan) and body.policy_id == policy.policy_id and methods.get(body.check_id) == body.method_id:
            ran.setdefault(body.inputs_digest, {})[body.check_id] = body
    found = []
    for inputs, bodies in reversed(ran.items()):
        if bodies.keys() != methods.keys():
            continue
        kept = {name: parse(ledger.blob(body.measured.blob_id)) for name, body in bodies.items() if body.measured is not None}
        results = {name: result_of(content["result"]) for name, content in kept.items()}
        scope = next(iter(kept.values()))["scope"] if kept else {}
        found.append(WorldGate(world_id, results, methods, inputs, policy, scope))
    return found
