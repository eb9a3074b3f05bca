"""Small ledgers of evaluated model versions: real desk tasks, and rollouts whose outcomes, rewards and calls the test chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from ledger.bundle import Bundle
from ledger.canonical import digest
from ledger.events import (
    ConditionResult,
    GroupDispatched,
    LossWeight,
    ModelCalled,
    ModelVersionPublished,
    Participant,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    RunConfigured,
    TokenArray,
    ToolCalled,
    UpdateApplied,
    VerdictGiven,
)
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.lineage import calls_digest
from training.bundles import register, seal
from training.rollout.harness import tool_loop
from training.verifiers import verifiers
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.synthesis import tasks

CONFIG = {
    "name": "desk",
    "train": {
        "stages": [{"stage": "copy", "name": "copying"}, {"stage": "supervised", "name": "teach"}, {"stage": "reinforce", "name": "rl"}]
    },
}


@dataclass(frozen=True)
class Attempt:
    """How one rollout went.

    Attributes:
        passed: what the verdict says; None for a verifier that broke.
        ended_by: how it ended; None while it runs.
        judged: whether there is a verdict at all.
        calls: tool calls as (name, arguments), each carried out by the world.
        wall_s: seconds; None where nobody measured them.
    """

    passed: bool | None = True
    ended_by: str | None = "finished"
    judged: bool = True
    calls: Sequence[tuple[str, Mapping[str, Any]]] = field(default_factory=tuple)
    wall_s: float | None = 2.0
    side_effects: int = 0


class EvaluatedRun:
    """Writes one run: tasks of the desk's walk, model versions, and rollouts of them.

    Attributes:
        bundles: sealed tasks in order.
        run_id: of everything that is written.
    """

    def __init__(
        self, ledger: LedgerHandle, *, count: int = 4, seed: int = 7, split: Any = "validation", slice: str | None = "instances"
    ) -> None:
        self.ledger, self.seed = ledger, seed
        self.run_id, self.experiment_id = derived_id("run", "eval", seed), derived_id("experiment", "eval", seed)
        world, harness, bound = TicketDesk(), tool_loop(), verifiers.bind("desk_conditions")
        register(ledger, world, [(bound, "program")], harness)
        self.verifier_id = bound.ref.method_id
        extra = {} if slice is None else {"slice": slice}
        drafts = [replace(d, split=split, provenance={**d.provenance, **extra}) for d in tasks(count, 11, level=0)]
        self.bundles = [Bundle(draft, world.version, self.verifier_id, harness.harness_id) for draft in drafts]
        seal(ledger, self.bundles)
        config = ledger.pending_json(CONFIG)
        self.append(
            RunConfigured(
                run_id=self.run_id, experiment_id=self.experiment_id, name="desk", config=config.ref, config_digest="0" * 64, root_seed=seed
            ),
            blobs=(config,),
        )

    def append(self, *bodies: Any, blobs: Sequence[Any] = ()) -> None:
        """Events in one append, with the blobs that they name."""
        first, *others = bodies
        self.ledger.append([self.ledger.new(first, *blobs), *(self.ledger.new(body) for body in others)])

    def version(
        self,
        name: str,
        *,
        stage: str | None = None,
        step: int | None = None,
        parent: str | None = None,
        scripted: bool = False,
        updates: int = 0,
    ) -> str:
        """A published model version, made of its parent by so many updates."""
        made = name
        before = parent
        for number in range(updates):
            after = made if number == updates - 1 else f"{made}-u{number}"
            self.append(UpdateApplied(
                update_id=derived_id("update", made, number), batch_id=derived_id("batch", made, number), run_id=self.run_id, step=number,
                model_version_before=str(before), model_version_after=after,
                weights=[LossWeight(rollout_id=derived_id("r", made, number), reward_id=None, weight=1.0)], counters={"cpu_s": 1.5},
            ))  # fmt: skip
            before = after
        self.append(ModelVersionPublished(
            model_version=made, name=name, weights_digest=None if scripted else sha256(made.encode()).hexdigest(), tokenizer_digest=None,
            template_digest=None, scripted=scripted, parent=before, run_id=None if scripted else self.run_id, stage=stage, step=step,
        ))  # fmt: skip
        return made

    def group(
        self, task: int, policy: str, version: str, attempts: Sequence[Attempt | None], *, round: int = 0, temperature: float | None = 1.0
    ) -> list[str | None]:
        """Ids of the rollouts of a group at a task; None in `attempts` leaves the slot without one."""
        group_id = derived_id("group", self.run_id, round, task, policy, version, temperature)
        bundle_id = self.bundles[task].bundle_id
        self.append(GroupDispatched(
            group_id=group_id, bundle_id=bundle_id, size=len(attempts), experiment_id=self.experiment_id, run_id=self.run_id, round=round,
            policy=policy, rollout_kind="ordinary",
        ))  # fmt: skip
        return [
            None if one is None else self._rollout(one, group_id, bundle_id, slot, version, temperature)
            for slot, one in enumerate(attempts)
        ]

    def measure(self, policy: str, version: str, passed: Sequence[Sequence[bool]], **further: Any) -> None:
        """A group a task with one attempt for each truth value."""
        for task, row in enumerate(passed):
            self.group(task, policy, version, [Attempt(passed=value) for value in row], **further)

    def _rollout(self, one: Attempt, group_id: str, bundle_id: str, slot: int, version: str, temperature: float | None) -> str:
        rollout_id = derived_id("rollout", group_id, slot)
        sampling = {} if temperature is None else {"temperature": temperature}
        agent = Participant(
            name="agent", role="agent", model_version=version, endpoint="test", sampling=sampling, trainable=temperature is not None
        )
        self.append(RolloutStarted(
            rollout_id=rollout_id, group_id=group_id, bundle_id=bundle_id, slot=slot, attempt=1, rollout_kind="ordinary",
            participants=[agent], seed=self.seed + slot,
        ))  # fmt: skip
        call_id = derived_id("call", rollout_id)
        arrays = {name: TokenArray(count=count, commitment="1" * 64) for name, count in (("prompt_ids", 30), ("sampled_ids", 5))}
        self.append(
            ModelCalled(
                call_id=call_id,
                rollout_id=rollout_id,
                index=0,
                participant="agent",
                role="agent",
                status="completed",
                attempts=1,
                latency_s=0.5,
                **(arrays if temperature is not None else {}),
            )
        )
        for index, (name, arguments) in enumerate(one.calls):
            parts = [self.ledger.pending(name), self.ledger.pending_json(arguments), self.ledger.pending("{}")]
            self.append(ToolCalled(
                rollout_id=rollout_id, index=index, turn=0, model_call_id=call_id, tool_call_id=f"c{index}", name=parts[0].ref,
                arguments_sampled=parts[1].ref, arguments_parsed=parts[1].ref, result=parts[2].ref, error_class=None,
                state_before="2" * 64, state_after="2" * 64, latency_s=0.1,
            ), blobs=parts)  # fmt: skip
        if one.ended_by is not None:
            self.append(RolloutEnded(
                rollout_id=rollout_id, ended_by=one.ended_by, boundary="policy", reason="test", model_calls=1, tool_calls=len(one.calls),
                calls_digest=calls_digest([call_id]), wall_s=one.wall_s, sampling_s=one.wall_s, tool_s=0.0,
            ))  # fmt: skip
            if one.judged:
                self._judge(one, rollout_id)
        return rollout_id

    def _judge(self, one: Attempt, rollout_id: str) -> None:
        broke = one.passed is None
        state = "error" if broke else "passed" if one.passed else "failed"
        conditions = [
            ConditionResult(name="mailed", status=state, in_basis=True, evidence=None),
            ConditionResult(name="matching", status="passed", in_basis=True, evidence=None),
        ]
        verdict_id = derived_id("verdict", rollout_id)
        self.append(VerdictGiven(
            verdict_id=verdict_id, rollout_id=rollout_id, verifier_id=self.verifier_id, verifier_kind="program", role="bundle",
            status="error" if broke else "completed", passed=one.passed, conditions=conditions, side_effect_count=one.side_effects,
        ))  # fmt: skip
        self.append(RewardDerived(
            reward_id=derived_id("reward", rollout_id), rollout_id=rollout_id, rule="all_conditions", rule_id=digest("rule"),
            verdict_ids=[verdict_id], value=None if broke else float(bool(one.passed)), reason="test",
        ))  # fmt: skip
