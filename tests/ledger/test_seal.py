"""Sealing: tiles and a signed checkpoint in one transaction, every crash repaired, and never a signature against what was published."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import checkpoint, order, proof, seal_files, store, tiles, tree
from ledger.errors import CheckpointError, LedgerUnavailable, SealRefused, TallyError, WaitTimeout
from ledger.events import LogForked
from ledger.ledger import LedgerHandle, open_ledger
from ledger.proof import Checkpoint
from ledger.seal import Sealer, default_origin, newest, seal_now, sealer, wait_sealed
from ledger.seal_files import SealFiles
from ledger.seal_fork import fork
from ledger.settings import Settings
from ledger.verify import Report, verify


@pytest.fixture
def files(tmp_path: Path) -> SealFiles:
    """Key, state and witness file of their own."""
    return SealFiles(tmp_path / "keys" / "seal.key", tmp_path / "checkpoints.txt")


def seal_once(ledger: LedgerHandle, files: SealFiles) -> Checkpoint | None:
    with sealer(ledger, files, wait_s=1.0) as own:
        return own.seal()


def witnessed(files: SealFiles) -> list[Checkpoint]:
    assert files.witness is not None
    return [checkpoint.parse(note)[0] for note in seal_files.read_notes(files.witness)]


def audited(ledger: LedgerHandle, files: SealFiles) -> Report:
    assert files.witness is not None
    key = seal_files.named(seal_files.read_key(files.key), default_origin(ledger.ledger_id))
    return verify(ledger, outside=[("the witness", note) for note in seal_files.read_notes(files.witness)], key=key)


def behind(ledger: LedgerHandle, *statements: str) -> None:
    """Change the database as a superuser who evades the guards."""
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        for statement in statements:
            conn.execute(statement)  # type: ignore[call-overload]


def rolled_back_to(ledger: LedgerHandle, size: int) -> None:
    """What a restore of a backup leaves: everything up to `size`, which a seal must have ended at, and nothing after it."""
    gone = f"(SELECT id FROM event_order WHERE position > {size})"
    behind(
        ledger, f"DELETE FROM edge WHERE id IN {gone}", f"DELETE FROM blob_use WHERE id IN {gone}", f"DELETE FROM event_key WHERE id IN {gone}",
        "DELETE FROM token_live AS t WHERE NOT EXISTS (SELECT FROM event_key AS k WHERE k.event_id = t.event_id)",
        f"DELETE FROM event WHERE id IN {gone}", f"DELETE FROM event_order WHERE position > {size}",
        f"DELETE FROM order_step WHERE position > {size}", f"DELETE FROM checkpoint WHERE size > {size}",
        f"DELETE FROM tree_tile WHERE index >= ({size} >> (8 * (level + 1)))",
        "DELETE FROM stream_head AS h WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.stream_id = h.stream_id)",
        "UPDATE stream_head AS h SET version = (SELECT max(version) FROM event AS e WHERE e.stream_id = h.stream_id)",
        "DELETE FROM node AS n WHERE NOT EXISTS (SELECT FROM stream_head AS h WHERE h.node_id = n.node_id)"
        " AND NOT EXISTS (SELECT FROM edge AS x WHERE x.child = n.node_id)",
    )  # fmt: skip


def test_a_seal_covers_all_that_was_committed_and_nothing_new_needs_none(
    ledger: LedgerHandle, files: SealFiles, sealed: Callable[[LedgerHandle], None]
) -> None:
    sealed(ledger)
    with sealer(ledger, files) as own:
        head = own.seal()
        assert head is not None
        assert (head.origin, head.size) == (f"tallystick.local/{ledger.ledger_id}", 21)
        assert own.seal() is None
        note = newest(own.conn)
        assert note is not None
        assert checkpoint.verify(note.note, own.vkey) == head == note.head
    assert witnessed(files) == [head]
    assert files.key.stat().st_mode & 0o777 == 0o600
    assert wait_sealed(ledger, 21, timeout_s=0) == head
    with pytest.raises(WaitTimeout, match="sealed up to position 21"):
        wait_sealed(ledger, 22, timeout_s=0)
    report = audited(ledger, files)
    assert (report.problems, report.checkpoints, report.outside_size, report.signed) == ((), 1, 21, True)


def test_the_tree_grows_tile_by_tile_as_one_over_all_leaves(ledger: LedgerHandle, files: SealFiles, history: Any) -> None:
    history.task()
    with sealer(ledger, files) as own:
        for n in range(290):
            history.start(f"r{n}")
            if n % 41 == 0:
                own.seal()
        own.seal()
        with ledger.connection() as conn:
            leaves = [leaf for _, leaf in tiles.leaves(conn, 0, 1000)]
            assert newest(conn).head.root == tree.edge_root(tree.extend(tree.Edge(), leaves)[0])  # type: ignore[union-attr]
            assert tiles.root_at(conn, len(leaves), 257) == tree.edge_root(tree.extend(tree.Edge(), leaves[:257])[0])
            assert conn.execute("SELECT level, index FROM tree_tile").fetchall() == [(0, 0)]
    report = audited(ledger, files)
    assert (report.problems, report.tiles, report.checkpoints) == ((), 1, 9)


def test_only_one_process_seals(ledger: LedgerHandle, files: SealFiles) -> None:
    with sealer(ledger, files), pytest.raises(TallyError, match="held by another process"), sealer(ledger, files, wait_s=0.1):
        pass
    with open_ledger(ledger.url, project="other", actor_id="tester") as other, sealer(ledger, files):  # noqa: SIM117
        with pytest.raises(TallyError, match="held by another process"), sealer(other, files, wait_s=0.1):
            pass


def test_a_sealer_whose_connection_is_gone_signs_nothing(ledger: LedgerHandle, files: SealFiles, history: Any) -> None:
    seal_once(ledger, files)
    history.task()
    with pytest.raises((LedgerUnavailable, psycopg.OperationalError)), sealer(ledger, files) as own:
        with psycopg.connect(ledger.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (own.conn.info.backend_pid,))
        with pytest.raises(LedgerUnavailable, match="cannot seal"):
            own.seal()
        raise LedgerUnavailable("as expected")
    assert [head.size for head in witnessed(files)] == [1]
    head = seal_once(ledger, files)
    assert head is not None
    assert audited(ledger, files).intact


def test_a_note_that_was_signed_and_not_committed_is_committed_at_the_next_start(
    ledger: LedgerHandle, files: SealFiles, sealed: Callable[[LedgerHandle], None]
) -> None:
    seal_once(ledger, files)
    sealed(ledger)
    with sealer(ledger, files) as own:
        # The commit fails after the note was signed, as when the server dies.
        own.conn.execute("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'disk full'; END $$")
        own.conn.execute(
            "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON checkpoint DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()"
        )
        with pytest.raises(psycopg.errors.RaiseException, match="disk full"):
            own.seal()
        own.conn.execute("DROP FUNCTION fail() CASCADE")
        assert newest(own.conn).head.size == 1  # type: ignore[union-attr]
    signed = seal_files.read_signed(files.signed)
    assert signed is not None
    assert checkpoint.parse(signed)[0].size == 21
    assert [head.size for head in witnessed(files)] == [1]
    with sealer(ledger, files) as own:
        assert newest(own.conn).note == signed  # type: ignore[union-attr]
    assert [head.size for head in witnessed(files)] == [1, 21]
    assert audited(ledger, files).intact


@pytest.mark.parametrize("left", [0, 1, 60, 150, -1])
def test_a_witness_file_that_a_crash_cut_off_is_mended(
    ledger: LedgerHandle, files: SealFiles, sealed: Callable[[LedgerHandle], None], left: int
) -> None:
    assert files.witness is not None
    seal_once(ledger, files)
    sealed(ledger)
    whole = files.witness.read_bytes()
    seal_once(ledger, files)
    both = files.witness.read_bytes()
    files.witness.write_bytes(whole + both[len(whole) :][:left])
    seal_once(ledger, files)
    assert files.witness.read_bytes() == both


def test_a_witness_file_that_holds_something_else_is_refused(ledger: LedgerHandle, files: SealFiles) -> None:
    assert files.witness is not None
    seal_once(ledger, files)
    files.witness.write_text(files.witness.read_text() + "something else")
    with pytest.raises(CheckpointError, match="something else"):
        seal_once(ledger, files)


@pytest.mark.parametrize("kept", ["signed", "witness"])
def test_a_database_below_what_was_published_is_refused(
    ledger: LedgerHandle, files: SealFiles, sealed: Callable[[LedgerHandle], None], kept: str
) -> None:
    assert files.witness is not None
    seal_once(ledger, files)
    sealed(ledger)
    head = seal_once(ledger, files)
    assert head is not None
    (files.signed if kept == "witness" else files.witness).unlink()
    rolled_back_to(ledger, 1)
    with pytest.raises(SealRefused, match=r"21 events and root .*database has 1 events") as refused:
        seal_once(ledger, files)
    assert proof.b64(head.root) in str(refused.value)


def test_a_database_that_went_on_otherwise_is_refused_and_names_both_roots(
    ledger: LedgerHandle, files: SealFiles, sealed: Callable[[LedgerHandle], None], history: Any
) -> None:
    seal_once(ledger, files)
    history.task()
    lost = seal_once(ledger, files)
    rolled_back_to(ledger, 1)
    sealed(ledger)
    with ledger.connection() as conn:
        ledger.barrier()
        other = tiles.root_at(conn, 1, 9)
    assert lost is not None
    assert lost.root != other
    with pytest.raises(SealRefused) as refused:
        seal_once(ledger, files)
    assert proof.b64(lost.root) in str(refused.value)
    assert proof.b64(other) in str(refused.value)


def test_a_fork_goes_on_under_a_new_name_and_says_what_was_lost(
    ledger: LedgerHandle, files: SealFiles, sealed: Callable[[LedgerHandle], None], history: Any
) -> None:
    common = seal_once(ledger, files)
    history.task()
    lost = seal_once(ledger, files)
    assert common is not None
    assert lost is not None
    with pytest.raises(SealRefused, match="nothing to fork from"):
        fork(ledger, files)
    rolled_back_to(ledger, common.size)
    assert not audited(ledger, files).intact
    head = fork(ledger, files)
    assert head.origin == f"{default_origin(ledger.ledger_id)}/fork-1"
    body = order.read_stream(ledger.pool, ledger.ledger_id, "ledger", f"ledger-{ledger.ledger_id}")[-1].body
    assert body.model_dump() == {
        "ledger_id": ledger.ledger_id, "fork": 1, "origin": head.origin, "previous_origin": common.origin, "common_size": common.size,
        "common_root": common.root.hex(), "lost_size": lost.size, "lost_root": lost.root.hex(),
    }  # fmt: skip
    sealed(ledger)
    again = seal_once(ledger, files)
    assert again is not None
    assert again.origin == head.origin
    report = audited(ledger, files)
    assert (report.problems, report.forks, report.lost, report.outside_size) == ((), (head.origin,), 1, again.size)
    rolled_back_to(ledger, head.size)
    assert fork(ledger, files).origin == f"{default_origin(ledger.ledger_id)}/fork-2"
    assert (audited(ledger, files).problems, audited(ledger, files).lost) == ((), 2)


def test_a_fork_that_nobody_signed_excuses_nothing(ledger: LedgerHandle, files: SealFiles, history: Any) -> None:
    common = seal_once(ledger, files)
    history.task()
    lost = seal_once(ledger, files)
    assert common is not None
    assert lost is not None
    rolled_back_to(ledger, common.size)
    origin = f"{common.origin}/fork-1"
    body = LogForked(
        ledger_id=ledger.ledger_id, fork=1, origin=origin, previous_origin=common.origin, common_size=common.size,
        common_root=common.root.hex(), lost_size=lost.size, lost_root=lost.root.hex(),
    )  # fmt: skip
    with ledger.connection() as conn:
        store.append(conn, ledger.ledger_id, "ledger", [ledger.new(body)])
    report = audited(ledger, files)
    assert report.forks == ()
    assert report.problems[0].position == 2
    assert "not all of them are here: the order ends at position 2" in report.problems[0].fault


def test_no_fork_hides_a_change(ledger: LedgerHandle, files: SealFiles, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    seal_once(ledger, files)
    behind(ledger, "UPDATE event SET leaf = sha256(leaf) WHERE id = 5")
    with pytest.raises(SealRefused, match="changed, not restored"):
        fork(ledger, files)


def test_a_key_that_does_not_fit_is_refused(ledger: LedgerHandle, files: SealFiles) -> None:
    seal_once(ledger, files)
    files.key.chmod(0o644)
    with pytest.raises(SealRefused, match="mode 644"):
        seal_once(ledger, files)
    files.key.unlink()
    with pytest.raises(SealRefused, match="no signing key"):
        seal_once(ledger, files)
    seal_files.make_key(files.key)
    with pytest.raises(CheckpointError, match="no signature of the trusted key"):
        seal_once(ledger, files)
    with pytest.raises(SealRefused, match="holds a key already"):
        seal_files.make_key(files.key)


def test_the_state_of_another_ledger_is_refused(ledger: LedgerHandle, files: SealFiles) -> None:
    key = seal_files.make_key(files.key)
    seal_files.write_signed(files.signed, checkpoint.sign(Checkpoint("tallystick.local/other", 3, bytes(32)), key))
    with pytest.raises(SealRefused, match="this database holds tallystick.local/"):
        seal_once(ledger, files)


def test_a_lost_state_file_is_made_again_from_the_database(ledger: LedgerHandle, files: SealFiles) -> None:
    head = seal_once(ledger, files)
    files.signed.unlink()
    with sealer(ledger, files) as own:
        assert isinstance(own, Sealer)
    signed = seal_files.read_signed(files.signed)
    assert signed is not None
    assert checkpoint.parse(signed)[0] == head


def test_one_call_seals_with_the_settings(ledger: LedgerHandle, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    first, second = seal_now(ledger, settings), seal_now(ledger, settings)
    assert first == second
    assert (tmp_path / "keys" / "seal.key").exists()
    assert len(seal_files.read_notes(tmp_path / "checkpoints.txt")) == 1


def test_a_key_stands_whole_beside_nothing_else_and_is_not_made_twice(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "seal.key"
    made = seal_files.make_key(path)
    with pytest.raises(SealRefused, match="holds a key already"):
        seal_files.make_key(path)
    assert [each.name for each in path.parent.iterdir()] == ["seal.key"] and path.stat().st_mode & 0o777 == 0o600
    assert seal_files.read_key(path).private_bytes_raw() == made.private_bytes_raw()
