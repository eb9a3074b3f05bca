"""The part of an experiment's file that says what is trained, how, and how it is evaluated."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Table(BaseModel):
    """Base of all tables of an experiment's file: no unknown keys, frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MethodUse(Table):
    """A method by name with its parameters; whether both exist is checked when the experiment is opened."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)


class Lora(Table):
    """A low-rank adapter: rank, alpha, dropout and the modules that it is put on."""

    rank: int = Field(default=8, ge=1)
    alpha: float = Field(default=16.0, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: tuple[str, ...] = ("q_proj", "v_proj")


class PolicyTable(Table):
    """The policy that is trained.

    Attributes:
        source: `tiny` trains a small causal language model from scratch with a tokenizer of its own, `smollm2` starts from
            SmolLM2-135M-Instruct, `folder` from a Hugging Face folder.
        preset: size of a tiny policy.
        folder: for `folder`.
        lora: train an adapter in the place of all weights.
        dtype: of the weights in training and serving.
        serving: whether an adapter is served merged into its base, or beside it.
    """

    source: Literal["tiny", "smollm2", "folder"] = "tiny"
    preset: str = "0.2M"
    folder: str | None = None
    lora: Lora | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    serving: Literal["merged", "adapter"] = "merged"

    @model_validator(mode="after")
    def _named(self) -> "PolicyTable":
        if (self.source == "folder") != (self.folder is not None):
            raise ValueError(f"source {self.source!r} with folder {self.folder!r}; allowed: a folder for source 'folder' alone")
        return self


class EngineTable(Table):
    """What the policy is sampled from.

    Attributes:
        kind: `torch` decodes in process in lock-step, `vllm` is a managed server.
        probe_tolerance_nats: largest gap between engine and trainer that lets rollouts start.
        context_tokens: longest prompt and answer together that a server takes.
    """

    kind: Literal["torch", "vllm"] = "torch"
    probe_tolerance_nats: float = Field(default=1e-3, gt=0)
    context_tokens: int = Field(default=2048, ge=64)


class Optimiser(Table):
    """AdamW with a linear warm-up and an optional linear decay.

    Attributes:
        learning_rate: at its peak.
        betas, eps, weight_decay: as AdamW takes them.
        warmup_steps: updates until the peak.
        decay: `none`, or `linear` to zero over the stage.
        decay_start: share of the stage after which the rate decays.
        max_grad_norm: gradients are scaled down to this norm; counted when it happens.
    """

    learning_rate: float = Field(gt=0)
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    warmup_steps: int = Field(default=0, ge=0)
    decay: Literal["none", "linear"] = "none"
    decay_start: float = Field(default=0.0, ge=0, lt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)


class CopyStage(Table):
    """Copy-pretraining: random token sequences, each said several times; the loss is on all times but the first.

    Attributes:
        steps: updates.
        batch_tokens: tokens an update.
        span: shortest and longest repeated sequence, in tokens.
        times: how often each is said.
    """

    stage: Literal["copy"]
    name: str = "copy"
    steps: int = Field(ge=1)
    batch_tokens: int = Field(default=1500, ge=8)
    span: tuple[int, int] = (6, 16)
    times: int = Field(default=4, ge=2)
    optimiser: Optimiser


class TraceSource(Table):
    """Where supervised traces come from.

    Attributes:
        policy: whose rollouts: a scripted policy's name (`oracle`, `noisy_teacher`), or a published policy's for recorded ones.
        rollouts: how many, over the training tasks in turn.
        params: what the scripted policy takes, such as `noise`.
        examples: how they become examples: `all_rollouts` or `passed_rollouts` (rejection sampling).
    """

    policy: str = "oracle"
    rollouts: int = Field(ge=1)
    params: dict[str, Any] = Field(default_factory=dict)
    examples: MethodUse = MethodUse(name="all_rollouts")


class SupervisedStage(Table):
    """Supervised training on recorded traces.

    Attributes:
        traces: where they come from.
        steps: updates.
        batch_tokens: tokens an update; rows are drawn without replacement within an epoch.
        objective, weighting: methods.
    """

    stage: Literal["supervised"]
    name: str = "sft"
    traces: tuple[TraceSource, ...] = Field(min_length=1)
    steps: int = Field(ge=1)
    batch_tokens: int = Field(default=1500, ge=8)
    objective: MethodUse = MethodUse(name="supervised")
    weighting: MethodUse = MethodUse(name="token_mean")
    optimiser: Optimiser


class TermTable(Table):
    """One term of a loss."""

    objective: MethodUse
    weighting: MethodUse = MethodUse(name="rollout_token_mean")
    coefficient: float = 1.0


class ReinforceStage(Table):
    """Rounds of rollouts, verdicts and updates.

    Attributes:
        rounds: how many.
        groups: prompt groups a round.
        group_size: rollouts a group.
        updates: optimiser steps a round; the batch is cut into so many parts by group, each trained once an epoch.
        epochs: passes over the batch a round; more than one is counted as reuse.
        micro_tokens: tokens in one forward pass.
        advantage: method.
        filters: methods, applied in order.
        terms: the loss.
        truncated: whether rollouts that a limit ended take part.
        zero_variance: what becomes of groups whose rewards do not differ: `keep` or `drop`.
        temperature: of sampling; 1 is the plain distribution.
        shuffled_rewards: permute the rewards over all rollouts of the round, as a control that must not learn.
    """

    stage: Literal["reinforce"]
    name: str = "rl"
    rounds: int = Field(ge=1)
    groups: int = Field(default=16, ge=1)
    group_size: int = Field(default=8, ge=1)
    updates: int = Field(default=1, ge=1)
    epochs: int = Field(default=1, ge=1)
    micro_tokens: int = Field(default=16384, ge=8)
    advantage: MethodUse = MethodUse(name="group_normalised")
    filters: tuple[MethodUse, ...] = ()
    terms: tuple[TermTable, ...] = (TermTable(objective=MethodUse(name="ppo_clip")),)
    truncated: Literal["include", "exclude"] = "include"
    zero_variance: Literal["keep", "drop"] = "keep"
    temperature: float = Field(default=1.0, gt=0)
    shuffled_rewards: bool = False
    optimiser: Optimiser


Stage = Annotated[CopyStage | SupervisedStage | ReinforceStage, Field(discriminator="stage")]


class EvaluationTable(Table):
    """How model versions are evaluated.

    Attributes:
        split: `validation` for choosing settings, `test` for the report.
        tasks: how many tasks of each slice.
        apart_tasks: how many of each slice but `instances`; as many as of that when None.
        samples: rollouts a task.
        temperatures: the first is primary; 0 is greedy.
        slices: `instances` (unseen instances of trained families), `families`, `wordings`, `names` never trained on.
        scripts: fixed-rule policies run on the same tasks.
        every: also after every so many rounds; 0 for the stages' ends alone.
    """

    split: Literal["validation", "test"] = "validation"
    tasks: int = Field(default=200, ge=1)
    apart_tasks: int | None = Field(default=None, ge=1)
    samples: int = Field(default=1, ge=1)
    temperatures: tuple[float, ...] = (1.0, 0.0)
    slices: tuple[Literal["instances", "families", "wordings", "names"], ...] = ("instances",)
    scripts: tuple[str, ...] = ()
    every: int = Field(default=0, ge=0)


class TrainTable(Table):
    """What is trained: the policy, its engine, the stages in order, and the evaluation.

    Attributes:
        threads: torch threads.
        keep_checkpoints: newest checkpoints of which the optimiser state is kept as well.
        max_mask_fraction: largest share of a round's rollouts that may be no evidence about the policy; above it the run is aborted
            before the update. None: any.
    """

    policy: PolicyTable = PolicyTable()
    engine: EngineTable = EngineTable()
    stages: tuple[Stage, ...] = Field(min_length=1)
    evaluation: EvaluationTable = EvaluationTable()
    threads: int = Field(default=1, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)
    max_mask_fraction: float | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _names_differ(self) -> "TrainTable":
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError(f"stages are named {', '.join(names)}; allowed: each name once")
        return self
