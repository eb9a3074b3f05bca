"""What a trace is made of: one frozen dataclass a step of the chain from a reward to the sampled tokens. Pure."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Check:
    """What was derived again, and whether it came out as recorded."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class RewardTrace:
    """A reward as derived."""

    reward_id: str
    value: float | None
    reason: str
    rule: str
    rule_id: str
    verdict_ids: tuple[str, ...]
    terms: Mapping[str, float | None]
    position: int | None


@dataclass(frozen=True)
class ConditionTrace:
    """A condition of a verdict; `evidence` is JSON, text, or None where none was given or it cannot be read."""

    name: str
    status: str
    in_basis: bool
    evidence: Any


@dataclass(frozen=True)
class VerdictTrace:
    """A verdict with its verifier's name and source; `counts`: it is the one that the outcome follows."""

    verdict_id: str
    verifier_id: str
    verifier: str | None
    verifier_kind: str
    planted: bool
    source_digest: str | None
    source: str | None
    role: str
    status: str
    passed: bool | None
    counts: bool
    conditions: tuple[ConditionTrace, ...]
    error: str | None
    side_effects: Any
    side_effect_count: int
    state_end: str | None
    position: int | None


@dataclass(frozen=True)
class ReviewTrace:
    """A person's decision with its reason."""

    review_id: str
    reviewer_id: str
    decision: str
    reason: str | None
    right_verdict_id: str | None
    verdict_ids: tuple[str, ...]
    occurred_at: datetime
    counts: bool
    position: int | None


@dataclass(frozen=True)
class RolloutTrace:
    """The attempt itself: its place, its participants, its end and its outcome; durations in seconds."""

    rollout_id: str
    group_id: str
    bundle_id: str
    slot: int
    attempt: int
    rollout_kind: str
    participants: tuple[Mapping[str, Any], ...]
    seed: int
    parent_rollout_id: str | None
    fork_step: int | None
    ended_by: str | None
    boundary: str | None
    reason: str | None
    detail: Any
    superseded: bool
    outcome: str
    wall_s: float | None
    sampling_s: float | None
    tool_s: float | None
    position: int | None


@dataclass(frozen=True)
class CallTrace:
    """A model call to its raw tokens; `status` None: only the intent is there. An array is None where it was not captured or is damaged."""

    call_id: str
    index: int
    participant: str
    role: str
    status: str | None
    model: str | None
    request: Any
    response: Any
    prompt_ids: tuple[int, ...] | None
    sampled_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    logprobs_mode: str | None
    tokens_missing: str | None
    finish_reason: str | None
    model_versions: tuple[str, ...]
    sampling: Mapping[str, Any]
    usage: Mapping[str, int | None]
    error: str | None
    error_source: str | None
    retry_of: str | None
    latency_s: float | None
    position: int | None


@dataclass(frozen=True)
class ToolTrace:
    """A tool call as sampled, as parsed and as answered."""

    index: int
    turn: int
    model_call_id: str | None
    tool_call_id: str
    name: str | None
    arguments_sampled: str | None
    arguments: Any
    result: str | None
    error_class: str | None
    state_before: str
    state_after: str
    latency_s: float
    position: int | None


@dataclass(frozen=True)
class SnapshotTrace:
    """The state at a step, as a view of it."""

    step: int
    state: str
    view: Any
    position: int | None


@dataclass(frozen=True)
class BundleTrace:
    """The task: its parts by id, its draft, reference and provenance."""

    bundle_id: str
    name: str
    world: str
    split: str
    proposer: str
    world_id: str
    verifier_id: str
    harness_id: str
    draft: Any
    reference: Any
    provenance: Any
    position: int | None


@dataclass(frozen=True)
class GroupTrace:
    """What the rollout was dispatched as part of."""

    group_id: str
    size: int
    experiment_id: str
    run_id: str
    round: int
    policy: str
    position: int | None


@dataclass(frozen=True)
class ModelTrace:
    """A model version that sampled in the rollout, or that such a one was trained from."""

    model_version: str
    name: str
    scripted: bool
    weights_digest: str | None
    tokenizer_digest: str | None
    template_digest: str | None
    parent: str | None
    position: int | None


@dataclass(frozen=True)
class Trace:
    """The whole chain around a reward or a rollout, with what was checked on the way.

    Attributes:
        node: where the trace began, `reward-<id>` or `rollout-<id>`.
        reward: the reward asked about; None when a rollout was.
        rewards: all rewards of the rollout, oldest first.
    """

    node: str
    reward: RewardTrace | None
    rewards: tuple[RewardTrace, ...]
    verdicts: tuple[VerdictTrace, ...]
    reviews: tuple[ReviewTrace, ...]
    rollout: RolloutTrace
    bundle: BundleTrace | None
    group: GroupTrace | None
    models: tuple[ModelTrace, ...]
    calls: tuple[CallTrace, ...]
    tools: tuple[ToolTrace, ...]
    snapshots: tuple[SnapshotTrace, ...]
    checks: tuple[Check, ...]

    @property
    def intact(self) -> bool:
        """Whether everything came out as recorded."""
        return all(check.passed for check in self.checks)

    @property
    def steps(self) -> tuple[CallTrace | ToolTrace, ...]:
        """Model calls, each followed by the tool calls that it asked for; tool calls of no known model call come last."""
        known = {call.call_id for call in self.calls}
        ordered: list[CallTrace | ToolTrace] = []
        for call in self.calls:
            ordered.append(call)
            ordered += [tool for tool in self.tools if tool.model_call_id == call.call_id]
        return (*ordered, *(tool for tool in self.tools if tool.model_call_id not in known))

    def as_json(self) -> dict[str, Any]:
        """The trace as JSON; infinities are written as text."""
        value: dict[str, Any] = _json(dataclasses.asdict(self))
        return {**value, "intact": self.intact}


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return value
