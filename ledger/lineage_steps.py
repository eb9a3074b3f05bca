"""From the events of a chain and the blobs they name to the steps of a trace. Pure."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ledger.canonical import parse
from ledger.errors import BlobError, CanonicalError, UnknownEventKind, UnknownId
from ledger.events import (
    BlobRef,
    BundleSealed,
    EventBody,
    GroupDispatched,
    ModelCallDispatched,
    ModelCalled,
    ModelVersionPublished,
    ReviewDecided,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    StateSnapshotted,
    ToolCalled,
    VerdictGiven,
    VerifierRegistered,
)
from ledger.lineage_checks import checked
from ledger.lineage_read import Found
from ledger.lineage_rows import (
    BundleTrace,
    CallTrace,
    ConditionTrace,
    GroupTrace,
    ModelTrace,
    ReviewTrace,
    RewardTrace,
    RolloutTrace,
    SnapshotTrace,
    ToolTrace,
    Trace,
    VerdictTrace,
)
from ledger.lineage_tokens import CallTokens, call_tokens, stream_faults
from ledger.order import Recorded
from ledger.projections import MODELS, folded

Body = TypeVar("Body", bound=EventBody)
SHREDDED = "(shredded)"
WITHHELD = "(withheld)"


@dataclass
class Chain:
    """The events around a node in position order, and the blobs that they name."""

    node: str
    found: Found
    bodies: list[tuple[Recorded, EventBody]] = field(default_factory=list)
    broken_events: list[str] = field(default_factory=list)
    tokens: dict[str, CallTokens] = field(default_factory=dict)

    def __post_init__(self) -> None:
        noun, _, ident = self.node.partition("-")
        for event in self.found.events:
            try:
                self.bodies.append((event, event.body))
            except (UnknownEventKind, CanonicalError) as error:
                self.broken_events.append(f"position {event.position} {event.kind} cannot be read: {error}")
        asked = [body.rollout_id for _, body in self.of(RewardDerived) if body.reward_id == ident] if noun == "reward" else [ident]
        self.rollout_id = asked[0] if asked else ""
        self.tokens = {body.call_id: call_tokens(body, event.event_id, self.found.tokens) for event, body in self.of(ModelCalled)}

    @property
    def data(self) -> dict[str, bytes]:
        """The bytes of each blob that could be read, by blob id."""
        return self.found.data

    @cached_property
    def unreadable(self) -> dict[str, BlobError]:
        """Why nothing is known of each blob whose subject was shredded or whose key stayed with another ledger, by blob id."""
        return {**self.found.shredded, **self.found.withheld}

    @property
    def broken_blobs(self) -> list[str]:
        """What is wrong with each blob that is shown and cannot be read."""
        wanted = dict.fromkeys(ref.blob_id for _, body in self.bodies for ref in _shown(body))
        missing = [blob_id for blob_id in wanted if blob_id not in self.data and blob_id not in self.unreadable]
        return [self.found.broken.get(blob_id, f"no blob {blob_id} in this ledger") for blob_id in missing]

    def of(self, kind: type[Body]) -> Iterator[tuple[Recorded, Body]]:
        """The events of a kind with their bodies, in position order."""
        for event, body in self.bodies:
            if isinstance(body, kind):
                yield event, body

    def sha256(self, ref: BlobRef) -> str | None:
        """Hex SHA-256 of a blob's bytes, without the salt of its name; None when it cannot be read."""
        return hashlib.sha256(self.data[ref.blob_id]).hexdigest() if ref.blob_id in self.data else None

    def text(self, ref: BlobRef | None) -> str | None:
        """A blob as text, `SHREDDED` or `WITHHELD` for one without a key here; None when there is none or it cannot be read."""
        if ref is not None and ref.blob_id in self.unreadable:
            return SHREDDED if ref.blob_id in self.found.shredded else WITHHELD
        if ref is None or ref.blob_id not in self.data:
            return None
        try:
            return self.data[ref.blob_id].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return self.data[ref.blob_id].decode("utf-8", "backslashreplace")

    def value(self, ref: BlobRef | None) -> Any:
        """A blob as JSON where it is JSON, else as text."""
        text = self.text(ref)
        if ref is None or text is None or ref.media != "application/json":
            return text
        try:
            return parse(text)
        except CanonicalError:
            return text


def assembled(chain: Chain) -> Trace:
    """The trace of a chain whose blobs have been fetched.

    Raises:
        UnknownId: the rollout has no start that can be read.
    """
    rows = [row for row in folded(MODELS["rollouts"], [event for event, _ in chain.bodies]) if row["rollout_id"] == chain.rollout_id]
    if not rows:
        raise UnknownId(f"{chain.node}: rollout {chain.rollout_id!r} has no start that can be read; {'; '.join(chain.broken_events)}")
    row = rows[0]
    rewards = tuple(_reward(event, body) for event, body in chain.of(RewardDerived))
    bundles = [_bundle(chain, event, body) for event, body in chain.of(BundleSealed)]
    groups = [
        GroupTrace(body.group_id, body.size, body.experiment_id, body.run_id, body.round, body.policy, event.position)
        for event, body in chain.of(GroupDispatched)
    ]
    return Trace(
        node=chain.node,
        reward=next((reward for reward in rewards if f"reward-{reward.reward_id}" == chain.node), None),
        rewards=rewards,
        verdicts=tuple(_verdict(chain, event, body, row["verdict_id"]) for event, body in chain.of(VerdictGiven)),
        reviews=tuple(_review(chain, event, body, row["verdict_id"]) for event, body in chain.of(ReviewDecided)),
        rollout=_rollout(chain, row["outcome"]),
        bundle=bundles[0] if bundles else None,
        group=groups[0] if groups else None,
        models=tuple(_model(event, body) for event, body in chain.of(ModelVersionPublished)),
        calls=tuple(_calls(chain)),
        tools=tuple(_tool(chain, event, body) for event, body in chain.of(ToolCalled)),
        snapshots=tuple(
            SnapshotTrace(body.step, body.state, chain.value(body.view), event.position) for event, body in chain.of(StateSnapshotted)
        ),
        checks=checked(
            chain.bodies,
            f"rollout-{chain.rollout_id}",
            blobs=len(chain.data),
            tokens=chain.tokens,
            token_faults=stream_faults(chain.found.tokens),
            broken=(chain.broken_events, chain.broken_blobs),
            shredded=set(chain.found.shredded),
            withheld=set(chain.found.withheld),
        ),
    )


def _shown(body: EventBody) -> list[BlobRef]:
    """The blobs of a body but for the bytes that restore a state, which nobody reads here."""
    hidden = body.snapshot.blob_id if isinstance(body, StateSnapshotted) and body.snapshot.blob_id != body.view.blob_id else None
    return [ref for ref in body.blobs() if ref.blob_id != hidden]


def _reward(event: Recorded, body: RewardDerived) -> RewardTrace:
    return RewardTrace(
        body.reward_id, body.value, body.reason, body.rule, body.rule_id, tuple(body.verdict_ids), dict(body.terms), event.position
    )


def _verdict(chain: Chain, event: Recorded, body: VerdictGiven, counting: str | None) -> VerdictTrace:
    verifier = next((known for _, known in chain.of(VerifierRegistered) if known.verifier_id == body.verifier_id), None)
    return VerdictTrace(
        verdict_id=body.verdict_id, verifier_id=body.verifier_id, verifier=None if verifier is None else verifier.name,
        verifier_kind=body.verifier_kind, planted=verifier is not None and verifier.planted,
        source_digest=None if verifier is None else chain.sha256(verifier.source),
        source=None if verifier is None else chain.text(verifier.source), role=body.role,
        status=body.status, passed=body.passed, counts=body.verdict_id == counting,
        conditions=tuple(ConditionTrace(c.name, c.status, c.in_basis, chain.value(c.evidence)) for c in body.conditions),
        error=chain.text(body.error), side_effects=chain.value(body.side_effects), side_effect_count=body.side_effect_count,
        state_end=body.state_end, position=event.position,
    )  # fmt: skip


def _review(chain: Chain, event: Recorded, body: ReviewDecided, counting: str | None) -> ReviewTrace:
    return ReviewTrace(
        review_id=body.review_id, reviewer_id=body.reviewer_id, decision=body.decision, reason=chain.text(body.reason),
        right_verdict_id=body.right_verdict_id, verdict_ids=tuple(body.verdict_ids), occurred_at=event.occurred_at,
        counts=body.review_id == counting, position=event.position,
    )  # fmt: skip


def _rollout(chain: Chain, outcome: str) -> RolloutTrace:
    event, start = next(chain.of(RolloutStarted))
    end = next((body for _, body in chain.of(RolloutEnded)), None)
    return RolloutTrace(
        rollout_id=start.rollout_id, group_id=start.group_id, bundle_id=start.bundle_id, slot=start.slot, attempt=start.attempt,
        rollout_kind=start.rollout_kind, participants=tuple(who.model_dump(mode="json") for who in start.participants), seed=start.seed,
        parent_rollout_id=start.parent_rollout_id, fork_step=start.fork_step, ended_by=None if end is None else end.ended_by,
        boundary=None if end is None else end.boundary, reason=None if end is None else end.reason,
        detail=None if end is None else chain.value(end.detail), superseded=end is not None and end.superseded, outcome=outcome,
        wall_s=None if end is None else end.wall_s, sampling_s=None if end is None else end.sampling_s,
        tool_s=None if end is None else end.tool_s, position=event.position,
    )  # fmt: skip


def _bundle(chain: Chain, event: Recorded, body: BundleSealed) -> BundleTrace:
    return BundleTrace(
        body.bundle_id, body.name, body.world, body.split, body.proposer, body.world_id, body.verifier_id, body.harness_id,
        chain.value(body.draft), chain.value(body.reference), chain.value(body.provenance), event.position,
    )  # fmt: skip


def _model(event: Recorded, body: ModelVersionPublished) -> ModelTrace:
    return ModelTrace(
        body.model_version, body.name, body.scripted, body.weights_digest, body.tokenizer_digest, body.template_digest, body.parent,
        event.position,
    )  # fmt: skip


def _calls(chain: Chain) -> Iterator[CallTrace]:
    intents = {body.call_id: (event, body) for event, body in chain.of(ModelCallDispatched)}
    answers = {body.call_id: (event, body) for event, body in chain.of(ModelCalled)}
    both = {call_id: answers.get(call_id) or intents[call_id] for call_id in {**intents, **answers}}
    for call_id, (event, body) in sorted(both.items(), key=lambda item: (item[1][1].index, item[0])):
        intent = intents[call_id][1] if call_id in intents else None
        answer = body if isinstance(body, ModelCalled) else None
        tokens = chain.tokens.get(call_id, CallTokens())
        yield CallTrace(
            call_id=call_id, index=body.index, participant=body.participant, role=body.role,
            status=None if answer is None else answer.status, model=None if intent is None else intent.model,
            request=None if intent is None else chain.value(intent.request),
            response=None if answer is None else chain.value(answer.response),
            prompt_ids=tokens.prompt_ids, sampled_ids=tokens.sampled_ids, logprobs=tokens.logprobs,
            logprobs_mode=None if answer is None else answer.logprobs_mode,
            tokens_missing=None if answer is None else answer.tokens_missing,
            finish_reason=None if answer is None else answer.finish_reason,
            model_versions=() if answer is None else tuple(dict.fromkeys(span.model_version for span in answer.version_spans)),
            sampling={} if answer is None else dict(answer.sampling), usage={} if answer is None else dict(answer.usage),
            error=None if answer is None else chain.text(answer.error), error_source=None if answer is None else answer.error_source,
            retry_of=None if intent is None else intent.retry_of, latency_s=None if answer is None else answer.latency_s,
            position=event.position,
        )  # fmt: skip


def _tool(chain: Chain, event: Recorded, body: ToolCalled) -> ToolTrace:
    return ToolTrace(
        index=body.index, turn=body.turn, model_call_id=body.model_call_id, tool_call_id=body.tool_call_id, name=chain.text(body.name),
        arguments_sampled=chain.text(body.arguments_sampled), arguments=chain.value(body.arguments_parsed), result=chain.text(body.result),
        error_class=body.error_class, state_before=body.state_before, state_after=body.state_after, latency_s=body.latency_s,
        position=event.position,
    )  # fmt: skip
