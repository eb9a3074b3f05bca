"""What the read functions of `ledger.queries` take and return: a filter, a page, and one frozen dataclass a kind of line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from ledger.outcome import FAULTS, JUDGED, OUTCOMES

Line = TypeVar("Line")


@dataclass(frozen=True)
class Filter:
    """Which rollouts a question is about; None asks for all. `counted` leaves out superseded attempts when True."""

    experiment_id: str | None = None
    run_id: str | None = None
    round: int | None = None
    policy: str | None = None
    world: str | None = None
    split: str | None = None
    bundle_id: str | None = None
    group_id: str | None = None
    rollout_id: str | None = None
    outcome: str | None = None
    ended_by: str | None = None
    counted: bool | None = None


EVERYTHING = Filter()


@dataclass(frozen=True)
class Page(Generic[Line]):
    """Some lines of `total`, those after the first `offset`."""

    lines: tuple[Line, ...]
    total: int
    offset: int


@dataclass(frozen=True)
class RolloutLine:
    """A rollout with its bundle's and its group's names, and its newest reward.

    Attributes:
        bundle: readable name; None with `world` and `split` when the bundle was never sealed here.
        policy: of the group; of the participant when the group was never dispatched here.
        passed: what the verdict that counts says; None without one, or when it is an error.
        verdict_id: the verdict that counts; a review's id when a person decided.
        reward: value of the newest reward; None is missing, not zero.
        reward_id: the newest reward; None when none was derived.
    """

    rollout_id: str
    bundle_id: str
    bundle: str | None
    world: str | None
    split: str | None
    group_id: str
    experiment_id: str | None
    run_id: str | None
    round: int | None
    policy: str | None
    participant: str | None
    model_version: str | None
    rollout_kind: str
    slot: int
    attempt: int
    superseded: bool
    ended_by: str | None
    boundary: str | None
    reason: str | None
    outcome: str
    passed: bool | None
    verdict_id: str | None
    verdict_status: str | None
    model_calls: int
    tool_calls: int
    sampled_tokens: int
    started_position: int
    ended_position: int | None
    reward_id: str | None
    reward: float | None
    reward_reason: str | None


@dataclass(frozen=True)
class RewardLine:
    """A reward with the rollout it is for. `value` None is missing, and `reason` says why."""

    reward_id: str
    value: float | None
    reason: str
    rule: str
    verdict_ids: tuple[str, ...]
    position: int
    rollout: RolloutLine


@dataclass(frozen=True)
class VerdictLine:
    """A verdict, or a person's decision (role `review`, without verifier).

    Attributes:
        conditions: name, status, in_basis and evidence (a blob reference or None) of each condition.
        counts: whether it is the verdict that counts for its rollout.
    """

    verdict_id: str
    rollout_id: str
    verifier_id: str | None
    verifier: str | None
    verifier_kind: str
    planted: bool
    role: str
    status: str
    passed: bool | None
    conditions: tuple[Mapping[str, Any], ...]
    side_effect_count: int
    position: int
    counts: bool


@dataclass(frozen=True)
class CallLine:
    """A model call; `status` None: only the intent is there. `rollout_id` None: nobody said whose it is."""

    call_id: str
    rollout_id: str | None
    index: int
    participant: str
    role: str
    model: str | None
    status: str | None
    error_source: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    sampled_tokens: int | None
    logprobs_mode: str | None
    retry_of: str | None
    dispatched_position: int | None
    called_position: int | None


@dataclass(frozen=True)
class RolloutDetail:
    """A rollout with everything that was said about it, and the other attempts at its slot."""

    line: RolloutLine
    verdicts: tuple[VerdictLine, ...]
    rewards: tuple[RewardLine, ...]
    calls: tuple[CallLine, ...]
    attempts: tuple[RolloutLine, ...]


@dataclass(frozen=True)
class EventLine:
    """An ordered event as a line, with its body as JSON."""

    position: int
    event_id: str
    stream: str
    version: int
    kind: str
    occurred_at: datetime
    actor_id: str
    key: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Disagreement:
    """A rollout whose completed verdicts differ.

    Attributes:
        verdicts: all completed verdicts of verifiers that say passed or failed, oldest first.
        reviews: people's decisions, oldest first; `passed` None is unclear.
    """

    rollout: RolloutLine
    verdicts: tuple[VerdictLine, ...]
    reviews: tuple[VerdictLine, ...]

    @property
    def reviewed(self) -> bool:
        """Whether a person has settled it: an unclear decision has not."""
        return any(review.passed is not None for review in self.reviews)


@dataclass(frozen=True)
class Coverage:
    """Slots of groups: expected = measured + masked + failed + omitted + unknown, of which no two share a slot.

    Attributes:
        experiment_id, round, policy, world, group_id: of the groups; None where the line is not of one alone.
        expected: slots that were dispatched.
        measured: slots whose counted attempt has a verdict that is evidence about the policy.
        masked: slots whose counted attempt has a valid verdict that is none, because something else decided it or nobody knows what did.
        failed: slots whose attempt broke before there was a verdict: environment, verifier, harness or engine.
        omitted: slots whose attempts were called off on purpose.
        unknown: all that is left: never begun, still running, not judged yet, gone without a trace.
        extra: rollouts outside the dispatched slots, in none of the other numbers.
        succeeded: of the measured.
    """

    experiment_id: str | None
    round: int | None
    policy: str | None
    world: str | None
    group_id: str | None
    groups: int
    expected: int
    measured: int
    masked: int
    failed: int
    omitted: int
    extra: int
    succeeded: int

    @property
    def unknown(self) -> int:
        """By subtraction alone."""
        return self.expected - self.measured - self.masked - self.failed - self.omitted

    @property
    def of_measured(self) -> float | None:
        """Success rate over what was measured, which flatters where failures are excluded; None when nothing was."""
        return self.succeeded / self.measured if self.measured else None

    @property
    def of_expected(self) -> float:
        """Success rate over all that was dispatched, with everything that is missing counted as no success."""
        return self.succeeded / self.expected


@dataclass(frozen=True)
class OutcomeSummary:
    """How many rollouts ended how, of those that are not superseded.

    Attributes:
        key: the values that the rows are grouped by, by name.
        counts: outcome to number; every outcome is named.
        superseded: attempts that another one replaced, in none of the counts.
        rewards: rollouts with a reward that has a value.
        mean_reward: over those; None without any.
    """

    key: Mapping[str, Any]
    counts: Mapping[str, int]
    superseded: int
    rewards: int
    mean_reward: float | None

    @property
    def rollouts(self) -> int:
        """All counted rollouts."""
        return sum(self.counts.values())

    @property
    def judged(self) -> int:
        """Rollouts that are evidence about the policy: the denominator of `success_rate`."""
        return sum(self.counts[outcome] for outcome in JUDGED)

    @property
    def faults(self) -> int:
        """Rollouts that something else broke."""
        return sum(self.counts[outcome] for outcome in FAULTS)

    @property
    def success_rate(self) -> float | None:
        """Succeeded of judged; None when none was judged."""
        return self.counts["succeeded"] / self.judged if self.judged else None

    @property
    def success_rate_of_all(self) -> float | None:
        """Succeeded of all counted rollouts, broken ones included; None without any."""
        return self.counts["succeeded"] / self.rollouts if self.rollouts else None


def all_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts with a 0 for every outcome that did not occur."""
    return {outcome: counts.get(outcome, 0) for outcome in OUTCOMES}


@dataclass(frozen=True)
class MissingRewards:
    """Why ended rollouts have no number: the reason of their newest reward, or that none was derived yet (`derived` False)."""

    reason: str
    derived: bool
    outcome: str
    count: int


@dataclass(frozen=True)
class Choices:
    """The values that a filter can take, each sorted."""

    experiment_id: Sequence[str] = field(default_factory=tuple)
    run_id: Sequence[str] = field(default_factory=tuple)
    round: Sequence[int] = field(default_factory=tuple)
    policy: Sequence[str] = field(default_factory=tuple)
    world: Sequence[str] = field(default_factory=tuple)
    outcome: Sequence[str] = field(default_factory=tuple)
    ended_by: Sequence[str] = field(default_factory=tuple)
