"""Rebuilding all read models against one SQL pass that groups the same events by rollout, interleaved."""

import os
import statistics
import time
from collections.abc import Iterator

import psycopg
import pytest

from ledger.blobs import pending
from ledger.events import (
    BundleSealed,
    ConditionResult,
    EventBody,
    GroupDispatched,
    ModelCallDispatched,
    ModelCalled,
    Participant,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    StateSnapshotted,
    TokenArray,
    ToolCalled,
    VerdictGiven,
    VersionSpan,
)
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.projections import catch_up, rebuild

pytestmark = pytest.mark.bench
EVENTS = int(os.environ.get("TALLY_BENCH_EVENTS", "100000"))
ROUNDS, TURNS, SLOTS = int(os.environ.get("TALLY_BENCH_ROUNDS", "5")), 6, 8
DIGEST = "a" * 64
BLOB = pending(b"content", media="text/plain")

# State of every rollout in one pass: each body is parsed once, and OFFSET 0 keeps the planner from parsing it again for every column.
CONTROL = """
SELECT count(*), sum(calls + tools), sum(tokens), count(ended), count(verdict), sum(reward) FROM (
  SELECT project, b->>'rollout_id' AS rollout_id, count(*) FILTER (WHERE kind = 'ModelCalled') AS calls,
         count(*) FILTER (WHERE kind = 'ToolCalled') AS tools, sum((b#>>'{sampled_ids,count}')::int) AS tokens,
         max(b->>'ended_by') AS ended, max(b->>'verdict_id') AS verdict, max((b->>'value')::float8) AS reward
  FROM (SELECT project, kind, convert_from(body, 'UTF8')::jsonb AS b FROM ordered_event OFFSET 0) AS e
  GROUP BY 1, 2) AS rollouts
"""


def synthetic(events: int) -> Iterator[list[EventBody]]:
    """Rollouts of eight to a group, each of six turns, with two verdicts and a reward: batches of one group."""
    array = TokenArray(data=BLOB.ref, count=120, sha256=DIGEST)
    written = 0
    for group in range(events):
        bundle_id, group_id = f"{group // 4:064x}", derived_id("group", group)
        batch: list[EventBody] = []
        if group % 4 == 0:
            batch.append(BundleSealed(
                bundle_id=bundle_id, name=f"desk_{group}", world="desk", parts={}, world_id=DIGEST, verifier_id=DIGEST, harness_id=DIGEST,
                split="train", draft=BLOB.ref, reference=None, provenance=BLOB.ref, proposer="table",
            ))  # fmt: skip
        batch.append(GroupDispatched(
            group_id=group_id, bundle_id=bundle_id, size=SLOTS, experiment_id="exp1", run_id="run1", round=group // 16, policy="smol",
            rollout_kind="ordinary",
        ))  # fmt: skip
        for slot in range(SLOTS):
            batch += _rollout(derived_id("rollout", group, slot), group_id, bundle_id, slot, array)
        yield batch
        written += len(batch)
        if written >= events:
            return


def _rollout(rollout_id: str, group_id: str, bundle_id: str, slot: int, array: TokenArray) -> Iterator[EventBody]:
    ref = BLOB.ref
    agent = Participant(name="agent", role="agent", model_version="model1", endpoint="vllm", sampling={"temperature": 1.0}, trainable=True)
    yield RolloutStarted(
        rollout_id=rollout_id, group_id=group_id, bundle_id=bundle_id, slot=slot, attempt=1, rollout_kind="ordinary", participants=[agent],
        seed=slot,
    )  # fmt: skip
    for turn in range(TURNS):
        call_id = derived_id("call", rollout_id, turn)
        yield ModelCallDispatched(
            call_id=call_id, rollout_id=rollout_id, index=turn, participant="agent", role="agent", request=ref, request_digest=DIGEST,
            upstream="http://127.0.0.1:8000/v1", model="smol", stream_requested=False,
        )  # fmt: skip
        yield ModelCalled(
            call_id=call_id, rollout_id=rollout_id, index=turn, participant="agent", role="agent", status="completed", response=ref,
            prompt_ids=array, sampled_ids=array, logprobs=array, logprobs_mode="raw_logprobs", finish_reason="stop",
            sampling={"temperature": 1.0, "top_p": 1.0}, usage={"prompt_tokens": 120, "completion_tokens": 120},
            version_spans=[VersionSpan(model_version="model1", start=0, end=120)], attempts=1, latency_s=0.25,
        )  # fmt: skip
        yield ToolCalled(
            rollout_id=rollout_id, index=turn, turn=turn, model_call_id=call_id, tool_call_id=f"t{turn}", name=ref, arguments_sampled=ref,
            arguments_parsed=ref, result=ref, error_class=None, state_before=DIGEST, state_after=DIGEST, latency_s=0.01,
        )  # fmt: skip
        yield StateSnapshotted(rollout_id=rollout_id, step=turn, state=DIGEST, view=ref, snapshot=ref)
    yield RolloutEnded(
        rollout_id=rollout_id, ended_by="finished", boundary="policy", reason="said it was done", model_calls=TURNS, tool_calls=TURNS,
        calls_digest=DIGEST, wall_s=3.0, sampling_s=2.0, tool_s=0.1,
    )  # fmt: skip
    for own in (True, False):
        yield VerdictGiven(
            verdict_id=derived_id("verdict", rollout_id, own), rollout_id=rollout_id, verifier_id=DIGEST,
            verifier_kind="program" if own else "state_diff", role="bundle" if own else "second_opinion", status="completed",
            passed=slot % 2 == 0, side_effect_count=0,
            conditions=[ConditionResult(name=f"C{n}", status="passed", in_basis=True, evidence=ref) for n in range(3)],
        )  # fmt: skip
    yield RewardDerived(
        reward_id=derived_id("reward", rollout_id), rollout_id=rollout_id, rule="all_conditions", rule_id=DIGEST, reason="C1",
        verdict_ids=[derived_id("verdict", rollout_id, True)], value=float(slot % 2 == 0),
    )  # fmt: skip


def test_a_rebuild_of_all_read_models_against_one_grouping_pass(ledger: LedgerHandle) -> None:
    for batch in synthetic(EVENTS):
        ledger.append([ledger.new(body, BLOB) for body in batch])
    events = ledger.barrier()
    catch_up(ledger)
    ours, control = [], []
    with psycopg.connect(ledger.url, autocommit=True) as conn:
        conn.execute("VACUUM ANALYZE")
        for _ in range(ROUNDS):
            began = time.perf_counter()
            conn.execute(CONTROL).fetchone()
            control.append(events / (time.perf_counter() - began))
            began = time.perf_counter()
            rebuild(ledger)
            ours.append(events / (time.perf_counter() - began))
    ratios = [b / a for a, b in zip(ours, control, strict=True)]
    shown = [f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]" for values in (ours, control, ratios)]
    print(
        f"\nrebuild of all read models over {events} events: {shown[0]} events/s, control {shown[1]} events/s,"
        f" time ratio {shown[2]} over {ROUNDS} interleaved rounds"
    )
    assert statistics.median(ratios) < 20
