"""The SQL of every read model arrives at what its Python fold says, wherever the ranges are cut, and again from the start."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from ledger.canonical import canonical_bytes
from ledger.events import (
    BundleSealed,
    ConditionResult,
    EventBody,
    GroupDispatched,
    ModelCallDispatched,
    ModelCalled,
    Participant,
    ReviewDecided,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    TokenArray,
    ToolCalled,
    VerdictGiven,
)
from ledger.ledger import LedgerHandle
from ledger.projections import MODELS, catch_up, folded, rebuild

D = ["0" * 64, "1" * 64, "2" * 64]
PROJECTS = itertools.count(1)
ENDS = ["finished", "token_limit", "turn_limit", "context_full", "wall_clock", "world_error", "harness_error", "engine_error", "cancelled"]

number = st.integers(0, 2)
name = st.integers(0, 7).map(lambda n: f"x{n}")
rollout = st.sampled_from(["r0", "r1"])
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=5)


def participants() -> st.SearchStrategy[list[Participant]]:
    return st.lists(
        st.builds(
            Participant, name=text, role=st.sampled_from(["agent", "judge"]), model_version=st.none() | name, endpoint=st.just("e"),
            sampling=st.just({}), trainable=st.booleans(),
        ),
        max_size=3,
    )  # fmt: skip


def bodies(blob: Any) -> st.SearchStrategy[EventBody]:
    """Any event that a read model is folded from, about few enough things that they meet."""
    array = st.builds(TokenArray, count=st.integers(0, 9), commitment=st.just(D[0]))
    condition = st.builds(ConditionResult, name=text, status=st.sampled_from(["passed", "failed", "error"]), in_basis=st.booleans(),
                          evidence=st.none() | st.just(blob))  # fmt: skip
    maybe, maybe_rollout, passed = st.none() | name, st.none() | rollout, st.none() | st.booleans()
    verdict = st.builds(
        VerdictGiven, verdict_id=name, rollout_id=rollout, verifier_id=st.sampled_from(D),
        verifier_kind=st.sampled_from(["program", "state_diff", "judge", "human"]),
        role=st.sampled_from(["bundle", "bundle", "second_opinion"]), status=st.sampled_from(["completed", "error"]),
        passed=passed, conditions=st.lists(condition, max_size=2), side_effect_count=number,
    )  # fmt: skip
    return st.one_of(
        verdict,
        verdict,
        st.builds(BundleSealed, bundle_id=st.sampled_from(D), name=text, world=text, parts=st.just({}), world_id=st.just(D[0]),
                  verifier_id=st.sampled_from(D), harness_id=st.just(D[0]), split=st.sampled_from(["train", "test"]), draft=st.just(blob),
                  reference=st.none(), provenance=st.just(blob), proposer=text),
        st.builds(GroupDispatched, group_id=name, bundle_id=st.sampled_from(D), size=st.integers(1, 9), experiment_id=name, run_id=name,
                  round=number, policy=text, rollout_kind=text),
        st.builds(RolloutStarted, rollout_id=rollout, group_id=name, bundle_id=st.sampled_from(D), slot=number, attempt=st.integers(1, 3),
                  rollout_kind=st.sampled_from(["ordinary", "probe"]), participants=participants(), seed=number),
        st.builds(ModelCallDispatched, call_id=name, rollout_id=maybe_rollout, index=number, participant=text, role=st.just("agent"),
                  request=st.just(blob), request_digest=st.sampled_from(D), upstream=text, model=text, stream_requested=st.booleans(),
                  retry_of=maybe),
        st.builds(ModelCalled, call_id=name, rollout_id=maybe_rollout, index=number, participant=text, role=st.just("judge"),
                  status=st.sampled_from(["completed", "timeout"]), prompt_ids=st.none() | array, sampled_ids=st.none() | array,
                  finish_reason=st.none() | text, attempts=st.just(1), latency_s=st.just(0.5)),
        st.builds(ToolCalled, rollout_id=rollout, index=number, turn=number, model_call_id=st.none(), tool_call_id=text, name=st.just(blob),
                  arguments_sampled=st.just(blob), arguments_parsed=st.none(), result=st.just(blob), error_class=st.none(),
                  state_before=st.just(D[0]), state_after=st.just(D[1]), latency_s=st.just(0.5)),
        st.builds(RolloutEnded, rollout_id=rollout, ended_by=st.sampled_from(ENDS), boundary=st.just("policy"), reason=text,
                  model_calls=number, tool_calls=number, calls_digest=st.just(D[0]), wall_s=st.just(1.0), sampling_s=st.just(0.0),
                  tool_s=st.just(0.0), superseded=st.booleans()),
        st.builds(ReviewDecided, review_id=name, rollout_id=rollout, verdict_ids=st.just([]), reviewer_id=st.just("r"),
                  decision=st.sampled_from(["passed", "failed", "unclear"]), right_verdict_id=st.none(), reason=st.just(blob)),
        st.builds(RewardDerived, reward_id=name, rollout_id=rollout, rule=text, rule_id=st.just(D[0]), verdict_ids=st.lists(name, max_size=2),
                  value=st.none() | st.floats(allow_nan=False, allow_infinity=False), reason=text),
    )  # fmt: skip


def table(ledger: LedgerHandle, name: str) -> bytes:
    """Canonical bytes of a read model's rows of this project, sorted by id."""
    with ledger.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(f"SELECT * FROM {MODELS[name].TABLE} WHERE project = %s", (ledger.project,)).fetchall()
    return b"\n".join(sorted(canonical_bytes(row) for row in rows))


def reference(ledger: LedgerHandle, name: str) -> bytes:
    """The same from the Python fold over the log."""
    return b"\n".join(sorted(canonical_bytes(row) for row in folded(MODELS[name], ledger.read(limit=10_000))))


def in_new_project(ledger: LedgerHandle) -> LedgerHandle:
    return LedgerHandle(
        ledger.url, ledger.pool, ledger_id=ledger.ledger_id, project=f"p{next(PROJECTS)}", actor_id="tester", clock=ledger.clock
    )


def check_history(ledger: LedgerHandle, data: Any) -> None:
    own = in_new_project(ledger)
    blob = own.pending(b"content")
    taken: set[tuple[str, str]] = set()
    for chunk in data.draw(st.lists(st.lists(bodies(blob.ref), max_size=12), min_size=1, max_size=5)):
        fresh = [body for body in chunk if (body.stream(), body.key()) not in taken and not taken.add((body.stream(), body.key()))]  # type: ignore[func-returns-value]
        if fresh:
            own.append([own.new(body, blob) for body in fresh])
        own.barrier()
        if data.draw(st.booleans()):
            catch_up(own, batch=data.draw(st.integers(1, 9)))
    catch_up(own, batch=data.draw(st.integers(1, 9)))
    expected = {name: reference(own, name) for name in MODELS}
    assert {name: table(own, name) for name in MODELS} == expected
    rebuild(own, batch=data.draw(st.sampled_from([7, 5000])))
    assert {name: table(own, name) for name in MODELS} == expected


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_sql_equals_the_python_fold_for_any_history_and_any_cuts(ledger: LedgerHandle, data: Any) -> None:
    check_history(ledger, data)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_sql_equals_the_python_fold_on_the_oldest_server_too(ledger_15: LedgerHandle, data: Any) -> None:
    check_history(ledger_15, data)


@pytest.mark.parametrize("name", list(MODELS))
def test_every_read_model_has_rows_in_the_histories(ledger: LedgerHandle, name: str, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    catch_up(ledger)
    assert table(ledger, name) == reference(ledger, name) != b""
