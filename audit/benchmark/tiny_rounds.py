"""Tiny recorded rounds of training: four rollouts with tokens, verdicts and rewards, as the events of a real round. Pure but for blobs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from audit.benchmark.verifiers import planted_verifiers
from ledger.blobs import Pending
from ledger.events import (
    ConditionResult,
    EventBody,
    GroupDispatched,
    ModelCallDispatched,
    ModelCalled,
    Participant,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    VerdictGiven,
    VersionSpan,
)
from ledger.events.model_call import call_stream, called_key
from ledger.ids import derived_id, event_id
from ledger.ledger import LedgerHandle
from ledger.lineage import calls_digest
from ledger.store import New
from ledger.tokens import captured, ids_bytes, logprob_bytes
from training.rewards import rewards

SIZE = 4
CALLS = 2
_VOCABULARY = 500


@dataclass(frozen=True)
class Round:
    """One round of a tiny run.

    Attributes:
        run_id, number: which run, and which of its rounds, from 0.
        bundle_id: the task that all rollouts attempt.
        version: that the rollouts are said to be of; `served` is the one that sampled.
        zeros: whether the engine fills in zeros for log-probabilities.
        values: reward of each rollout; None for one whose world broke, so that nothing judged it.
    """

    run_id: str
    number: int
    bundle_id: str
    version: str
    served: str
    zeros: bool
    values: tuple[float | None, ...]

    @property
    def group_id(self) -> str:
        """The id of its one group."""
        return derived_id("group", self.run_id, self.number)

    @property
    def rollout_ids(self) -> tuple[str, ...]:
        """Ids of its rollouts by slot."""
        return tuple(derived_id("rollout", self.run_id, self.number, slot) for slot in range(SIZE))

    def reward_id(self, slot: int) -> str:
        """The id of a rollout's reward."""
        return derived_id("reward", self.rollout_ids[slot])

    def sampled(self, slot: int) -> tuple[tuple[int, ...], ...]:
        """The sampled tokens of each call of a rollout."""
        rng = Random(self.rollout_ids[slot])
        return tuple(tuple(rng.randrange(3, _VOCABULARY) for _ in range(rng.randrange(4, 12))) for _ in range(CALLS))


def round_events(ledger: LedgerHandle, round: Round, experiment_id: str) -> Iterator[New]:
    """All events of a round up to its rewards."""
    body = GroupDispatched(
        group_id=round.group_id, bundle_id=round.bundle_id, size=SIZE, experiment_id=experiment_id, run_id=round.run_id,
        round=round.number, policy="tiny", rollout_kind="ordinary",
    )  # fmt: skip
    yield ledger.new(body, correlation_id=round.run_id)
    for slot in range(SIZE):
        yield from _rollout(ledger, round, slot)


def _rollout(ledger: LedgerHandle, round: Round, slot: int) -> Iterator[New]:
    rollout_id, value = round.rollout_ids[slot], round.values[slot]
    agent = Participant(name="tiny", role="agent", model_version=round.version, endpoint="torch", sampling={}, trainable=True)

    def new(body: EventBody, *blobs: Pending) -> New:
        return ledger.new(body, *blobs, correlation_id=round.run_id)

    yield new(RolloutStarted(
        rollout_id=rollout_id, group_id=round.group_id, bundle_id=round.bundle_id, slot=slot, attempt=1, rollout_kind="ordinary",
        participants=[agent], seed=slot,
    ))  # fmt: skip
    call_ids = [derived_id("call", rollout_id, index) for index in range(CALLS)]
    prompt: list[int] = [1, 2, 1 + slot % 2]
    for index, (call_id, sampled) in enumerate(zip(call_ids, round.sampled(slot), strict=True)):
        yield from _call(ledger, round, (rollout_id, call_id, index), prompt, sampled)
        prompt = [*prompt, *sampled, 2, 1]
    yield new(RolloutEnded(
        rollout_id=rollout_id, ended_by="world_error" if value is None else "finished", boundary="world" if value is None else "policy",
        reason="the world broke" if value is None else "answered every user turn", model_calls=CALLS, tool_calls=0,
        calls_digest=calls_digest(call_ids), wall_s=1.0, sampling_s=0.5, tool_s=0.0,
    ))  # fmt: skip
    verdict_ids: list[str] = []
    if value is not None:
        verifier_id = planted_verifiers.bind("misjudging", inner="end_state", key="", marks=[]).ref.method_id
        verdict_ids = [derived_id("verdict", rollout_id)]
        yield new(VerdictGiven(
            verdict_id=verdict_ids[0], rollout_id=rollout_id, verifier_id=verifier_id, verifier_kind="program", role="bundle",
            status="completed", passed=value == 1.0, side_effect_count=0,
            conditions=[ConditionResult(name="state", status="passed" if value == 1.0 else "failed", in_basis=True, evidence=None)],
        ))  # fmt: skip
    rule = rewards.bind("all_conditions").ref
    yield new(RewardDerived(
        reward_id=round.reward_id(slot), rollout_id=rollout_id, rule=rule.name, rule_id=rule.method_id, verdict_ids=verdict_ids,
        value=value, reason="no verdict" if value is None else "passed" if value == 1.0 else "failed",
    ))  # fmt: skip


def _call(
    ledger: LedgerHandle, round: Round, place: tuple[str, str, int], prompt: Sequence[int], sampled: Sequence[int]
) -> Iterator[New]:  # fmt: skip
    rollout_id, call_id, index = place
    request, answer = ledger.pending_json({"messages": [], "call": index}), ledger.pending_json({"choices": [], "call": index})
    rng = Random(call_id)
    logprobs = [0.0 if round.zeros else -rng.expovariate(2.0) for _ in sampled]
    arrays = (ids_bytes(list(prompt)), ids_bytes(list(sampled)), logprob_bytes(logprobs))
    own = event_id(ledger.ledger_id, ledger.project, call_stream(rollout_id, call_id), called_key(call_id))
    held = captured(arrays, event_id=own, subject=ledger.subject(ledger.subject_id))
    yield ledger.new(ModelCallDispatched(
        call_id=call_id, rollout_id=rollout_id, index=index, participant="tiny", role="agent", request=request.ref,
        request_digest=request.ref.blob_id, upstream="torch://tiny", model="tiny", stream_requested=False,
    ), request, correlation_id=round.run_id)  # fmt: skip
    yield ledger.new(ModelCalled(
        call_id=call_id, rollout_id=rollout_id, index=index, participant="tiny", role="agent", status="completed", response=answer.ref,
        finish_reason="stop", attempts=1, latency_s=0.2, logprobs_mode="processed_logprobs",
        usage={"prompt_tokens": len(prompt), "completion_tokens": len(sampled)},
        version_spans=[VersionSpan(model_version=round.served, start=0, end=len(sampled))], prompt_ids=held.prompt_ids,
        sampled_ids=held.sampled_ids, logprobs=held.logprobs,
    ), answer, tokens=held.staged, correlation_id=round.run_id)  # fmt: skip
