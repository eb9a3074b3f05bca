"""Judges rollouts from the ledger alone, so the same rollout can be judged again by another verifier. Writes the ledger."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ledger.blobs import read_many
from ledger.bundle import BundleDraft
from ledger.canonical import parse
from ledger.errors import UnknownId, VerifierFailed, WorldFailed
from ledger.events import BlobRef, ConditionResult, EventBody, RolloutEnded, StateSnapshotted, ToolCalled, VerdictGiven
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.methods import Bound
from ledger.store import New
from training.bundles import load_many
from training.verifiers import Judge, JudgeTask, TraceStep, Verdict
from training.worlds import Observation, ToolCall, World
from training.worlds.source import VerifierKind

JUDGED_ENDS = ("finished", "token_limit", "turn_limit", "context_full", "wall_clock")
_BATCH = 50
_SHOWN = ("StateSnapshotted", "ToolCalled", "RolloutEnded")


@dataclass(frozen=True)
class Evidence:
    """What the ledger holds of one rollout for a verifier: both state views, the tool calls, how it ended."""

    s0: Any
    s_end: Any
    state_end: str
    trace: tuple[TraceStep, ...]
    ended_by: str


@dataclass(frozen=True)
class Judging:
    """One verifier at work.

    Attributes:
        verifier: the bound method.
        kind: program, state_diff, judge or human.
        role: `bundle` for the verifier that the bundle names, else `second_opinion`.
    """

    verifier: Bound[Judge]
    kind: VerifierKind
    role: Literal["bundle", "second_opinion"]

    def verdict_id(self, rollout_id: str) -> str:
        """The id of this verifier version's verdict on a rollout."""
        return derived_id("verdict", rollout_id, self.verifier.ref.method_id, self.role)


def evidence(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, Evidence]:
    """Rollout to what a verifier needs; a rollout that never had a state is left out. Two statements, however many rollouts.

    Raises:
        UnknownId: no such rollout, or it has not ended.
    """
    ledger.barrier()
    bodies: dict[str, list[EventBody]] = {rollout_id: [] for rollout_id in rollout_ids}
    for event in ledger.read_streams([f"rollout-{rollout_id}" for rollout_id in rollout_ids], kinds=_SHOWN):
        bodies[event.stream.removeprefix("rollout-")].append(event.body)
    found = {rollout_id: _Found.of(rollout_id, events) for rollout_id, events in bodies.items()}
    with ledger.connection() as conn:
        blobs = read_many(conn, [blob_id for one in found.values() for blob_id in one.wanted])
    return {rollout_id: one.evidence(blobs) for rollout_id, one in found.items() if one.wanted}


@dataclass(frozen=True)
class _Found:
    """The events of a rollout that a verifier is shown, before their blobs are read; calls that were not the world's are left out."""

    states: Sequence[StateSnapshotted]
    calls: Sequence[ToolCalled]
    ended: RolloutEnded

    @classmethod
    def of(cls, rollout_id: str, bodies: Sequence[EventBody]) -> "_Found":
        ended = next((body for body in bodies if isinstance(body, RolloutEnded)), None)
        if ended is None:
            raise UnknownId(f"rollout {rollout_id!r} is unknown or has not ended, so there is nothing to judge")
        states = sorted((body for body in bodies if isinstance(body, StateSnapshotted)), key=lambda body: body.step)
        made = (body for body in bodies if isinstance(body, ToolCalled) and body.executed_by == "world")
        return cls(states, sorted(made, key=lambda body: body.index), ended)

    @property
    def wanted(self) -> list[str]:
        """Ids of the blobs to read, none without a first and a last state."""
        if len(self.states) < 2:
            return []
        wanted = [self.states[0].view.blob_id, self.states[-1].view.blob_id]
        for call in self.calls:
            wanted += [call.name.blob_id, call.result.blob_id] + ([] if call.arguments_parsed is None else [call.arguments_parsed.blob_id])
        return wanted

    def evidence(self, blobs: Mapping[str, bytes]) -> Evidence:
        """The evidence, with the blobs that it wanted."""
        first, last = self.states[0], self.states[-1]
        trace = tuple(_step(call, blobs) for call in self.calls)
        return Evidence(parse(blobs[first.view.blob_id]), parse(blobs[last.view.blob_id]), last.state, trace, self.ended.ended_by)


def judge(
    ledger: LedgerHandle,
    rollouts: Sequence[tuple[str, str]],
    judging: Judging,
    world: World[Any],
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """How many verdicts were new. Rollouts that ended by a fault are not judged: they say nothing about the policy.

    Args:
        rollouts: (rollout_id, bundle_id) pairs, all of them in `world`.
        progress: called with the number of rollouts done since the last call.
    """
    created = 0
    drafts: dict[str, BundleDraft] = {}
    for start in range(0, len(rollouts), _BATCH):
        page = rollouts[start : start + _BATCH]
        new = load_many(ledger, (bundle_id for _, bundle_id in page if bundle_id not in drafts))
        drafts |= {bundle_id: bundle.draft for bundle_id, bundle in new.items()}
        seen = evidence(ledger, [rollout_id for rollout_id, _ in page])
        events = [
            _judged(ledger, rollout_id, JudgeTask(drafts[bundle_id], world.material), judging, seen[rollout_id])
            for rollout_id, bundle_id in page
            if rollout_id in seen and seen[rollout_id].ended_by in JUDGED_ENDS
        ]
        if events:
            created += sum(item.created for item in ledger.append(events).events)
        progress(len(page))
    return created


def _judged(ledger: LedgerHandle, rollout_id: str, task: JudgeTask, judging: Judging, seen: Evidence) -> New:
    try:
        verdict = judging.verifier.call(seen.s0, seen.s_end, seen.trace, task)
    except (VerifierFailed, WorldFailed, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        verdict = Verdict((), error=traceback.format_exc())
    return verdict_event(ledger, rollout_id, judging, verdict, seen.state_end)


def verdict_event(
    ledger: LedgerHandle, rollout_id: str, judging: Judging, verdict: Verdict, state_end: str, *, verdict_id: str | None = None
) -> New:
    """A verdict as an event that waits to be appended.

    Args:
        state_end: digest of the state that was judged.
        verdict_id: in place of the one id that a version's verdict on a rollout has.
    """
    proofs = [None if c.evidence is None else ledger.pending_json(c.evidence) for c in verdict.conditions]
    effects = ledger.pending_json([dict(effect) for effect in verdict.side_effects]) if verdict.side_effects else None
    error = None if verdict.error is None else ledger.pending(verdict.error)
    body = VerdictGiven(
        verdict_id=verdict_id or judging.verdict_id(rollout_id), rollout_id=rollout_id, verifier_id=judging.verifier.ref.method_id,
        verifier_kind=judging.kind, role=judging.role, status="completed" if verdict.error is None else "error",
        error=None if error is None else error.ref, passed=verdict.passed,
        conditions=[
            ConditionResult(name=c.name, status=c.status, in_basis=c.in_basis, evidence=None if proof is None else proof.ref)
            for c, proof in zip(verdict.conditions, proofs, strict=True)
        ],
        side_effects=None if effects is None else effects.ref, side_effect_count=len(verdict.side_effects), state_end=state_end,
    )  # fmt: skip
    blobs = [blob for blob in (*proofs, effects, error) if blob is not None]
    return ledger.new(body, *blobs, correlation_id=rollout_id)


def _step(call: ToolCalled, blobs: Mapping[str, bytes]) -> TraceStep:
    def text(ref: BlobRef) -> str:
        return blobs[ref.blob_id].decode("utf-8", "surrogatepass")

    arguments = {} if call.arguments_parsed is None else parse(blobs[call.arguments_parsed.blob_id])
    return TraceStep(call.turn, ToolCall(text(call.name), arguments, call.tool_call_id), Observation(text(call.result), call.error_class))
