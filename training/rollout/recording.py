"""Writes one rollout's events: its acts, its states, what was rewritten, and its one end. Writes the ledger."""

from collections.abc import Awaitable, Callable, Sequence

from ledger.blobs import Pending
from ledger.canonical import digest
from ledger.errors import IdempotencyConflict
from ledger.events import FaultInjected, HistoryRewritten, Participant, RolloutEnded, StateSnapshotted, ToolCalled
from ledger.events.model_call import CallRole
from ledger.ledger import LedgerHandle
from ledger.lineage import bound_calls, calls_digest
from ledger.order import Recorded
from ledger.store import New
from training.bundles import Harness
from training.hooks import Rewrite, asking
from training.rollout.episode import Act, End, Episode
from training.rollout.gateway_rollouts import RolloutCalls
from training.rollout.gateway_upstream import Scalar
from training.rollout.policies import Policy

Append = Callable[[Sequence[New]], Awaitable[object]]
Labels = Callable[[int], Sequence[FaultInjected]]


def no_labels(index: int) -> Sequence[FaultInjected]:
    """No labels of planted faults."""
    return ()


def participant_name(policy: str, role: CallRole) -> str:
    """The name of a policy's participant in a role: its own as the agent."""
    return policy if role == "agent" else f"{policy}/{role}"


def participants(policy: Policy, endpoint: str, harness: Harness) -> list[Participant]:
    """Who takes part in a rollout: the agent, then its sub-agents as one, then who writes summaries, as the harness has them."""
    roles: list[CallRole] = ["agent"]
    roles += ["sub_agent"] if harness.table.sub_agent is not None else []
    roles += ["summary"] if asking(harness.hooks) else []
    sampling: dict[str, Scalar | None] = {
        key: value for key, value in policy.sampling.items() if isinstance(value, int | float | str | bool | None)
    }
    return [
        Participant(
            name=participant_name(policy.name, role), role=role, model_version=policy.model_version, endpoint=endpoint, sampling=sampling,
            trainable=policy.trainable,
        )
        for role in roles
    ]  # fmt: skip


class RolloutRecord:
    """The record of one rollout under way.

    Attributes:
        rollout_id: whose it is.
    """

    def __init__(
        self, ledger: LedgerHandle, append: Append, rollout_id: str, *, correlation_id: str | None, labels: Labels = no_labels
    ) -> None:  # fmt: skip
        """`labels` gives the labels of planted faults that are due with or before tool call or model call `index`."""
        self.ledger, self.rollout_id = ledger, rollout_id
        self._append, self._correlation_id, self._labels = append, correlation_id, labels
        self._rewritten: list[New] = []
        self._rewritings = 0

    async def act(self, act: Act) -> None:
        """A tool call as it happened is durable when this returns."""
        pending = self.ledger.pending
        name, sampled = pending(act.sampled.name), pending(act.sampled.arguments)
        parsed = None if act.parsed is None else self.ledger.pending_json(dict(act.parsed))
        result = pending(act.observation.content)
        body = ToolCalled(
            rollout_id=self.rollout_id, index=act.index, turn=act.turn, model_call_id=act.model_call_id,
            tool_call_id=digest(act.sampled.call_id, allow_nul=True)[:16], name=name.ref, arguments_sampled=sampled.ref,
            arguments_parsed=None if parsed is None else parsed.ref, result=result.ref, error_class=act.observation.error_class,
            state_before=act.state_before, state_after=act.state_after, latency_s=act.latency_s, executed_by=act.executed_by,
        )  # fmt: skip
        blobs = [name, sampled, result] if parsed is None else [name, sampled, result, parsed]
        await self._append([*self._due(act.index), self._new(body, *blobs)])

    def rewrote(self, rewrite: Rewrite, participant: str | None, index: int) -> None:
        """Note a rewriting; it is appended before model call `index` is made."""
        summary = None if rewrite.summary is None else self.ledger.pending(rewrite.summary)
        body = HistoryRewritten(
            rollout_id=self.rollout_id, index=self._rewritings, dropped=rewrite.dropped, kept=rewrite.kept,
            summary=None if summary is None else summary.ref, reason=rewrite.reason[:500], participant=participant, before_call=index,
        )  # fmt: skip
        self._rewritings += 1
        self._rewritten.append(self._new(body, *([] if summary is None else [summary])))

    async def flush(self, index: int) -> None:
        """What is due before model call `index` is durable when this returns."""
        if events := [*self._due(index), *self._rewritten]:
            await self._append(events)
            self._rewritten = []

    async def snapshot(self, episode: Episode, step: int) -> New:
        """The event of the state at a step, to be appended."""
        view = self.ledger.pending_json(episode.world.view(episode.state))
        data = self.ledger.pending((await episode.world.snapshot(episode.state)).data, media="application/octet-stream")
        body = StateSnapshotted(
            rollout_id=self.rollout_id, step=step, state=episode.world.digest(episode.state), view=view.ref, snapshot=data.ref
        )
        return self._new(body, view, data)

    async def begin(self, episode: Episode) -> None:
        """The first state is durable when this returns."""
        await self._append([*self._due(0), await self.snapshot(episode, 0)])

    async def end(self, episode: Episode, end: End, calls: RolloutCalls, *, wall_s: float) -> None:
        """End the rollout, unless it has ended; its tokens are to be packed next."""
        detail = None if end.detail is None else self.ledger.pending(end.detail)
        body = RolloutEnded(
            rollout_id=self.rollout_id, ended_by=end.ended_by, boundary=end.boundary, reason=end.reason[:500],
            detail=None if detail is None else detail.ref, model_calls=len(calls.call_ids), tool_calls=episode.tool_calls,
            calls_digest=calls_digest(calls.call_ids), wall_s=wall_s + episode.unslept_s, sampling_s=calls.sampling_s,
            tool_s=episode.tool_s, superseded=end.ended_by == "cancelled",
            counters={name: count for name, count in sorted(episode.counters.items()) if count},
        )  # fmt: skip
        events = [*self._due(episode.tool_calls), *self._rewritten]
        if episode.state is not None:
            events.append(await self.snapshot(episode, episode.tool_calls + 1))
        events.append(self._new(body, *([] if detail is None else [detail])))
        try:
            await self._append(events)
        except IdempotencyConflict:
            # Another collector superseded this attempt while it ran; its end stands and this late one is not counted.
            pass

    def _due(self, index: int) -> list[New]:
        return [self._new(label) for label in self._labels(index)]

    def _new(self, body: FaultInjected | HistoryRewritten | RolloutEnded | StateSnapshotted | ToolCalled, *blobs: Pending) -> New:
        return self.ledger.new(body, *blobs, correlation_id=self._correlation_id)


def superseded_end(rollout_id: str, events: Sequence[Recorded], reason: str) -> RolloutEnded:
    """The end of a rollout whose process is gone, from what it left: cancelled, and never counted. What it took is not known."""
    call_ids = bound_calls(events)
    return RolloutEnded(
        rollout_id=rollout_id, ended_by="cancelled", boundary="operator", reason=f"superseded: {reason}", model_calls=len(call_ids),
        tool_calls=sum(event.kind == "ToolCalled" for event in events), calls_digest=calls_digest(call_ids), wall_s=None, sampling_s=None,
        tool_s=None, superseded=True,
    )  # fmt: skip
