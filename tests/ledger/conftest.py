"""Fixtures of the ledger's tests: one small whole history, from a bundle to a reward and a review."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledger import tokens
from ledger.blobs import Pending, pending
from ledger.events import (
    BundleSealed,
    ConditionResult,
    EventBody,
    GroupDispatched,
    HarnessRegistered,
    ModelCallDispatched,
    ModelCalled,
    ModelVersionPublished,
    Participant,
    ReviewDecided,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    RunConfigured,
    StateSnapshotted,
    ToolCalled,
    VerdictGiven,
    VerifierRegistered,
    VersionSpan,
    WorldRegistered,
)
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle, open_ledger
from ledger.lineage import calls_digest
from ledger.store import StagedTokens
from tests.token_histories import held

WORLD, PROGRAM, DIFF, HARNESS, BUNDLE, STATE = ("a" * 64, "b" * 64, "c" * 64, "d" * 64, "e" * 64, "f" * 64)


class History:
    """Writes a history event by event; every method returns the id it wrote about."""

    def __init__(self, ledger: LedgerHandle, tag: str = "") -> None:
        """`tag` ends the ids of run, group and model version, so that two ledgers can have their own."""
        self.ledger, self.tag = ledger, tag
        self.blobs: list[Pending] = []

    def text(self, value: str) -> Any:
        """Reference of a text blob that goes with the next event."""
        self.blobs.append(self.ledger.pending(value))
        return self.blobs[-1].ref

    def json(self, value: Any) -> Any:
        """Reference of a JSON blob that goes with the next event."""
        self.blobs.append(self.ledger.pending_json(value))
        return self.blobs[-1].ref

    def source(self, value: str) -> Any:
        """Reference of a public source."""
        self.blobs.append(pending(value, media="text/x-python"))
        return self.blobs[-1].ref

    def write(self, body: EventBody, tokens: StagedTokens | None = None) -> None:
        """Append one event with the blobs made since the last."""
        self.ledger.append([self.ledger.new(body, *self.blobs, tokens=tokens)])
        self.blobs = []

    def task(self) -> None:
        """World, two verifiers, harness, bundle, run, model version and a group of four slots."""
        self.write(WorldRegistered(world_id=WORLD, name="desk", source=self.source("world"), fidelity="simulated"))
        for ident, name, kind in ((PROGRAM, "own_checker", "program"), (DIFF, "end_state", "state_diff")):
            self.write(VerifierRegistered(
                verifier_id=ident, name=name, verifier_kind=kind, source=self.source(f"def {name}(): ..."),
                method=self.json({"name": name}),
            ))  # fmt: skip
        self.write(HarnessRegistered(
            harness_id=HARNESS, name="plain", source=self.source("harness"), limits={"turns": 8}, context_policy="append",
        ))  # fmt: skip
        self.write(BundleSealed(
            bundle_id=BUNDLE, name="desk_0", world="desk", parts={}, world_id=WORLD, verifier_id=PROGRAM, harness_id=HARNESS, split="train",
            draft=self.json({"name": "desk_0"}), reference=self.json({"turns": []}), provenance=self.json({"proposer": "table"}),
            proposer="table",
        ))  # fmt: skip
        self.write(
            RunConfigured(
                run_id=f"run1{self.tag}", experiment_id="exp1", name="demo", config=self.json({}), config_digest=STATE, root_seed=1
            )
        )
        self.write(ModelVersionPublished(
            model_version=f"model1{self.tag}", name="smol", weights_digest=STATE, tokenizer_digest=STATE, template_digest=STATE, scripted=False,
        ))  # fmt: skip
        self.write(GroupDispatched(
            group_id=f"group1{self.tag}", bundle_id=BUNDLE, size=4, experiment_id="exp1", run_id=f"run1{self.tag}", round=0, policy="smol",
            rollout_kind="ordinary",
        ))  # fmt: skip

    def start(self, rollout_id: str, slot: int = 0, attempt: int = 1) -> str:
        """A rollout begins."""
        agent = Participant(name="agent", role="agent", model_version=f"model1{self.tag}", endpoint="vllm", sampling={}, trainable=True)
        self.write(RolloutStarted(
            rollout_id=rollout_id, group_id=f"group1{self.tag}", bundle_id=BUNDLE, slot=slot, attempt=attempt, rollout_kind="ordinary",
            participants=[agent], seed=7,
        ))  # fmt: skip
        return rollout_id

    def call(self, rollout_id: str | None, index: int = 0, *, answered: bool = True, ids: tuple[int, ...] = (5, 6, 7)) -> str:
        """A model call with three sampled tokens."""
        call_id = derived_id("call", rollout_id, index)
        self.write(ModelCallDispatched(
            call_id=call_id, rollout_id=rollout_id, index=index, participant="agent", role="agent", request_digest=STATE,
            request=self.json({"messages": [{"role": "user", "content": "mail [bold]Ann[/bold] \u001b[31m"}]}), upstream="vllm",
            model="smol", stream_requested=False,
        ))  # fmt: skip
        if answered:
            answer = {"choices": [{"message": {"role": "assistant", "content": "I mail \u001b[2J[red]Ann[/red]"}}]}
            arrays = (tokens.ids_bytes([1, 2]), tokens.ids_bytes(ids), tokens.logprob_bytes([-0.5] * len(ids)))
            own = held(self.ledger, arrays, rollout_id, call_id)
            self.write(ModelCalled(
                call_id=call_id, rollout_id=rollout_id, index=index, participant="agent", role="agent", status="completed",
                response=self.json(answer), prompt_ids=own.prompt_ids, sampled_ids=own.sampled_ids, logprobs=own.logprobs,
                logprobs_mode="raw_logprobs", finish_reason="stop", usage={"prompt_tokens": 2, "completion_tokens": len(ids)},
                version_spans=[VersionSpan(model_version=f"model1{self.tag}", start=0, end=len(ids))], attempts=1, latency_s=0.25,
            ), own.staged)  # fmt: skip
        return call_id

    def tool(self, rollout_id: str, call_id: str, index: int = 0) -> None:
        """A tool call and the state after it."""
        self.write(ToolCalled(
            rollout_id=rollout_id, index=index, turn=0, model_call_id=call_id, tool_call_id=f"t{index}", name=self.text("send_email"),
            arguments_sampled=self.text('{"to": "ann"}'), arguments_parsed=self.json({"to": "ann"}), result=self.json({"sent": True}),
            error_class=None, state_before=STATE, state_after=WORLD, latency_s=0.01,
        ))  # fmt: skip
        self.write(StateSnapshotted(
            rollout_id=rollout_id, step=index, state=WORLD, view=self.json({"outbox": ["ann"]}), snapshot=self.json({"outbox": ["ann"]}),
        ))  # fmt: skip

    def end(self, rollout_id: str, call_ids: list[str], ended_by: Any = "finished", *, superseded: bool = False) -> None:
        """The rollout ends."""
        self.write(RolloutEnded(
            rollout_id=rollout_id, ended_by=ended_by, boundary="policy", reason="said it was done", model_calls=len(call_ids), tool_calls=1,
            calls_digest=calls_digest(call_ids), wall_s=1.0, sampling_s=0.5, tool_s=0.1, superseded=superseded,
        ))  # fmt: skip

    def verdict(self, rollout_id: str, verdict_id: str, passed: bool | None, *, own: bool = True) -> str:
        """The bundle's verifier, or a second opinion, judges; None is an error of the verifier."""
        status: Any = "error" if passed is None else "completed"
        condition: Any = "error" if passed is None else "passed" if passed else "failed"
        self.write(VerdictGiven(
            verdict_id=verdict_id, rollout_id=rollout_id, verifier_id=PROGRAM if own else DIFF,
            verifier_kind="program" if own else "state_diff", role="bundle" if own else "second_opinion", status=status, passed=passed,
            error=self.text("ZeroDivisionError") if passed is None else None,
            conditions=[ConditionResult(name="C1", status=condition, in_basis=True, evidence=self.json({"seen": "[link]ann[/link]"}))],
            side_effect_count=0, state_end=WORLD,
        ))  # fmt: skip
        return verdict_id

    def reward(self, rollout_id: str, reward_id: str, verdict_id: str | None, value: float | None) -> str:
        """A reward is derived."""
        self.write(RewardDerived(
            reward_id=reward_id, rollout_id=rollout_id, rule="binary", rule_id=STATE,
            verdict_ids=[] if verdict_id is None else [verdict_id], value=value,
            reason="all conditions passed" if value else "no verdict" if value is None else "C1 failed",
        ))  # fmt: skip
        return reward_id

    def review(self, rollout_id: str, review_id: str, decision: Any, verdict_ids: list[str]) -> str:
        """A person decides."""
        self.write(ReviewDecided(
            review_id=review_id, rollout_id=rollout_id, verdict_ids=verdict_ids, reviewer_id="person1", decision=decision,
            right_verdict_id=verdict_ids[0] if verdict_ids else None, reason=self.text("the mail went out"),
        ))  # fmt: skip
        return review_id


def write_whole(ledger: LedgerHandle, tag: str = "") -> None:
    """One rollout from task to review, its two verdicts at odds."""
    history = History(ledger, tag)
    history.task()
    history.start(f"rollout-a{tag}")
    call_id = history.call(f"rollout-a{tag}")
    history.tool(f"rollout-a{tag}", call_id)
    last = history.call(f"rollout-a{tag}", 1)
    history.end(f"rollout-a{tag}", [call_id, last])
    history.verdict(f"rollout-a{tag}", f"verdict-a{tag}", True)
    history.verdict(f"rollout-a{tag}", f"verdict-b{tag}", False, own=False)
    history.reward(f"rollout-a{tag}", f"reward-a{tag}", f"verdict-a{tag}", 1.0)
    history.review(f"rollout-a{tag}", f"review-a{tag}", "passed", [f"verdict-a{tag}", f"verdict-b{tag}"])


@pytest.fixture
def history(ledger: LedgerHandle) -> History:
    """A writer of histories on a fresh ledger."""
    return History(ledger)


@pytest.fixture
def sealed() -> Callable[..., None]:
    """Writes one whole history to the ledger it is given."""
    return write_whole


@pytest.fixture
def ledger_15(request: pytest.FixtureRequest) -> Iterator[LedgerHandle]:
    """A ledger on the oldest server that is supported."""
    cluster = request.getfixturevalue("cluster_15")
    url = cluster.migrated_database()
    with open_ledger(url, project="test", actor_id="tester") as handle:
        yield handle
    cluster.drop(url)
