"""One update as audits see it: its batch, what it declares, and what the ledger says by itself of the rollouts in it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ledger.events import BatchAssembled, BatchRow, EngineRefreshed, GroupDispatched, LossWeight, RewardDerived, UpdateApplied
from ledger.events.training import TrainingRow
from ledger.methods import Bound
from ledger.outcome import FAULTS, LIMITS
from training.advantages import Advantage
from training.rows import Row
from training.train_config import ReinforceStage, Stage
from training.view import Floats, RolloutView
from training.weightings import Weighting

NO_EVIDENCE = (*FAULTS, "unknown", "running")
"""Outcomes that say nothing about the policy."""


@dataclass(frozen=True)
class Known:
    """What the ledger says of one rollout by itself, as of when the batch was assembled.

    Attributes:
        group_id, bundle_id, kind, slot: as it was started.
        policy, run_id, round: of its group; None where the group was never dispatched here.
        ended_by, superseded: how it ended, and whether another attempt took its place.
        outcome: by the verdict that counted then.
        started_id, ended_id, verdict_event_id: event ids; None where there is none.
        rewards: event id and body of the rewards derived before the batch, oldest first.
    """

    rollout_id: str
    group_id: str
    bundle_id: str
    kind: str
    slot: int
    policy: str | None
    run_id: str | None
    round: int | None
    ended_by: str | None
    superseded: bool
    outcome: str
    started_id: str | None
    ended_id: str | None
    verdict_event_id: str | None
    rewards: tuple[tuple[str, RewardDerived], ...] = ()

    @property
    def is_evidence(self) -> bool:
        """Whether it says anything about the policy."""
        return self.outcome not in NO_EVIDENCE and not self.superseded

    @property
    def event_ids(self) -> tuple[str, ...]:
        """Events that show its outcome."""
        return tuple(name for name in (self.ended_id or self.started_id, self.verdict_event_id) if name is not None)


@dataclass(frozen=True, eq=False)
class Slots:
    """A group as it was dispatched, with the counted rollout of each slot; None for a slot without one."""

    event_id: str
    group: GroupDispatched
    rollout_ids: tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class TrainedRow:
    """A training row as the batch tells it, beside the row that the captured tokens give.

    Attributes:
        event_id: part of the batch that tells it.
        told: as recorded.
        row: of that number, as rebuilt from captured tokens; None where there is none.
        adv_T, weight_T: of its tokens as recorded; None without columns.
        logprobs: other recorded columns of its tokens by name, in nats.
    """

    rollout_id: str
    event_id: str
    told: TrainingRow
    row: Row | None
    adv_T: Floats | None = None
    weight_T: Floats | None = None
    logprobs: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether it has as many tokens as the rebuilt row of its number."""
        return self.row is not None and len(self.row.ids_T) == self.told.tokens


@dataclass(frozen=True, eq=False)
class DeclaredTerm:
    """A term of the loss as far as audits recompute it: its weighting and its factor."""

    weighting: Bound[Weighting]
    coefficient: float = 1.0


@dataclass(frozen=True, eq=False)
class Declared:
    """What the run declares for the update's stage; everything is None or empty where it declares nothing.

    Attributes:
        stage: its table of the experiment's `[train]`.
        advantage: the estimator.
        terms: of the loss.
        changed: families of which the batch names other method ids than those here: another source, or other methods.
        tolerance_nats: largest gap between engine and trainer that lets rollouts start.
        unreadable: why the table or a method of it could not be had; empty where it could.
    """

    stage: Stage | None = None
    advantage: Bound[Advantage] | None = None
    terms: tuple[DeclaredTerm, ...] = ()
    changed: tuple[str, ...] = ()
    tolerance_nats: float | None = None
    unreadable: str = ""

    @property
    def reinforce(self) -> ReinforceStage | None:
        """The stage's table, for a stage of rounds."""
        return self.stage if isinstance(self.stage, ReinforceStage) else None


@dataclass(frozen=True, eq=False)
class UpdateSubject:
    """An update.

    Attributes:
        update_id: which.
        applied, assembled: event id and body of each part of the update and of its batch, by part.
        declared: by the run's configuration.
        known: rollout id to what the ledger says of it, of all that the batch names or that were dispatched for it.
        missing: ids that the batch names and that no rollout here has.
        rewards: reward id to event id and body, of all that the batch names.
        view: columns of the batch's judged rollouts from their captured tokens; None where they could not be read.
        rows: its training rows.
        unread: why tokens or columns could not be read; empty where they could.
        slots: groups that were dispatched for this run since its last update of rounds.
        consumed: rollout id to the other updates of the run that it is in.
        refreshes: what each engine last said when it took the version that the update starts from.
        past: earlier updates of the same stage, first parts, oldest first.
        past_failed: of the earlier rounds of the stage, the share of counted rollouts that something else than the policy failed.
        harnesses: split to world to the harness versions of the bundles that the run attempted.
    """

    update_id: str
    applied: tuple[tuple[str, UpdateApplied], ...]
    assembled: tuple[tuple[str, BatchAssembled], ...]
    declared: Declared = field(default_factory=Declared)
    known: Mapping[str, Known] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    rewards: Mapping[str, tuple[str, RewardDerived]] = field(default_factory=dict)
    view: RolloutView | None = None
    rows: tuple[TrainedRow, ...] = ()
    unread: str = ""
    slots: tuple[Slots, ...] = ()
    consumed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refreshes: tuple[tuple[str, EngineRefreshed], ...] = ()
    past: tuple[UpdateApplied, ...] = ()
    past_failed: tuple[float, ...] = ()
    harnesses: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """The update's stream."""
        return f"update-{self.update_id}"

    @cached_property
    def batch_rows(self) -> tuple[tuple[str, BatchRow], ...]:
        """Event id of the part and row, of all rollouts that vote or train, in the order of the batch."""
        return tuple((event_id, row) for event_id, part in self.assembled for row in part.rows)

    @cached_property
    def row_of(self) -> dict[str, tuple[str, BatchRow]]:
        """Rollout id to its first row with the event id of the part."""
        found: dict[str, tuple[str, BatchRow]] = {}
        for event_id, row in self.batch_rows:
            found.setdefault(row.rollout_id, (event_id, row))
        return found

    @cached_property
    def excluded(self) -> dict[str, tuple[str, str]]:
        """Rollout id to the reason that the batch gives for leaving it out, with the event id of the part."""
        return {
            rollout_id: (reason, event_id)
            for event_id, part in self.assembled
            for reason, ids in part.exclusions.items()
            for rollout_id in ids
        }

    @cached_property
    def weights(self) -> tuple[tuple[str, LossWeight], ...]:
        """Event id of the part and weight, of all rollouts in the loss."""
        return tuple((event_id, weight) for event_id, part in self.applied for weight in part.weights)

    @cached_property
    def counters(self) -> dict[str, float]:
        """What the update measured and counted."""
        return {name: value for _, part in self.applied for name, value in part.counters.items()}

    @cached_property
    def batch_counters(self) -> dict[str, float]:
        """Fallbacks and special cases of the batch."""
        return {name: value for _, part in self.assembled for name, value in part.counters.items()}

    @cached_property
    def judged(self) -> bool:
        """Whether rewards shape it: some rollout votes or has a reward."""
        return any(row.votes or row.reward_id is not None for _, row in self.batch_rows) or bool(self.excluded)

    @cached_property
    def shuffled(self) -> bool:
        """Whether the stage permutes rewards on purpose, as a control."""
        stage = self.declared.reinforce
        return stage is not None and stage.shuffled_rewards

    @cached_property
    def trained(self) -> tuple[str, ...]:
        """Ids of the rollouts in the loss, in the order of the batch."""
        return tuple(dict.fromkeys(row.rollout_id for _, row in self.batch_rows if row.trains))

    def may_vote(self, rollout_id: str) -> bool:
        """Whether a rollout is evidence that the stage's rules let vote, as far as the ledger knows it."""
        known, stage = self.known.get(rollout_id), self.declared.reinforce
        if known is None:
            return True
        return known.is_evidence and not (stage is not None and stage.truncated == "exclude" and known.ended_by in LIMITS)

    def own_reward(self, rollout_id: str) -> tuple[str, RewardDerived] | None:
        """Event id and body of a rollout's own reward: the one that its row names if it is, else the newest of the batch's rule."""
        _, row = self.row_of.get(rollout_id, ("", None))
        named = None if row is None or row.reward_id is None else self.rewards.get(row.reward_id)
        if named is not None and named[1].rollout_id == rollout_id:
            return named
        mine = self.known[rollout_id].rewards if rollout_id in self.known else ()
        rules = {body.rule_id for _, body in self.rewards.values()}
        return next((item for item in reversed(mine) if not rules or item[1].rule_id in rules), None)

    def true_reward(self, rollout_id: str) -> float | None:
        """The value that a rollout's advantage has to come from: its own, or as recorded where rewards are permuted or not here."""
        own = self.own_reward(rollout_id)
        _, row = self.row_of.get(rollout_id, ("", None))
        if own is None or (self.shuffled and row is not None):
            here = row is not None and row.reward_id in self.rewards
            return None if row is None or (here and not self.shuffled) else row.reward
        return own[1].value
