"""Runs, batches, updates and model versions."""

from typing import Self

from pydantic import Field, model_validator

from ledger.events.base import BlobRef, Digest, Edge, EventBody, Fields, Finite, Identifier, Name


class RunConfigured(EventBody):
    """A run begins: its experiment digest and the whole configuration it was started with."""

    run_id: Identifier
    experiment_id: Identifier
    name: Name
    config: BlobRef
    config_digest: Digest
    root_seed: int

    def stream(self) -> str:
        """`run-<id>`."""
        return f"run-{self.run_id}"

    def key(self) -> str:
        """One a run."""
        return "configured"


class BatchRow(Fields):
    """A rollout in a batch: whether it votes in its baseline and whether it is in the loss; at least one of the two.

    `reward_id` is None where nothing was rewarded, as in supervised training; such a row cannot vote.
    """

    rollout_id: Identifier
    reward_id: Identifier | None
    votes: bool
    trains: bool

    @model_validator(mode="after")
    def _has_a_part(self) -> Self:
        if not self.votes and not self.trains:
            raise ValueError(f"rollout {self.rollout_id} neither votes nor trains; allowed: an entry in `exclusions` with its reason")
        if self.votes and self.reward_id is None:
            raise ValueError(f"rollout {self.rollout_id} votes without a reward; allowed: votes with a reward_id")
        return self


class BatchAssembled(EventBody):
    """Part of what an update is computed from; parts have the numbers 0 to `parts` - 1 and no rollout is in two of them.

    Attributes:
        exclusions: reason to the ids of the rollouts that were dispatched for this batch and neither vote nor train.
    """

    batch_id: Identifier
    run_id: Identifier
    round: int = Field(ge=0)
    part: int = Field(default=0, ge=0)
    parts: int = Field(default=1, ge=1)
    rows: list[BatchRow]
    exclusions: dict[Name, list[Identifier]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_part(self.part, self.parts)
        rows = [(row.rollout_id, row.reward_id) for row in self.rows]
        kept = {rollout_id for rollout_id, _ in rows}
        left = [rollout_id for ids in self.exclusions.values() for rollout_id in ids]
        if len(set(rows)) < len(rows) or len(set(left)) < len(left) or not kept.isdisjoint(left):
            raise ValueError("a rollout is named twice; allowed: one row a rollout and reward, or one exclusion a rollout")
        return self

    def stream(self) -> str:
        """`batch-<id>`."""
        return f"batch-{self.batch_id}"

    def key(self) -> str:
        """One a part."""
        return f"assembled:{self.part}"

    def edges(self) -> list[Edge]:
        """Batch to its run, and to the rollouts and rewards in it."""
        me = self.stream()
        nodes = dict.fromkeys(f"rollout-{row.rollout_id}" for row in self.rows)
        nodes |= dict.fromkeys(f"reward-{row.reward_id}" for row in self.rows if row.reward_id is not None)
        return [Edge(me, f"run-{self.run_id}", "part_of"), *(Edge(me, node, "includes") for node in nodes)]


class LossWeight(Fields):
    """The weight of a rollout's reward in the loss of an update; without a reward, of the rollout itself."""

    rollout_id: Identifier
    reward_id: Identifier | None
    weight: Finite = Field(ge=0)


class UpdateApplied(EventBody):
    """Part of a step from one model version to the next; parts have the numbers 0 to `parts` - 1 and no row is in two of them.

    Attributes:
        step: number of the update in its run, from 0.
        weights: every row of the batch that is in the loss, with its explicit weight.
        counters: what the step measured and counted, fallbacks included.
    """

    update_id: Identifier
    batch_id: Identifier
    run_id: Identifier
    step: int = Field(ge=0)
    part: int = Field(default=0, ge=0)
    parts: int = Field(default=1, ge=1)
    model_version_before: Identifier
    model_version_after: Identifier
    weights: list[LossWeight]
    counters: dict[str, int | Finite] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_part(self.part, self.parts)
        nodes = [_weighted(row) for row in self.weights]
        if len(set(nodes)) < len(nodes):
            raise ValueError("a reward is weighted twice; allowed: one weight a reward, and one a rollout without a reward")
        return self

    def stream(self) -> str:
        """`update-<id>`."""
        return f"update-{self.update_id}"

    def key(self) -> str:
        """One a part."""
        return f"applied:{self.part}"

    def edges(self) -> list[Edge]:
        """Update to its batch and, by weight, to what its loss was made of; the version it made to the update and to its parent."""
        me, after = self.stream(), f"model-{self.model_version_after}"
        edges = [Edge(me, f"batch-{self.batch_id}", "consumes"), Edge(after, me, "made_by")]
        if self.model_version_before != self.model_version_after:
            edges.append(Edge(after, f"model-{self.model_version_before}", "trained_from"))
        return edges + [Edge(me, _weighted(row), "weighs", row.weight) for row in self.weights]


class ModelVersionPublished(EventBody):
    """Weights, tokenizer and template that together are one model version; scripted policies have their source instead."""

    model_version: Identifier
    name: Name
    weights_digest: Digest | None
    tokenizer_digest: Digest | None
    template_digest: Digest | None
    source: BlobRef | None = None
    scripted: bool
    parent: Identifier | None = None
    licence: Name | None = None

    def stream(self) -> str:
        """`model-<version>`."""
        return f"model-{self.model_version}"

    def key(self) -> str:
        """One a version."""
        return "published"

    def edges(self) -> list[Edge]:
        """Model version to its parent."""
        return [] if self.parent is None else [Edge(self.stream(), f"model-{self.parent}", "trained_from")]


def _weighted(row: LossWeight) -> str:
    return f"rollout-{row.rollout_id}" if row.reward_id is None else f"reward-{row.reward_id}"


def _check_part(part: int, parts: int) -> None:
    if part >= parts:
        raise ValueError(f"part {part} of {parts}; allowed: 0 to {parts - 1}")
