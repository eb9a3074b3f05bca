"""Append: durable, idempotent, versioned, all or nothing."""

import threading
from datetime import UTC, datetime

import psycopg
import pytest

from ledger.errors import BlobError, CanonicalError, IdempotencyConflict, InvalidEvent, LedgerUnavailable, VersionConflict
from ledger.events import BlobRef, RewardDerived, RunConfigured
from ledger.ledger import LedgerHandle
from ledger.limits import LIMITS
from ledger.proof import LeafFields, leaf_hash
from ledger.store import New, stamp


def reward(reward_id: str, value: float | None = 1.0, *, reason: str = "passed") -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=["v"], value=value, reason=reason)


def test_an_append_gives_ids_and_versions_and_no_position(each_ledger: LedgerHandle) -> None:
    receipt = each_ledger.append([each_ledger.new(reward("a")), each_ledger.new(reward("b"))])
    assert [(item.stream, item.version, item.created) for item in receipt.events] == [("reward-a", 1, True), ("reward-b", 1, True)]
    assert not hasattr(receipt, "position")


def test_the_same_content_again_returns_the_first_event(each_ledger: LedgerHandle) -> None:
    first = each_ledger.append([each_ledger.new(reward("a"))]).events[0]
    later = New(reward("a"), datetime(2030, 1, 1, tzinfo=UTC), "somebody-else", "other-run")
    again = each_ledger.append([later]).events[0]
    assert (again.event_id, again.version, again.created) == (first.event_id, 1, False)
    assert len(each_ledger.read_stream("reward-a")) == 1


def test_the_same_key_with_other_content_is_refused_and_nothing_is_written(each_ledger: LedgerHandle) -> None:
    each_ledger.append([each_ledger.new(reward("a"))])
    with pytest.raises(IdempotencyConflict, match="derived.*reward-a"):
        each_ledger.append([each_ledger.new(reward("new")), each_ledger.new(reward("a", 0.0))])
    assert each_ledger.read_stream("reward-new") == []


def test_twice_in_one_append_is_once(ledger: LedgerHandle) -> None:
    receipt = ledger.append([ledger.new(reward("a")), ledger.new(reward("a"))])
    assert [item.created for item in receipt.events] == [True, False]
    with pytest.raises(IdempotencyConflict):
        ledger.append([ledger.new(reward("b")), ledger.new(reward("b", 0.5))])


def test_an_expected_version_that_does_not_hold_is_refused(each_ledger: LedgerHandle) -> None:
    each_ledger.append([each_ledger.new(reward("a"))], expected={"reward-a": 0})
    with pytest.raises(VersionConflict, match="version 1; expected 0"):
        each_ledger.append([each_ledger.new(reward("b")), _other_event(each_ledger, "reward-a")], expected={"reward-a": 0})
    each_ledger.append([each_ledger.new(reward("a"))], expected={"reward-a": 0})


class _Moved(RewardDerived):
    """A second event for a reward's stream."""

    def key(self) -> str:
        return "moved"


def _other_event(ledger: LedgerHandle, stream: str) -> New:
    return ledger.new(_Moved(**reward(stream.removeprefix("reward-")).model_dump()))


def test_a_leaf_is_what_its_row_says(ledger: LedgerHandle) -> None:
    ledger.append([ledger.new(reward("a"), correlation_id="run-1")])
    event = ledger.read_stream("reward-a")[0]
    assert event.leaf == leaf_hash(
        LeafFields(
            event.ledger_id, event.event_id, event.project, event.stream, event.version, event.kind, event.schema_version,
            event.canonicaliser, stamp(event.occurred_at), event.actor_id, event.correlation_id, event.causation_id, event.key,
            event.body_hash,
        )
    )  # fmt: skip


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_never_becomes_an_event(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        reward("a", value)


def test_nul_in_a_field_is_refused_by_name(ledger: LedgerHandle) -> None:
    with pytest.raises(CanonicalError, match=r"\$\.reason.*u0000"):
        ledger.append([ledger.new(reward("a", reason="bad\x00text"))])
    assert ledger.read_stream("reward-a") == []


def test_a_time_without_a_zone_is_refused(ledger: LedgerHandle) -> None:
    with pytest.raises(InvalidEvent, match="no time zone"):
        ledger.append([New(reward("a"), datetime(2026, 1, 1), "me")])


def test_a_body_over_the_limit_is_refused_with_both_sizes(ledger: LedgerHandle) -> None:
    body = RewardDerived(**{**reward("a").model_dump(), "verdict_ids": [f"v{n:06}" for n in range(8000)]})
    with pytest.raises(InvalidEvent, match=f"allowed: up to {LIMITS.body_bytes}"):
        ledger.append([ledger.new(body)])


def test_a_blob_that_is_not_stored_is_refused(ledger: LedgerHandle) -> None:
    ref = BlobRef(blob_id="ab" * 32, size=1, media="text/plain")
    body = RunConfigured(run_id="r", experiment_id="e", name="n", config=ref, config_digest="0" * 64, root_seed=1)
    with pytest.raises(InvalidEvent, match="abab.*not stored"):
        ledger.append([ledger.new(body)])
    with pytest.raises(BlobError, match="no blob abab"):
        ledger.blob("ab" * 32)


@pytest.mark.parametrize("statement", ["UPDATE {} SET {} = {}", "DELETE FROM {}", "TRUNCATE {} CASCADE"])
@pytest.mark.parametrize(
    ("table", "column"),
    [("event", "kind"), ("event_p0", "kind"), ("event_key", "id"), ("event_order", "position"), ("event_order_p0", "id"), ("order_step", "step"),
     ("edge", "child"), ("blob", "size"), ("blob_chunk", "chunk"), ("blob_chunk_p0", "chunk"), ("blob_use", "id"), ("ledger", "ledger_id"),
     ("node", "name"), ("tree_tile", "hashes"), ("checkpoint", "root"), ("token_pack", "data"), ("token_live", "shared")],
)  # fmt: skip
def test_the_log_refuses_change(ledger: LedgerHandle, statement: str, table: str, column: str) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="append-only"), ledger.connection() as conn:
        conn.execute(statement.format(table, column, column))


def test_a_stream_head_never_goes_back(ledger: LedgerHandle) -> None:
    ledger.append([ledger.new(reward("a"))])
    for statement in ("UPDATE stream_head SET version = 0", "DELETE FROM stream_head", "TRUNCATE stream_head"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState), ledger.connection() as conn:
            conn.execute(statement)


def test_many_writers_of_one_key_make_one_event(ledger: LedgerHandle) -> None:
    created: list[bool] = []

    def write() -> None:
        created.append(ledger.append([ledger.new(reward("same"))]).events[0].created)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(created) == [False] * 7 + [True]


def test_a_database_that_is_gone_is_a_clear_error_without_the_password() -> None:
    from ledger.ledger import open_ledger

    with pytest.raises(LedgerUnavailable, match=r"127\.0\.0\.1:1/x") as caught:
        open_ledger("postgresql://me:secret@127.0.0.1:1/x?connect_timeout=1", project="p", actor_id="a", connect_s=1.0)
    assert "secret" not in str(caught.value)
