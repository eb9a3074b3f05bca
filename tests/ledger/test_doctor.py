"""The doctor: each check by hand, and the whole over real servers that are fine, broken or away."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from ledger import doctor_checks as judge
from ledger import measure, measure_server
from ledger.cli import run
from ledger.doctor import examine
from ledger.doctor_checks import Check
from ledger.events import RewardDerived
from ledger.ids import utc_now
from ledger.ledger import LedgerHandle
from ledger.measure import Order, Room, Seal, Staged
from ledger.measure_server import Connections, Facts, Indexes, Login, Session
from ledger.settings import Settings
from ledger.tables import APPEND_ONLY
from tests.conftest import Cluster

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GOOD = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "data_checksums": "on", "server_encoding": "UTF8"}
FLOWING = Order(position=10, step=3, holes=0, dead=0, waiting=0, lag_s=0.0, newest_age_s=1.0)


def reward(reward_id: str) -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=None, reason="none")


def facts(revision: str | None = "0004", version: int = 180006, **settings: str) -> Facts:
    return Facts(version, {**GOOD, **settings}, revision, NOW)


def order(**fields: float) -> Order:
    return Order(**{**vars(FLOWING), **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (judge.versions(facts(), {}, "0004"), "ok"),
        (judge.versions(facts("0002"), {}, "0004"), "fail"),
        (judge.versions(facts(None), {}, "0004"), "fail"),
        (judge.versions(facts("0005"), {}, "0004"), "fail"),
        (judge.versions(facts(version=140011), {}, "0004"), "fail"),
        (judge.durability(facts()), "ok"),
        (judge.durability(facts(fsync="off")), "fail"),
        (judge.durability(facts(full_page_writes="off")), "fail"),
        (judge.durability(facts(synchronous_commit="off")), "warn"),
        (judge.durability(facts(data_checksums="off")), "warn"),
        (judge.durability(Facts(180006, {}, "0004", NOW)), "unknown"),
        (judge.encoding(facts()), "ok"),
        (judge.encoding(facts(server_encoding="SQL_ASCII")), "fail"),
        (judge.writable(facts(default_transaction_read_only="on")), "fail"),
        (judge.writable(facts(statement_timeout="5000")), "warn"),
        (judge.writable(facts(statement_timeout="0")), "ok"),
        (judge.clock(facts(), NOW + timedelta(seconds=1)), "ok"),
        (judge.clock(facts(), NOW - timedelta(seconds=3)), "warn"),
        (judge.connections(Connections(81, 100)), "warn"),
        (judge.connections(Connections(80, 100)), "ok"),
        (judge.sessions([Session(7, "tallystick", "idle in transaction", 700.0)]), "warn"),
        (judge.login(Login("tally", False, ())), "ok"),
        (judge.login(Login("tally", False, ("event",))), "warn"),
        (judge.login(Login("postgres", True, ())), "warn"),
        (judge.guards(["event_p0"]), "fail"),
        (judge.pages(None), "unknown"),
        (judge.pages(0), "ok"),
        (judge.pages(1), "fail"),
        (judge.indexes(None), "unknown"),
        (judge.indexes(Indexes(3, ())), "ok"),
        (judge.indexes(Indexes(3, ("event_pkey: broken",))), "fail"),
        (judge.ordering(order(waiting=5, lag_s=59.0)), "ok"),
        (judge.ordering(order(waiting=5, lag_s=61.0)), "warn"),
        (judge.holes(order(holes=1001)), "warn"),
        (judge.sealing(order(position=0), None), "ok"),
        (judge.sealing(FLOWING, None), "warn"),
        (judge.sealing(FLOWING, Seal(10, 1e9)), "ok"),
        (judge.sealing(FLOWING, Seal(9, 1e9)), "warn"),
        (judge.sealing(order(position=200_000), Seal(9, 1.0)), "warn"),
        (judge.sealing(FLOWING, Seal(11, 1.0)), "fail"),
        (judge.read_models(FLOWING, {"rollouts": 10}), "ok"),
        (judge.read_models(order(position=200_000), {"rollouts": 10}), "warn"),
        (judge.read_models(FLOWING, {"rollouts": 11}), "fail"),
        (judge.tokens(Staged(4, 100, 0)), "ok"),
        (judge.tokens(Staged(4, 100, 1)), "warn"),
        (judge.orphans(1, 5), "warn"),
        (judge.partitions([Room("event", 10, 500, 1000)]), "ok"),
        (judge.partitions([Room("event", 10, 499, 1000)]), "warn"),
        (judge.disk("disk", 2**29, 2**40), "fail"),
        (judge.disk("disk", 2**31, 2**40), "warn"),
        (judge.disk("disk", 2**35, 2**40), "ok"),
    ],
)
def test_a_check_has_a_status_and_advice_where_something_is_to_do(check: Check, status: str) -> None:
    assert check.status == status, check
    assert check.measured
    assert bool(check.advice) == (status in ("warn", "fail")) or status == "unknown"


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_sound_ledger_has_nothing_broken_on_either_server(each_ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(each_ledger)
    checks = by_name(examine(Settings(database_url=each_ledger.url), now=utc_now))
    assert [check for check in checks.values() if check.status == "fail"] == []
    assert "21 events wait" in checks["ordering"].measured
    each_ledger.barrier()
    checks = by_name(examine(Settings(database_url=each_ledger.url), now=utc_now))
    assert "position 21 after" in checks["ordering"].measured
    assert "0 events wait" in checks["ordering"].measured
    assert "rollouts 21 behind" in checks["read models"].measured
    assert checks["login"].status == "warn"
    password = str(psycopg.conninfo.conninfo_to_dict(each_ledger.url)["password"])
    assert all(password not in check.measured for check in checks.values())


def test_measures_count_what_is_there(ledger: LedgerHandle) -> None:
    ledger.barrier()
    with ledger.connection() as conn:
        before = measure.sizes(conn)
    with psycopg.connect(ledger.url) as slow:
        from ledger import store

        store.append(slow, ledger.ledger_id, "test", [ledger.new(reward("slow"))])
        ledger.append([ledger.new(reward("fast"))])
        ledger.barrier()
        slow.commit()
    with ledger.connection() as conn:
        seen = measure.order(conn)
        assert (seen.position, seen.holes, seen.dead, seen.waiting) == (2, 1, 0, 1)
        assert 0 < seen.lag_s < 60
        assert measure.kinds(conn, 0, 2) == {"LedgerCreated": 1, "RewardDerived": 1}
        assert measure.kinds(conn, 1, 2) == {"RewardDerived": 1}
        assert {room.table: room.left for room in measure.room(conn)}["event"] == 2**24 - 3
        assert measure.sizes(conn).database >= before.database
        assert measure.seal(conn) is None


def test_a_session_left_open_is_listed(ledger: LedgerHandle) -> None:
    with psycopg.connect(ledger.url, application_name="forgotten") as left:
        left.execute("SELECT 1")
        with ledger.connection() as conn:
            assert measure_server.sessions(conn) == []


def test_a_guard_that_is_switched_off_is_found_on_a_partition_too(ledger: LedgerHandle) -> None:
    with psycopg.connect(ledger.url) as conn:
        assert measure_server.unguarded(conn, APPEND_ONLY) == []
        conn.execute("ALTER TABLE event_p0 DISABLE TRIGGER append_only")
        conn.execute("DROP TRIGGER append_only ON checkpoint")
        assert measure_server.unguarded(conn, APPEND_ONLY) == ["checkpoint", "event_p0"]


def test_a_login_without_rights_leaves_the_rest_of_the_checks_standing(ledger: LedgerHandle) -> None:
    with psycopg.connect(ledger.url, autocommit=True) as conn:
        conn.execute("DROP ROLE IF EXISTS stranger")
        conn.execute("CREATE ROLE stranger LOGIN PASSWORD 'known'")
        conn.execute("GRANT SELECT ON alembic_version TO stranger")
    url = f"postgresql://stranger:known@{ledger.url.rpartition('@')[2]}"
    checks = by_name(examine(Settings(database_url=url), now=utc_now))
    assert checks["ordering"].status == checks["partitions"].status == "unknown"
    assert "permission denied" in checks["ordering"].measured
    assert (checks["login"].status, checks["guards"].status, checks["versions"].status) == ("ok", "ok", "ok")
    assert checks["durability"].status == "ok"


def test_deep_compares_indexes_where_amcheck_is(ledger: LedgerHandle) -> None:
    settings = Settings(database_url=ledger.url)
    assert by_name(examine(settings, now=utc_now, deep=True))["indexes"].status == "unknown"
    with psycopg.connect(ledger.url) as conn:
        conn.execute("CREATE EXTENSION amcheck")
    found = by_name(examine(settings, now=utc_now, deep=True))["indexes"]
    assert found.status == "ok"
    assert int(found.measured.split()[0]) > 20


def test_a_database_behind_or_away_is_a_finding_not_a_crash(cluster: Cluster, tmp_path: Path) -> None:
    url = cluster.empty_database()
    checks = by_name(examine(Settings(data_dir=tmp_path, database_url=url), now=utc_now))
    assert (checks["versions"].status, checks["versions"].advice) == ("fail", "run `tally migrate`")
    assert "ordering" not in checks
    cluster.drop(url)
    away = by_name(examine(Settings(data_dir=tmp_path, database_url="postgresql://a:hunter2@127.0.0.1:1/none"), now=utc_now))
    assert away["server"].status == "fail"
    assert "hunter2" not in str(away)
    stopped = by_name(examine(Settings(data_dir=tmp_path), now=utc_now))
    assert (stopped["server"].status, stopped["server"].advice) == ("fail", "run `tally db start`")
    assert not (tmp_path / "postgres").exists()


def test_the_command_exits_with_1_only_when_something_is_broken(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(database_url=ledger.url)
    assert run(["doctor"], settings=settings) == 0
    assert "0 fail" in capsys.readouterr().out
    with psycopg.connect(ledger.url) as conn:
        conn.execute("ALTER TABLE event DISABLE TRIGGER append_only")
    assert run(["doctor", "--json"], settings=settings) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["broken"] is True
    assert [check["name"] for check in found["checks"] if check["status"] == "fail"] == ["guards"]
