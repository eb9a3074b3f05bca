"""Lineage: a reward's trace is the whole recorded chain, and what was changed behind the ledger's back shows as a failed check."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger import lineage, lineage_read, queries
from ledger.errors import UnknownId
from ledger.events import ModelVersionPublished, StateSnapshotted
from ledger.ledger import LedgerHandle
from ledger.lineage_rows import Trace
from ledger.token_packing import pack_rollout


def tamper(ledger: LedgerHandle, table: str, change: str) -> None:
    """Change a table as only the owner of the database can: with the guards off."""
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        assert conn.execute(f"UPDATE {table} SET {change}").rowcount == 1


def failed(trace: Trace) -> list[str]:
    return [check.name for check in trace.checks if not check.passed]


def test_a_trace_goes_from_the_reward_to_the_sampled_tokens(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    trace = lineage.trace(ledger, "reward-a")
    assert trace.reward is not None
    assert (trace.reward.value, trace.reward.verdict_ids) == (1.0, ("verdict-a",))
    assert [(v.verifier, v.passed, v.counts, v.conditions[0].evidence) for v in trace.verdicts] == [
        ("own_checker", True, False, {"seen": "[link]ann[/link]"}), ("end_state", False, False, {"seen": "[link]ann[/link]"}),
    ]  # fmt: skip
    assert trace.verdicts[0].source == "def own_checker(): ..."
    assert [(r.decision, r.reason, r.counts) for r in trace.reviews] == [("passed", "the mail went out", True)]
    assert (trace.rollout.outcome, trace.rollout.ended_by, trace.rollout.seed) == ("succeeded", "finished", 7)
    assert [(c.index, c.prompt_ids, c.sampled_ids, c.logprobs) for c in trace.calls] == [
        (index, (1, 2), (5, 6, 7), (-0.5, -0.5, -0.5)) for index in (0, 1)
    ]
    assert trace.calls[0].response["choices"][0]["message"]["content"].startswith("I mail")
    assert [(t.name, t.arguments, t.result) for t in trace.tools] == [("send_email", {"to": "ann"}, '{"sent":true}')]
    assert trace.bundle is not None
    assert trace.group is not None
    assert (trace.bundle.name, trace.group.policy, [m.name for m in trace.models]) == ("desk_0", "smol", ["smol"])
    assert [type(step).__name__ for step in trace.steps] == ["CallTrace", "ToolTrace", "CallTrace"]
    assert (failed(trace), trace.intact) == ([], True)
    assert json.loads(json.dumps(trace.as_json()))["intact"] is True


def test_a_rollout_is_traced_without_a_reward(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    history.call("r0", answered=False)
    trace = lineage.trace_rollout(ledger, "r0")
    assert (trace.reward, trace.rewards, trace.rollout.outcome, trace.calls[0].status) == (None, (), "running", None)
    assert trace.intact


def test_an_unknown_id_is_named(ledger: LedgerHandle) -> None:
    with pytest.raises(UnknownId, match="no reward 'nothing'"):
        lineage.trace(ledger, "nothing")
    with pytest.raises(UnknownId, match="no rollout 'nothing'"):
        lineage.trace_rollout(ledger, "nothing")


def test_the_outcome_of_a_trace_is_that_of_the_read_model(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    for slot, (ended_by, passed) in enumerate([("turn_limit", False), ("world_error", True), ("finished", None), ("finished", True)]):
        history.start(f"r{slot}", slot=slot)
        history.end(f"r{slot}", [], ended_by)
        history.verdict(f"r{slot}", f"v{slot}", passed)
    queries.fresh(ledger)
    shown = {line.rollout_id: line.outcome for line in queries.rollouts(ledger).lines}
    assert shown == {"r0": "limit_ended", "r1": "env_failed", "r2": "verifier_failed", "r3": "succeeded"}
    assert {rollout_id: lineage.trace_rollout(ledger, rollout_id).rollout.outcome for rollout_id in shown} == shown


def test_changed_tokens_are_a_failed_check(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    call_ids = [history.call("r0"), history.call("r0", 1)]
    event_id = next(e.event_id for e in ledger.read_stream("rollout-r0") if e.kind == "ModelCalled")
    with ledger.connection() as conn:
        kept = conn.execute("SELECT encode(sampled, 'hex') FROM token_live WHERE event_id = %s", (event_id,)).fetchone()
    assert kept is not None
    tamper(ledger, "token_live", f"sampled = '\\x050000000600000009000000' WHERE event_id = '{event_id}'")
    trace = lineage.trace_rollout(ledger, "r0")
    assert failed(trace) == ["tokens"]
    assert f"call {event_id}: sampled_ids" in next(check.detail for check in trace.checks if not check.passed)
    assert trace.calls[0].sampled_ids is None
    assert trace.calls[0].prompt_ids == (1, 2)
    assert trace.calls[1].sampled_ids == (5, 6, 7)
    tamper(ledger, "token_live", f"sampled = '\\x{kept[0]}' WHERE event_id = '{event_id}'")
    history.end("r0", call_ids)
    assert pack_rollout(ledger, "r0").calls == 2
    assert lineage.trace_rollout(ledger, "r0").calls[0].sampled_ids == (5, 6, 7)
    tamper(ledger, "token_pack", "data = overlay(data PLACING '\\xff' FROM octet_length(data) - 20)")
    trace = lineage.trace_rollout(ledger, "r0")
    assert failed(trace) == ["tokens"]
    assert [call.sampled_ids for call in trace.calls] == [None, None]


def test_a_changed_verdict_is_a_failed_check(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    history.reward("r0", "w0", history.verdict("r0", "v0", False), 0.0)
    tamper(ledger, "event", "body = convert_to(replace(convert_from(body, 'UTF8'), '\"passed\":false', '\"passed\":true'), 'UTF8')"
           " WHERE stream_id = (SELECT stream_id FROM stream_head JOIN node USING (node_id) WHERE name = 'verdict-v0')")  # fmt: skip
    trace = lineage.trace(ledger, "w0")
    assert failed(trace) == ["events"]
    assert "leaf does not match" in next(check.detail for check in trace.checks if not check.passed)


def test_a_verdict_that_cannot_be_read_is_a_failed_check(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    history.reward("r0", "w0", history.verdict("r0", "v0", False), 0.0)
    tamper(
        ledger,
        "event",
        "body = '{}'::bytea WHERE stream_id = (SELECT stream_id FROM stream_head JOIN node USING (node_id) WHERE name = 'verdict-v0')",
    )
    trace = lineage.trace(ledger, "w0")
    assert failed(trace) == ["events", "derivation"]
    assert trace.verdicts == ()


def test_calls_beyond_those_that_the_end_binds_are_shown_and_others_refused(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    bound = [history.call("r0")]
    history.end("r0", bound)
    history.call("r0", 1)
    trace = lineage.trace_rollout(ledger, "r0")
    assert (len(trace.calls), trace.intact) == (2, True)
    history.start("r1", slot=1)
    history.call("r1")
    history.end("r1", ["another-call"])
    assert failed(lineage.trace_rollout(ledger, "r1")) == ["bound calls"]


def test_counts_that_the_upstream_did_not_report_are_a_failed_check(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    call_id = history.call("r0")
    body = next(e.body for e in ledger.read_stream("rollout-r0") if e.kind == "ModelCalled")
    other = body.model_copy(update={"call_id": f"{call_id}x", "index": 1, "usage": {"prompt_tokens": 2, "completion_tokens": 4}})
    history.write(other)
    trace = lineage.trace_rollout(ledger, "r0")
    assert failed(trace) == ["tokens"]
    assert "3 recorded, completion_tokens says 4" in next(check.detail for check in trace.checks if not check.passed)


def test_downstream_counts_all_that_came_of_a_verifier(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    found = lineage.downstream(ledger, "verifier-" + "b" * 64)
    assert found == {"bundle": 1, "call": 2, "group": 1, "review": 1, "reward": 1, "rollout": 1, "verdict": 2}
    assert lineage.downstream(ledger, "reward-reward-a") == {}


def order_steps(ledger: LedgerHandle) -> int:
    with ledger.connection() as conn:
        return int(conn.execute("SELECT count(*) FROM order_step").fetchone()[0])  # type: ignore[index]


def test_a_trace_orders_only_what_it_shows_and_only_if_that_has_no_position(
    each_ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]
) -> None:
    sealed(each_ledger)
    first = lineage.trace(each_ledger, "reward-a")
    assert all(verdict.position for verdict in first.verdicts)
    steps = order_steps(each_ledger)
    each_ledger.append([each_ledger.new(ModelVersionPublished(
        model_version="elsewhere", name="x", weights_digest=None, tokenizer_digest=None, template_digest=None, scripted=True,
    ))])  # fmt: skip
    assert lineage.trace(each_ledger, "reward-a") == first
    assert order_steps(each_ledger) == steps


def test_of_a_chain_of_versions_the_one_that_sampled_and_its_parent_are_shown(ledger: LedgerHandle, history: Any) -> None:
    for version, parent in (("model0", None), ("modelA", "model0"), ("model1", "modelA"), ("model2", "model1")):
        history.write(ModelVersionPublished(
            model_version=version, name="p", weights_digest=None, tokenizer_digest=None, template_digest=None, scripted=False, parent=parent,
        ))  # fmt: skip
    history.start("r0")
    history.call("r0")
    assert [model.model_version for model in lineage.trace_rollout(ledger, "r0").models] == ["modelA", "model1"]


def test_bytes_that_restore_a_state_are_not_read_and_large_views_are_whole(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    large = "x" * (5 * 1024 * 1024)
    history.write(StateSnapshotted(rollout_id="r0", step=0, state="f" * 64, view=history.text(large), snapshot=history.text("state bytes")))
    history.write(StateSnapshotted(rollout_id="r0", step=1, state="f" * 64, view=history.text("same"), snapshot=history.text("same")))
    found = lineage_read.read(ledger, "rollout", "r0")
    assert b"state bytes" not in found.data.values()
    assert [snapshot.view for snapshot in lineage.trace_rollout(ledger, "r0").snapshots] == [large, "same"]
    assert lineage.trace_rollout(ledger, "r0").intact


def test_a_blob_that_is_gone_is_a_failed_check(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    call_id = history.call("r0")
    history.tool("r0", call_id)
    ref = next(event.body.name for event in ledger.read_stream("rollout-r0") if event.kind == "ToolCalled")
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("DELETE FROM blob_chunk WHERE blob_no = (SELECT blob_no FROM blob WHERE blob_id = %s)", (bytes.fromhex(ref.blob_id),))
    trace = lineage.trace_rollout(ledger, "r0")
    assert (failed(trace), trace.tools[0].name) == (["blobs"], None)
