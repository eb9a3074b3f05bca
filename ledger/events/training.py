"""Runs, batches, updates and model versions."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ledger.events.base import BlobRef, Digest, Edge, EventBody, Fields, Finite, Grown, Identifier, Name, ShortText


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


class TrainingRow(Fields):
    """A training row of a rollout in a batch.

    Attributes:
        index: number of the row in its rollout.
        open_reason: why it was opened.
        tokens: all of its tokens; `trained` of them are in the loss.
        weight: sum of the weights of its tokens.
        credit: sum over its tokens of |weight × advantage|: its part of the gradient before the objective's own factors.
    """

    index: int = Field(ge=0)
    open_reason: Name
    tokens: int = Field(ge=0)
    trained: int = Field(ge=0)
    weight: Finite
    credit: Finite = Field(ge=0)


class BatchRow(Grown):
    """A rollout in a batch: whether it votes in its baseline and whether it is in the loss; at least one of the two.

    Attributes:
        reward_id: None where nothing was rewarded, as in supervised training; such a rollout cannot vote.
        reward: the value as trained.
        advantage: mean over its trained tokens; None where it has none.
        path: `native`, or the fallback that the advantage took.
        reason: why it does not train, where it only votes.
        rows: its training rows.
    """

    later: ClassVar[frozenset[str]] = frozenset({"group_id", "reward", "advantage", "path", "reason", "rows"})

    rollout_id: Identifier
    reward_id: Identifier | None
    votes: bool
    trains: bool
    group_id: Identifier | None = None
    reward: Finite | None = None
    advantage: Finite | None = None
    path: Name | None = None
    reason: Name | None = None
    rows: list[TrainingRow] = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_a_part(self) -> Self:
        if not self.votes and not self.trains:
            raise ValueError(f"rollout {self.rollout_id} neither votes nor trains; allowed: an entry in `exclusions` with its reason")
        if self.votes and self.reward_id is None:
            raise ValueError(f"rollout {self.rollout_id} votes without a reward; allowed: votes with a reward_id")
        return self


class BatchAssembled(Grown, EventBody):
    """Part of what an update is computed from; parts have the numbers 0 to `parts` - 1 and no rollout is in two of them.

    Attributes:
        exclusions: reason to the ids of the rollouts that were dispatched for this batch and neither vote nor train.
        model_version: the version that the batch is for: its update starts from it.
        stage: stage of the experiment.
        methods: family to the ids of the bound methods that shaped it.
        columns: advantages and weights of every token, as a blob; None where the rows say it all.
        counters: fallbacks and special cases.
    """

    later: ClassVar[frozenset[str]] = frozenset({"model_version", "stage", "methods", "columns", "counters"})

    batch_id: Identifier
    run_id: Identifier
    round: int = Field(ge=0)
    part: int = Field(default=0, ge=0)
    parts: int = Field(default=1, ge=1)
    rows: list[BatchRow]
    exclusions: dict[Name, list[Identifier]] = Field(default_factory=dict)
    model_version: Identifier | None = None
    stage: Name | None = None
    methods: dict[Name, list[Digest]] = Field(default_factory=dict)
    columns: BlobRef | None = None
    counters: dict[str, int | Finite] = Field(default_factory=dict)

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


class LossWeight(Grown):
    """The weight of a rollout's reward in the loss of an update; without a reward, of the rollout itself.

    `share` is its part of the update's sum of |weight × advantage|, between 0 and 1.
    """

    later: ClassVar[frozenset[str]] = frozenset({"advantage", "share"})

    rollout_id: Identifier
    reward_id: Identifier | None
    weight: Finite = Field(ge=0)
    advantage: Finite | None = None
    share: Finite | None = Field(default=None, ge=0)


class UpdateApplied(Grown, EventBody):
    """Part of a step from one model version to the next; parts have the numbers 0 to `parts` - 1 and no row is in two of them.

    Attributes:
        step: number of the update in its run, from 0.
        weights: every row of the batch that is in the loss, with its explicit weight.
        counters: what the step measured and counted, fallbacks included.
    """

    later: ClassVar[frozenset[str]] = frozenset({"stage", "round"})

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
    stage: Name | None = None
    round: int | None = Field(default=None, ge=0)

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


class ModelVersionPublished(Grown, EventBody):
    """Weights, tokenizer and template that together are one model version; scripted policies have their source instead.

    Attributes:
        artifact: `full` weights, or an `adapter` on the version `base`.
        dtype: of the weights.
        serving: how an adapter is served: merged, or beside its base.
        run_id, stage, round, step: where in which run it was made; None for versions that no run here made.
        optimiser_digest: hex SHA-256 of the optimiser's state that goes with it.
    """

    later: ClassVar[frozenset[str]] = frozenset(
        {"artifact", "base", "dtype", "serving", "run_id", "stage", "round", "step", "optimiser_digest"}
    )

    model_version: Identifier
    name: Name
    weights_digest: Digest | None
    tokenizer_digest: Digest | None
    template_digest: Digest | None
    source: BlobRef | None = None
    scripted: bool
    parent: Identifier | None = None
    licence: Name | None = None
    artifact: Literal["full", "adapter"] = "full"
    base: Identifier | None = None
    dtype: Name | None = None
    serving: Literal["merged", "adapter"] | None = None
    run_id: Identifier | None = None
    stage: Name | None = None
    round: int | None = Field(default=None, ge=0)
    step: int | None = Field(default=None, ge=0)
    optimiser_digest: Digest | None = None

    def stream(self) -> str:
        """`model-<version>`."""
        return f"model-{self.model_version}"

    def key(self) -> str:
        """One a version."""
        return "published"

    def edges(self) -> list[Edge]:
        """Model version to its parent, and an adapter to its base."""
        edges = [] if self.parent is None else [Edge(self.stream(), f"model-{self.parent}", "trained_from")]
        return edges if self.base is None else [*edges, Edge(self.stream(), f"model-{self.base}", "adapts")]


class EvaluationMeasured(EventBody):
    """One measured number of a model version, or of two compared: the estimate, its interval and what both were taken over.

    Attributes:
        evaluation_id: of the measurement; derived from what was measured.
        metric: such as `success` or `success_gain`.
        slice: which tasks: `instances`, `families`, `wordings`, `names`, or a condition.
        split: validation or test.
        model_version: whose number it is; `against` is the other one of a comparison.
        value, low, high, level: the estimate with its interval; None where it cannot be taken.
        method: how the interval was taken, such as `cluster_bootstrap`.
        expected, measured, masked, failed, omitted: rollouts; what is left of `expected` is unknown.
        axis: what arms were matched on: updates, tokens, cpu_s, ... None for a single number.
        settings: temperature, samples, seeds and the like.
        table: the rows behind the number, as a blob.
        caveats: what to know before using it.
    """

    evaluation_id: Identifier
    run_id: Identifier
    metric: Name
    slice: Name
    split: Name
    model_version: Identifier
    against: Identifier | None = None
    value: Finite | None
    low: Finite | None = None
    high: Finite | None = None
    level: Finite | None = None
    method: Name | None = None
    n: int = Field(ge=0)
    expected: int = Field(ge=0)
    measured: int = Field(ge=0)
    masked: int = Field(default=0, ge=0)
    failed: int = Field(default=0, ge=0)
    omitted: int = Field(default=0, ge=0)
    axis: Name | None = None
    settings: dict[str, int | Finite | str | None] = Field(default_factory=dict)
    table: BlobRef | None = None
    caveats: list[ShortText] = Field(default_factory=list)

    def stream(self) -> str:
        """`evaluation-<id>`."""
        return f"evaluation-{self.evaluation_id}"

    def key(self) -> str:
        """One an evaluation."""
        return "measured"

    def edges(self) -> list[Edge]:
        """Evaluation to its run and to the model versions."""
        me = self.stream()
        models = [self.model_version, *([] if self.against is None else [self.against])]
        return [Edge(me, f"run-{self.run_id}", "part_of"), *(Edge(me, f"model-{model}", "measures") for model in dict.fromkeys(models))]


class DatasetSealed(EventBody):
    """The rows of a supervised dataset: the rollouts they come from, and why others were left out.

    Attributes:
        manifest: blob with one entry a row: rollout, row, tokens, weight, reason.
        left_out: reason to number of rollouts.
        text_only: rows that nobody sampled as tokens.
    """

    dataset_id: Identifier
    run_id: Identifier
    stage: Name
    manifest: BlobRef
    rows: int = Field(ge=0)
    tokens: int = Field(ge=0)
    text_only: int = Field(ge=0)
    left_out: dict[Name, int] = Field(default_factory=dict)

    def stream(self) -> str:
        """`dataset-<id>`."""
        return f"dataset-{self.dataset_id}"

    def key(self) -> str:
        """One a dataset."""
        return "sealed"

    def edges(self) -> list[Edge]:
        """Dataset to its run; its rollouts are named by the batch that trains on it."""
        return [Edge(self.stream(), f"run-{self.run_id}", "part_of")]


def _weighted(row: LossWeight) -> str:
    return f"rollout-{row.rollout_id}" if row.reward_id is None else f"reward-{row.reward_id}"


def _check_part(part: int, parts: int) -> None:
    if part >= parts:
        raise ValueError(f"part {part} of {parts}; allowed: 0 to {parts - 1}")
