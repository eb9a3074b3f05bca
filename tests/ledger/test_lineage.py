"""Lineage: a reward's trace is the whole recorded chain, and what was changed behind the ledger's back shows as a failed check."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger import lineage, queries
from ledger.errors import UnknownId
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
    tamper(ledger, "token_live", f"sampled = '\\x050000000600000009000000' WHERE event_id = '{event_id}'")
    trace = lineage.trace_rollout(ledger, "r0")
    assert failed(trace) == ["tokens"]
    assert f"call {event_id}: sampled_ids do not match" in next(check.detail for check in trace.checks if not check.passed)
    assert trace.calls[0].sampled_ids is None
    assert trace.calls[0].prompt_ids == (1, 2)
    assert trace.calls[1].sampled_ids == (5, 6, 7)
    tamper(ledger, "token_live", f"sampled = '\\x050000000600000007000000' WHERE event_id = '{event_id}'")
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
