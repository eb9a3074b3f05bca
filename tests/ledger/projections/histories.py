"""Random histories for the tests of read models, and what their tables hold."""

from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from psycopg.rows import dict_row

from ledger.canonical import canonical_bytes
from ledger.events import (
    BundleSealed,
    ConditionResult,
    EventBody,
    FindingRaised,
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
from ledger.projections import MODELS, folded, generations

D = ["0" * 64, "1" * 64, "2" * 64]
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
        st.builds(FindingRaised, finding_id=name, check=st.sampled_from(["attribution", "attribution", "wall_clock"]),
                  subject=st.sampled_from(["rollout-r0", "rollout-r1", "update-r0"]), severity=st.just("error"), measured=st.none(),
                  evidence_event_ids=st.just([]), boundary=st.sampled_from([None, "environment", "verifier", "harness", "task"]),
                  fault=st.sampled_from([None, "undecided", "tool_timeout"])),
        st.builds(RewardDerived, reward_id=name, rollout_id=rollout, rule=text, rule_id=st.just(D[0]), verdict_ids=st.lists(name, max_size=2),
                  value=st.none() | st.floats(allow_nan=False, allow_infinity=False), reason=text),
    )  # fmt: skip


def shown(ledger: LedgerHandle, name: str) -> bytes:
    """What COPY writes of the view's rows of this project, sorted by key."""
    return copied(ledger, f"SELECT * FROM {MODELS[name].VIEW} WHERE project = '{ledger.project}'")


def copied(ledger: LedgerHandle, query: str) -> bytes:
    """What COPY writes of a query, line by line, sorted; every line begins with its key."""
    with ledger.connection() as conn, conn.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT") as copy:
        return b"".join(sorted(b"".join(copy).splitlines(keepends=True)))


def table(ledger: LedgerHandle, name: str, *, positions: bool = True) -> bytes:
    """Canonical bytes of a read model's rows of this project, sorted by id."""
    with ledger.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(f"SELECT * FROM {MODELS[name].VIEW} WHERE project = %s", (ledger.project,)).fetchall()
    plain = [{key: str(value) if isinstance(value, UUID) else value for key, value in row.items()} for row in rows]
    return lines(plain, positions=positions)


def reference(ledger: LedgerHandle, name: str) -> bytes:
    """The same from the Python fold over the log."""
    return lines(folded(MODELS[name], ledger.read(limit=10_000)))


def lines(rows: list[dict[str, Any]], *, positions: bool = True) -> bytes:
    """Canonical bytes of rows, sorted, with or without the columns that hold positions."""
    kept = [{key: value for key, value in row.items() if positions or not key.endswith("position")} for row in rows]
    return b"\n".join(sorted(canonical_bytes(row) for row in kept))


def stored(ledger: LedgerHandle, name: str) -> list[generations.Generation]:
    """All generations of a read model."""
    with ledger.connection() as conn:
        return generations.found(conn, [MODELS[name]])


def tables(ledger: LedgerHandle, name: str) -> list[str]:
    """All tables of generations of a read model, whether a cursor names them or not."""
    with ledger.connection() as conn:
        found = conn.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ %s ORDER BY 1", (f"^{name}_[0-9a-f]{{8}}",))
        return [table for (table,) in found]


def age(ledger: LedgerHandle, name: str) -> None:
    """Make the generation that is shown one of an earlier source."""
    (shown,) = [generation for generation in stored(ledger, name) if generation.shown]
    with ledger.connection() as conn:
        conn.execute(f"ALTER TABLE {shown.table} RENAME TO {name}_00000000")
        indexes = conn.execute("SELECT indexname FROM pg_indexes WHERE tablename = %s", (f"{name}_00000000",)).fetchall()
        for (index,) in indexes:
            conn.execute(f"ALTER INDEX {index} RENAME TO {index.replace(shown.table, f'{name}_00000000')}")
        conn.execute("UPDATE projection_cursor SET source_digest = %s WHERE name = %s AND shown", ("0" * 64, name))
