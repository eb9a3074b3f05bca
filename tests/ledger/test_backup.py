"""Backup and restore: consistent under writers, proved to be the same log, all or nothing."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import lineage, store, verify
from ledger.backup import backup, export_key, log_tables
from ledger.backup_files import MANIFEST, Manifest, read_manifest
from ledger.errors import BackupError, IdempotencyConflict, SchemaMismatch
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle, open_ledger
from ledger.migrate import upgrade
from ledger.restore import check, restore
from ledger.seal_files import make_key
from ledger.settings import Settings
from tests.conftest import Cluster

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def reward(reward_id: str, reason: str = "none") -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=None, reason=reason)


@pytest.fixture
def settings(tmp_path: Path, ledger: LedgerHandle) -> Settings:
    """A deployment on the test's database."""
    return Settings(data_dir=tmp_path / "data", database_url=ledger.url)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Settings:
    """The deployment that a backup is restored to."""
    return Settings(data_dir=tmp_path / "other")


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[str]:
    """A database without tables."""
    url = cluster.empty_database()
    yield url
    cluster.drop(url)


def rows(url: str) -> dict[str, list[Any]]:
    """Every row of every table of the log, as text."""
    with psycopg.connect(url) as conn:
        return {name: sorted(str(row[0]) for row in conn.execute(f"SELECT t::text FROM {name} AS t")) for name in log_tables()}


def made(ledger: LedgerHandle, settings: Settings, folder: Path) -> Manifest:
    """A backup of the ledger in `folder`."""
    return backup(ledger, settings, folder, now=NOW)


def test_a_restored_ledger_has_every_row_and_goes_on(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path, sealed: Callable[[LedgerHandle], None]
) -> None:
    sealed(ledger)
    manifest = made(ledger, settings, tmp_path / "copy")
    restored = restore(tmp_path / "copy", empty, elsewhere)
    assert restored.log == manifest.log and manifest.log.size == 21
    assert rows(empty) == rows(ledger.url)
    with open_ledger(empty, project="test", actor_id="tester") as again:
        assert again.ledger_id == ledger.ledger_id
        assert verify.verify(again).intact
        assert lineage.trace(again, "reward-a").intact
        again.append([again.new(reward("later"))])
        assert again.barrier() == 22
        with pytest.raises(IdempotencyConflict):
            again.append([again.new(reward("later", reason="other"))])
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState), again.connection() as conn:
            conn.execute("DELETE FROM event_p0")
        assert check(tmp_path / "copy", again).log == manifest.log


def test_a_backup_under_writers_is_one_moment(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    stop, acknowledged = threading.Event(), [0] * 3

    def write(writer: int) -> None:
        while not stop.is_set():
            n = acknowledged[writer]
            blob = ledger.pending(f"text {writer} {n}")
            ledger.append([ledger.new(reward(f"{writer}-{n}-{m}"), *([blob] if m == 0 else [])) for m in range(1 + n % 60)])
            acknowledged[writer] += 1

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for writer in writers:
        writer.start()
    while min(acknowledged) < 20:
        pass
    before = list(acknowledged)
    try:
        manifest = made(ledger, settings, tmp_path / "copy")
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    restored = restore(tmp_path / "copy", empty, elsewhere)
    with open_ledger(empty, project="test", actor_id="tester") as again:
        report = verify.verify(again)
        assert report.intact
        assert report.events == manifest.tables["event"].rows == manifest.tables["event_key"].rows
        with ledger.connection() as conn:
            live = conn.execute("SELECT count(*) FROM event").fetchone()
        assert live is not None and report.events < live[0]
        streams = {event.stream for event in again.read(limit=100_000)}
        assert {f"reward-{writer}-{n}-0" for writer in range(3) for n in range(before[writer])} <= streams
    assert restored.log.size >= 1


def test_ids_that_were_in_flight_are_given_up_in_the_copy(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    with psycopg.connect(ledger.url) as slow:
        store.append(slow, ledger.ledger_id, "test", [ledger.new(reward("slow"))])
        ledger.append([ledger.new(reward("fast"))])
        made(ledger, settings, tmp_path / "copy")
    restore(tmp_path / "copy", empty, elsewhere)
    with open_ledger(empty, project="test", actor_id="tester") as again:
        assert again.barrier() == 2
        with again.connection() as conn:
            assert conn.execute("SELECT cardinality(holes), dead FROM order_step ORDER BY step DESC LIMIT 1").fetchone() == (0, 1)
        again.append([again.new(reward("slow"))])
        assert [event.stream for event in again.read()] == ["reward-fast"]
        assert (again.barrier(), verify.verify(again).problems) == (3, ())


def test_narrow_partitions_come_back(cluster: Cluster, elsewhere: Settings, empty: str, tmp_path: Path) -> None:
    url = cluster.empty_database()
    upgrade(url, partition_width=1000)
    with open_ledger(url, project="test", actor_id="tester") as narrow:
        narrow.append([narrow.new(reward(f"{n}")) for n in range(3200)])
        made(narrow, Settings(data_dir=tmp_path / "data", database_url=url), tmp_path / "copy")
    restore(tmp_path / "copy", empty, elsewhere)
    with psycopg.connect(empty) as conn:
        assert conn.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'event'::regclass").fetchone() == (4,)
        assert conn.execute("SELECT count(*) FROM event_p3").fetchone() == (202,)
    cluster.drop(url)


def test_a_target_that_holds_anything_is_refused(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    made(ledger, settings, tmp_path / "copy")
    with pytest.raises(BackupError, match=f"holds ledger {ledger.ledger_id}; expected an empty database"):
        restore(tmp_path / "copy", ledger.url, elsewhere)
    with psycopg.connect(empty) as conn:
        conn.execute("CREATE TABLE mine (x int)")
    with pytest.raises(BackupError, match="1 tables, such as 'mine'; expected an empty one"):
        restore(tmp_path / "copy", empty, elsewhere)


def test_a_changed_file_is_named_and_nothing_is_written(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    made(ledger, settings, tmp_path / "copy")
    file = tmp_path / "copy" / "tables" / "event.copy.zst"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(BackupError, match=r"event\.copy\.zst has SHA-256"):
        restore(tmp_path / "copy", empty, elsewhere)
    file.unlink()
    with pytest.raises(BackupError, match="the backup is not whole"):
        restore(tmp_path / "copy", empty, elsewhere)
    with psycopg.connect(empty) as conn:
        assert conn.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchone() == (0,)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest as somebody would who hides it."""
    from hashlib import sha256

    value = json.loads((folder / MANIFEST).read_text())
    change(value)
    text = json.dumps(value)
    (folder / MANIFEST).write_text(text)
    (folder / "manifest.sha256").write_text(f"{sha256(text.encode()).hexdigest()}  {MANIFEST}\n")


def test_another_log_than_the_one_backed_up_is_refused_and_rolled_back(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    ledger.append([ledger.new(reward("true"))])
    first = made(ledger, settings, tmp_path / "one")
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE event SET leaf = sha256(leaf) WHERE kind = 'RewardDerived'")
    made(ledger, settings, tmp_path / "two")

    def claim(value: dict[str, Any]) -> None:
        value["log"]["root"] = first.log.root

    rewritten(tmp_path / "two", claim)
    with pytest.raises(BackupError, match="not the log that was backed up"):
        restore(tmp_path / "two", empty, elsewhere)
    # What the refused one left is as good as empty.
    assert restore(tmp_path / "one", empty, elsewhere).log == first.log


def test_a_changed_manifest_and_one_of_a_newer_release_are_refused(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    made(ledger, settings, folder)
    rewritten(folder, lambda value: value.update(revision="9999"))
    with pytest.raises(SchemaMismatch, match="9999"):
        restore(folder, empty, elsewhere)
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text().replace("9999", "0004"))
    with pytest.raises(BackupError, match=r"manifest\.json has SHA-256"):
        restore(folder, empty, elsewhere)
    with pytest.raises(BackupError, match="is no backup"):
        read_manifest(tmp_path)


def test_a_checkpoint_that_does_not_fit_is_told_and_kept(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    ledger.append([ledger.new(reward("a"))])
    ledger.barrier()
    with ledger.connection() as conn:
        leaf = conn.execute("SELECT leaf FROM ordered_event WHERE position = 1").fetchone()
        assert leaf is not None
        conn.execute("INSERT INTO checkpoint (origin, size, root, note) VALUES ('log', 1, %s, '')", (leaf[0],))
    found = made(ledger, settings, tmp_path / "good").log.checkpoint
    assert found is not None and (found.size, found.fits) == (1, True)
    with ledger.connection() as conn:
        conn.execute("INSERT INTO checkpoint (origin, size, root, note) VALUES ('log', 2, %s, '')", (b"x" * 32,))
    bad = made(ledger, settings, tmp_path / "bad").log
    assert bad.checkpoint is not None and not bad.checkpoint.fits
    assert restore(tmp_path / "bad", empty, elsewhere).log == bad


def test_files_come_along_but_no_private_key_and_no_password(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    for name, text in (("dagster/dagster.yaml", "storage: here"), ("checkpoints.txt", "a note"),
                       ("dagster/other", "-----BEGIN PRIVATE KEY-----")):  # fmt: skip
        (settings.data_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (settings.data_dir / name).write_text(text)
    manifest = made(ledger, settings, tmp_path / "copy")
    assert [name for name in manifest.files if name.startswith("files/")] == ["files/dagster/dagster.yaml.zst", "files/checkpoints.txt.zst"]
    assert manifest.left_out == ("dagster/other: holds a private key",)
    password = psycopg.conninfo.conninfo_to_dict(ledger.url)["password"]
    assert str(password) not in (tmp_path / "copy" / MANIFEST).read_text()
    elsewhere.data_dir.mkdir(parents=True)
    (elsewhere.data_dir / "checkpoints.txt").write_text("newer")
    restored = restore(tmp_path / "copy", empty, elsewhere)
    assert (elsewhere.data_dir / "dagster" / "dagster.yaml").read_text() == "storage: here"
    assert restored.kept == (str(elsewhere.data_dir / "checkpoints.txt"),)
    assert (elsewhere.data_dir / "checkpoints.txt").read_text() == "newer"
    make_key(settings.seal_key)
    assert export_key(settings, tmp_path / "apart.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(BackupError, match=r"apart\.key: File exists"):
        export_key(settings, tmp_path / "apart.key")


def test_the_database_of_dagster_comes_along(ledger: LedgerHandle, cluster: Cluster, empty: str, tmp_path: Path) -> None:
    theirs, target = cluster.empty_database(), cluster.empty_database()
    with psycopg.connect(theirs) as conn:
        conn.execute("CREATE TABLE runs (id int PRIMARY KEY, body text)")
        conn.execute("INSERT INTO runs VALUES (1, 'first')")
    settings = Settings(data_dir=tmp_path / "data", database_url=ledger.url, dagster_database_url=theirs)
    made(ledger, settings, tmp_path / "copy")
    there = Settings(data_dir=tmp_path / "other", dagster_database_url=theirs)
    with pytest.raises(BackupError, match="Dagster's database has 1 tables"):
        restore(tmp_path / "copy", empty, there)
    restore(tmp_path / "copy", empty, there.model_copy(update={"dagster_database_url": target}))
    with psycopg.connect(target) as conn:
        assert conn.execute("SELECT * FROM runs").fetchall() == [(1, "first")]
    for url in (theirs, target):
        cluster.drop(url)


def test_a_failed_backup_leaves_nothing_and_an_existing_folder_is_refused(ledger: LedgerHandle, settings: Settings, tmp_path: Path) -> None:
    unreachable = settings.model_copy(update={"dagster_database_url": "postgresql://nobody@127.0.0.1:1/none"})
    with pytest.raises(BackupError, match="cannot be reached"):
        made(ledger, unreachable, tmp_path / "copies" / "one")
    assert list((tmp_path / "copies").iterdir()) == []
    made(ledger, settings, tmp_path / "copies" / "one")
    assert (tmp_path / "copies" / "one").stat().st_mode & 0o077 == 0
    with pytest.raises(BackupError, match="one exists"):
        made(ledger, settings, tmp_path / "copies" / "one")


def test_what_finishes_a_restore_is_part_of_it(
    ledger: LedgerHandle, settings: Settings, elsewhere: Settings, empty: str, tmp_path: Path
) -> None:
    made(ledger, settings, tmp_path / "copy")

    def refuse(conn: Any, manifest: Manifest) -> None:
        assert conn.execute("SELECT ledger_id FROM ledger").fetchone() == (manifest.log.ledger_id,)
        raise BackupError("forked before")

    with pytest.raises(BackupError, match="forked before"):
        restore(tmp_path / "copy", empty, elsewhere, finish=refuse)
    with psycopg.connect(empty) as conn:
        assert conn.execute("SELECT count(*) FROM event").fetchone() == (0,)


def test_a_backup_of_the_newest_server_is_restored_to_the_oldest(
    ledger: LedgerHandle,
    settings: Settings,
    elsewhere: Settings,
    cluster_15: Cluster,
    tmp_path: Path,
    sealed: Callable[[LedgerHandle], None],
) -> None:
    sealed(ledger)
    made(ledger, settings, tmp_path / "copy")
    url = cluster_15.empty_database()
    restore(tmp_path / "copy", url, elsewhere)
    assert rows(url) == rows(ledger.url)
    cluster_15.drop(url)
