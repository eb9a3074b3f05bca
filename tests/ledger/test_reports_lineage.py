"""What was reported of other tools about tracing a reward back (H) and about lost and doubled rollouts (G), each with its right value.

H1, H2 ids of every row; H3 verdict details; H4 unattributed calls and a reward without a trace; H5 steps of a trajectory; H6 text beside
ids; H7 a manifest bound to bytes; H8 content digests; G2 late attempts; G5 unique ids. G1, G3 and G6, that each dispatched prompt is
consumed once over a resume, are of the collector (tests/training/rollout/test_collect.py, tests/e2e/test_resume.py) and, for what a batch
leaves out, of the assembly of batches; the correlation id in the path of H4 is of the gateway (tests/training/rollout/gateway/); the
page that H9 asks for is of the pages (tests/ui/).
"""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from ledger import lineage, queries
from ledger.cli import run
from ledger.errors import IdempotencyConflict, UnknownId
from ledger.events import BatchAssembled, BatchRow, LossWeight, RewardDerived, UpdateApplied
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.lineage_rows import CallTrace
from ledger.settings import Settings

Write = Callable[[LedgerHandle], None]


def test_h1_h2_every_reward_and_every_rollout_is_reached_by_its_id(
    ledger: LedgerHandle, history: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    history.task()
    for slot in range(3):
        history.start(f"r{slot}", slot=slot)
        history.end(f"r{slot}", [history.call(f"r{slot}")])
        history.reward(f"r{slot}", f"w{slot}", history.verdict(f"r{slot}", f"v{slot}", slot != 1), float(slot != 1))
    at = Settings(database_url=ledger.url, project=ledger.project, actor="tester")
    assert run(["rewards", "--json"], settings=at) == 0
    dumped = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(row["reward_id"], row["rollout"]["rollout_id"]) for row in dumped} == {(f"w{n}", f"r{n}") for n in range(3)}
    for row in dumped:
        traced = lineage.trace(ledger, row["reward_id"])
        assert (traced.rollout.rollout_id, traced.reward.value if traced.reward else None) == (row["rollout"]["rollout_id"], row["value"])
        assert lineage.trace_rollout(ledger, row["rollout"]["rollout_id"]).calls == traced.calls
        assert len(traced.calls) == 1


def test_h1_a_reward_without_a_rollout_cannot_be_written() -> None:
    with pytest.raises(ValidationError, match="rollout_id"):
        RewardDerived(reward_id="w", rule="binary", rule_id="0" * 64, verdict_ids=[], value=1.0, reason="passed")  # type: ignore[call-arg]


def test_h1_rows_of_batches_and_updates_lead_to_their_rollouts(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    history.reward("r0", "w0", history.verdict("r0", "v0", True), 1.0)
    history.write(BatchAssembled(
        batch_id="b0", run_id="run1", round=0, rows=[BatchRow(rollout_id="r0", reward_id="w0", votes=True, trains=True)],
    ))  # fmt: skip
    history.write(UpdateApplied(
        update_id="u0", batch_id="b0", run_id="run1", step=0, model_version_before="model1", model_version_after="model2",
        weights=[LossWeight(rollout_id="r0", reward_id="w0", weight=1.0)],
    ))  # fmt: skip
    assert lineage.downstream(ledger, "rollout-r0") == {"batch": 1, "model": 1, "reward": 1, "update": 1, "verdict": 1}
    with pytest.raises(ValidationError, match="votes without a reward"):
        BatchRow(rollout_id="r0", reward_id=None, votes=True, trains=True)


def test_h3_the_details_of_a_verdict_are_part_of_it(ledger: LedgerHandle, sealed: Write) -> None:
    sealed(ledger)
    verdict = lineage.trace(ledger, "reward-a").verdicts[0]
    assert [(c.name, c.status, c.in_basis, c.evidence) for c in verdict.conditions] == [
        ("C1", "passed", True, {"seen": "[link]ann[/link]"})
    ]
    assert (verdict.verifier, verdict.source, verdict.state_end) == ("own_checker", "def own_checker(): ...", "a" * 64)


def test_h4_calls_of_no_known_rollout_are_listed_and_in_no_trace(ledger: LedgerHandle, sealed: Write, history: Any) -> None:
    sealed(ledger)
    lost = history.call(None)
    queries.fresh(ledger)
    assert [call.call_id for call in queries.unattributed_calls(ledger).lines] == [lost]
    assert lost not in {call.call_id for call in lineage.trace_rollout(ledger, "rollout-a").calls}


def test_h4_a_reward_whose_rollout_is_not_recorded_is_named_and_not_shown_as_traced(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.reward("never-started", "w0", None, None)
    with pytest.raises(UnknownId, match="rollout 'never-started' has no start that can be read"):
        lineage.trace(ledger, "w0")


def test_h4_no_verdict_makes_no_number(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    history.reward("r0", "w0", None, None)
    reward = lineage.trace(ledger, "w0").reward
    assert reward is not None
    assert (reward.value, reward.reason, reward.verdict_ids) == (None, "no verdict", ())


def test_h5_steps_are_those_of_one_trajectory_in_order(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    for slot in range(2):
        history.start(f"r{slot}", slot=slot)
    first = [history.call("r0"), history.call("r1")]
    history.tool("r1", first[1])
    history.tool("r0", first[0])
    second = history.call("r0", 1)
    steps = lineage.trace_rollout(ledger, "r0").steps
    assert [step.call_id if isinstance(step, CallTrace) else step.model_call_id for step in steps] == [first[0], first[0], second]
    assert len(lineage.trace_rollout(ledger, "r1").steps) == 2


def test_h6_text_stands_beside_ids_wherever_the_tokenizer_is_known(ledger: LedgerHandle, sealed: Write) -> None:
    from ledger.cli_trace import trace_json

    sealed(ledger)
    shown = trace_json(lineage.trace(ledger, "reward-a"), lambda model, ids: f"{model}:{len(ids)}")
    assert [(call["sampled_ids"], call["sampled_text"]) for call in shown["calls"]] == [([5, 6, 7], "model1:3")] * 2


def test_h7_a_source_is_the_bytes_that_were_run_and_a_changed_one_is_a_failed_check(ledger: LedgerHandle, sealed: Write) -> None:
    sealed(ledger)
    verdict = lineage.trace(ledger, "reward-a").verdicts[0]
    assert verdict.source_digest == sha256(b"def own_checker(): ...").hexdigest()
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute(
            "UPDATE blob_chunk SET data = 'def own_checker(): 1/1' WHERE blob_no = (SELECT blob_no FROM blob WHERE blob_id = %s)",
            (bytes.fromhex(str(verdict.source_digest)),),
        )
    trace = lineage.trace(ledger, "reward-a")
    assert [check.name for check in trace.checks if not check.passed] == ["blobs"]
    assert (trace.verdicts[0].source, trace.verdicts[0].source_digest) == (None, None)


def test_h7_a_model_version_is_published_once_with_its_digests(ledger: LedgerHandle, sealed: Write) -> None:
    sealed(ledger)
    model = lineage.trace(ledger, "reward-a").models[0]
    assert (model.weights_digest, model.tokenizer_digest, model.template_digest) == ("f" * 64,) * 3
    published = next(event.body for event in ledger.read_stream("model-model1"))
    with pytest.raises(IdempotencyConflict, match="same key needs the same content"):
        ledger.append([ledger.new(published.model_copy(update={"weights_digest": "0" * 64}))])


def test_h8_a_source_is_named_by_its_content_and_no_path(ledger: LedgerHandle, sealed: Write) -> None:
    sealed(ledger)
    source = next(event.body for event in ledger.read_stream("verifier-" + "b" * 64)).source  # type: ignore[attr-defined]
    assert source.blob_id == sha256(b"def own_checker(): ...").hexdigest()
    assert ledger.blob(source.blob_id) == b"def own_checker(): ..."


def test_g2_a_late_attempt_is_kept_and_not_counted(ledger: LedgerHandle, history: Any) -> None:
    # Attempt 1 times out and is superseded, attempt 2 fails the task, then the result of attempt 1 arrives and passes.
    history.task()
    history.start("one", attempt=1)
    history.end("one", [], "cancelled", superseded=True)
    history.start("two", attempt=2)
    history.end("two", [])
    history.verdict("two", "v2", False)
    history.call("one")
    history.verdict("one", "v1", True)
    queries.fresh(ledger)
    (line,) = queries.outcomes(ledger, by=["policy"])
    assert (line.counts["task_failed"], line.counts["succeeded"], line.superseded, line.success_rate) == (1, 0, 1, 0.0)
    (coverage,) = queries.coverage(ledger)
    assert (coverage.measured, coverage.extra) == (1, 0)
    kept = lineage.trace_rollout(ledger, "one")
    assert (kept.rollout.superseded, len(kept.calls), kept.verdicts[0].passed) == (True, 1, True)


def test_g5_two_rollouts_of_one_id_are_refused_and_ids_differ_by_task_slot_and_attempt(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0", slot=0)
    with pytest.raises(IdempotencyConflict, match="rollout-r0"):
        history.start("r0", slot=1)
    made = {derived_id("rollout", group, slot, attempt) for group in ("g0", "g1") for slot in range(4) for attempt in (1, 2)}
    assert len(made) == 16


def test_g5_a_batch_names_a_rollout_once() -> None:
    row = BatchRow(rollout_id="r0", reward_id="w0", votes=True, trains=True)
    for wrong in (
        {"rows": [row, row]},
        {"rows": [row], "exclusions": {"stale": ["r0"]}},
        {"rows": [], "exclusions": {"a": ["r"], "b": ["r"]}},
    ):
        with pytest.raises(ValidationError, match="named twice"):
            BatchAssembled(batch_id="b", run_id="run", round=0, **wrong)  # type: ignore[arg-type]
    weight = LossWeight(rollout_id="r0", reward_id="w0", weight=1.0)
    with pytest.raises(ValidationError, match="weighted twice"):
        UpdateApplied(update_id="u", batch_id="b", run_id="run", step=0, model_version_before="a", model_version_after="b",
                      weights=[weight, weight])  # fmt: skip
