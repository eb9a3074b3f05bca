"""Rounds for tests: rollouts whose calls have given tokens, with tool calls, ends, verdicts and rewards, written to a real ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger import tokens
from ledger.blobs import Pending
from ledger.events import (
    HistoryRewritten,
    ModelCallDispatched,
    ModelCalled,
    Participant,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    ToolCalled,
    VerdictGiven,
    VersionSpan,
)
from ledger.ledger import LedgerHandle
from ledger.lineage import calls_digest
from ledger.store import New
from tests.token_histories import held
from tests.update_histories import digest
from training.rows import SampledTokens


@dataclass(frozen=True)
class Told:
    """What a test says of one rollout.

    Attributes:
        calls: its model calls.
        reward: of the rule `outcome`; None writes a reward without a number, `absent` writes none.
        tools: call id to the tool calls of its turn, each (state before, state after, error class).
        served: call id to the versions that sampled its tokens, a token each but for the last; without an entry `version` did.
    """

    rollout_id: str
    calls: Sequence[SampledTokens]
    bundle: str = "task"
    group: str = "g"
    slot: int = 0
    ended_by: str = "finished"
    passed: bool | None = True
    verdict_status: str = "completed"
    reward: float | str | None = 1.0
    tools: Mapping[str, Sequence[tuple[str, str, str | None]]] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    parent: tuple[str, int] | None = None
    scripted: bool = False
    version: str = "policy-1"
    served: Mapping[str, Sequence[str]] = field(default_factory=dict)


def write_round(ledger: LedgerHandle, rollouts: Sequence[Told]) -> None:
    """Append all events of these rollouts, a rollout at a time."""
    for told in rollouts:
        ledger.append(list(_events(ledger, told)))


def _spans(versions: Sequence[str], tokens: int) -> list[VersionSpan]:
    return [
        VersionSpan(model_version=version, start=n, end=n + 1 if n + 1 < len(versions) else tokens) for n, version in enumerate(versions)
    ]


def _events(ledger: LedgerHandle, told: Told) -> list[New]:
    blob = ledger.pending("{}")
    made: list[New] = []

    def write(body: Any, *pending: Pending, staged: Any = None) -> None:
        made.append(ledger.new(body, *pending, tokens=staged))

    names = dict.fromkeys(call.participant for call in told.calls) or {"agent": None}
    write(RolloutStarted(
        rollout_id=told.rollout_id, group_id=told.group, bundle_id=digest(told.bundle), slot=told.slot, attempt=1, rollout_kind="ordinary",
        participants=[
            Participant(name=name, role="agent", model_version=told.version, endpoint="test", sampling={}, trainable=name == "agent")
            for name in names
        ],
        seed=1, parent_rollout_id=None if told.parent is None else told.parent[0], fork_step=None if told.parent is None else told.parent[1],
    ))  # fmt: skip
    tool_index = 0
    for call in told.calls:
        call_id = f"{told.rollout_id}.{call.call_id}"
        if call.rewritten is not None:
            write(HistoryRewritten(rollout_id=told.rollout_id, index=call.index, dropped=2, kept=2, summary=None, reason=call.rewritten))
        write(ModelCallDispatched(
            call_id=call_id, rollout_id=told.rollout_id, index=call.index, participant=call.participant, role=call.role,
            request=blob.ref, request_digest=blob.ref.blob_id, upstream="http://127.0.0.1:1/v1", model="m", stream_requested=False,
            retry_of=None if call.retry_of is None else f"{told.rollout_id}.{call.retry_of}",
        ), blob)  # fmt: skip
        arrays = (
            tokens.ids_bytes(call.prompt_ids),
            tokens.ids_bytes(call.sampled_ids),
            None if call.logprobs is None else call.logprobs.tobytes(),
        )
        own = tokens.CapturedTokens() if told.scripted else held(ledger, arrays, told.rollout_id, call_id)
        write(ModelCalled(
            call_id=call_id, rollout_id=told.rollout_id, index=call.index, participant=call.participant, role=call.role, status="completed",
            response=blob.ref, finish_reason=call.finish_reason, attempts=1, latency_s=0.1, sampling=dict(told.sampling),
            logprobs_mode=None if told.scripted else "processed_logprobs", prompt_ids=own.prompt_ids, sampled_ids=own.sampled_ids,
            logprobs=own.logprobs, version_spans=_spans(told.served.get(call.call_id, (told.version,)), len(call.sampled_ids)),
        ), blob, staged=own.staged)  # fmt: skip
        for before, after, error in told.tools.get(call.call_id, ()):
            write(ToolCalled(
                rollout_id=told.rollout_id, index=tool_index, turn=call.index, model_call_id=call_id, tool_call_id=f"t{tool_index}",
                name=blob.ref, arguments_sampled=blob.ref, arguments_parsed=None, result=blob.ref, error_class=error,
                state_before=digest(before), state_after=digest(after), latency_s=0.0,
            ), blob)  # fmt: skip
            tool_index += 1
    write(RolloutEnded(
        rollout_id=told.rollout_id, ended_by=told.ended_by, boundary="policy", reason="done", model_calls=len(told.calls),
        tool_calls=tool_index, calls_digest=calls_digest([f"{told.rollout_id}.{call.call_id}" for call in told.calls]),
        wall_s=1.0, sampling_s=0.5, tool_s=0.1,
    ))  # fmt: skip
    verdict_id = f"v.{told.rollout_id}"
    write(VerdictGiven(
        verdict_id=verdict_id, rollout_id=told.rollout_id, verifier_id=digest("verifier"), verifier_kind="program", role="bundle",
        status=told.verdict_status, passed=told.passed if told.verdict_status == "completed" else None, conditions=[], side_effect_count=0,
    ))  # fmt: skip
    if told.reward != "absent":
        write(RewardDerived(
            reward_id=f"w.{told.rollout_id}", rollout_id=told.rollout_id, rule="outcome", rule_id=digest("rule"), verdict_ids=[verdict_id],
            value=told.reward, reason="said by the test", terms={"share": 0.5},
        ))  # fmt: skip
    return made
