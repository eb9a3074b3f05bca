"""Shredding: the text is gone, the events and their proofs stand, and traces say so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import blobs, lineage, projections, subjects
from ledger.actors import actor_names, note_actor
from ledger.cli import run
from ledger.errors import BlobShredded, InvalidEvent, SubjectDestroyed, UnknownId
from ledger.ledger import LedgerHandle, open_ledger
from ledger.leftovers import delete_derived, leftovers
from ledger.lineage_steps import SHREDDED
from ledger.settings import Settings
from ledger.shred import shred
from ledger.tables import READ_MODELS
from ledger.verify import verify

MINE = "project:test"


def test_the_text_is_gone_for_good_and_every_proof_stands(each_ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    ledger = each_ledger
    sealed(ledger)
    ledger.barrier()
    before = [(event.event_id, event.leaf) for event in ledger.read(limit=1000)]
    blob = ledger.pending("mail")
    done = shred(ledger, MINE, reason="erasure_request")
    assert (done.before, done.subject_id) == (False, MINE)
    assert done.blobs > 10 and done.bytes > 200
    ledger.barrier()
    after = ledger.read(limit=1000)
    assert [(event.event_id, event.leaf) for event in after][: len(before)] == before
    assert [(event.kind, event.stream) for event in after[len(before) :]] == [("SubjectShredded", "subject-project:test")]
    assert verify(ledger).intact
    with pytest.raises(SubjectDestroyed, match="'project:test' was shredded"):
        ledger.append([ledger.new(_run(blob.ref), blob)])
    with pytest.raises(SubjectDestroyed):
        ledger.pending("more")
    with ledger.connection() as conn:
        assert list(subjects.destroyed(conn)) == [MINE]
        ids = [bytes(row[0]).hex() for row in conn.execute("SELECT blob_id FROM blob WHERE subject_id = %s", (MINE,))]
        found = blobs.find(conn, ids)
    assert (found.data, found.broken, set(found.shredded)) == ({}, {}, set(ids))
    with pytest.raises(BlobShredded, match="cannot be read any more: subject 'project:test' was shredded at"):
        ledger.blob(ids[0])


def test_a_trace_shows_shredded_text_as_shredded_and_not_as_damage(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    shred(ledger, MINE, reason="retention_over")
    found = lineage.trace(ledger, "reward-a")
    assert found.intact
    assert {call.request for call in found.calls} == {SHREDDED}
    assert found.calls[0].prompt_ids is None
    assert found.verdicts[0].source == "def own_checker(): ..."
    assert "are shredded" in next(check.detail for check in found.checks if check.name == "blobs")
    assert run(["trace", "reward-a"], settings=Settings(database_url=ledger.url, project="test")) == 0


def test_damage_beside_shredded_text_is_still_damage(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    shred(ledger, MINE, reason="retention_over")
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE blob_chunk SET data = 'x' WHERE blob_no IN (SELECT blob_no FROM blob WHERE subject_id = 'public')")
    assert not lineage.trace(ledger, "reward-a").intact
    assert not verify(ledger).intact


def test_the_key_leaves_the_files_of_the_table(ledger: LedgerHandle) -> None:
    ledger.pending("x")
    with ledger.connection() as conn:
        before = conn.execute("SELECT pg_relation_filenode('subject')").fetchone()
    shred(ledger, MINE, reason="stored_by_mistake")
    with ledger.connection() as conn:
        assert conn.execute("SELECT pg_relation_filenode('subject')").fetchone() != before
        assert conn.execute("SELECT salt, key, destroyed_at IS NULL FROM subject").fetchall() == [(None, None, False)]


def test_a_persons_name_goes_with_the_persons_key_and_others_stay(ledger: LedgerHandle) -> None:
    note_actor(ledger, "person-1", "Ann")
    note_actor(ledger, "person-2", "Ben")
    mine, other = ledger.pending("told by Ann", subject_id="actor:person-1"), ledger.pending("told by Ben", subject_id="actor:person-2")
    ledger.append([ledger.new(_run(mine.ref), mine), ledger.new(_run(other.ref, "r2"), other)])
    assert shred(ledger, "actor:person-1", reason="erasure_request").names == 1
    assert actor_names(ledger) == {"person-2": "Ben"}
    assert ledger.blob(other.ref.blob_id) == b"told by Ben"


def test_shredding_twice_is_shredding_once(ledger: LedgerHandle) -> None:
    ledger.pending("x")
    first = shred(ledger, MINE, reason="erasure_request")
    again = shred(ledger, MINE, reason="retention_over")
    assert (first.before, again.before, again.destroyed_at) == (False, True, first.destroyed_at)
    assert len(ledger.read_stream(f"subject-{MINE}")) == 1


def test_what_cannot_be_shredded_is_refused_and_nothing_is_written(ledger: LedgerHandle) -> None:
    with pytest.raises(UnknownId, match="no subject 'nobody'"):
        shred(ledger, "nobody", reason="erasure_request")
    with pytest.raises(InvalidEvent, match="allowed: a subject of its own"):
        shred(ledger, "public", reason="erasure_request")
    ledger.pending("x")
    with pytest.raises(InvalidEvent, match="allowed: erasure_request, retention_over"):
        shred(ledger, MINE, reason="because Ann asked")
    with ledger.connection() as conn:
        assert subjects.destroyed(conn) == {}
    assert ledger.read_stream(f"subject-{MINE}") == []


def test_keys_go_only_after_the_log_says_so(ledger: LedgerHandle) -> None:
    ledger.pending("x")
    with psycopg.connect(ledger.url) as conn, pytest.raises(psycopg.Error, match="no SubjectShredded event"):
        conn.execute("SELECT destroy_subject('project:test', gen_random_uuid())")


def test_another_process_that_still_has_the_key_cannot_store_what_nobody_could_read(ledger: LedgerHandle) -> None:
    late = ledger.pending("late")
    with open_ledger(ledger.url, project="test", actor_id="other") as other:
        shred(other, MINE, reason="erasure_request")
    for many in (1, 60):
        with pytest.raises(SubjectDestroyed):
            ledger.append([ledger.new(_run(late.ref, f"r{n}"), late) for n in range(many)])
    assert ledger.read_stream("run-r0") == []


def test_no_read_model_holds_text_of_a_subject(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    """Their columns hold ids, codes, numbers and our own short words; what was said stays in blobs, so nothing is left to remove."""
    sealed(ledger)
    ledger.barrier()
    projections.catch_up(ledger)
    with ledger.connection() as conn:
        rows = [str(row) for name in READ_MODELS for row in conn.execute(f"SELECT t::text FROM {name} AS t").fetchall()]
    assert len(rows) >= 6
    for said in ("ann", "Ann", "send_email", "the mail went out", "def own_checker", "outbox"):
        assert not any(said in row for row in rows)


def test_files_that_may_hold_text_are_listed_and_the_derived_ones_deleted(tmp_path: Path) -> None:
    for name in ("exports/a/rows.jsonl", "great_expectations/page.html", "engine/engine.log", "postgres/PG_VERSION", "models/m.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    found = leftovers(tmp_path)
    assert [(item.path.relative_to(tmp_path).as_posix(), item.kind, item.derived) for item in found] == [
        ("exports/a/rows.jsonl", "export", True), ("great_expectations/page.html", "expectations page", True),
        ("engine/engine.log", "engine log", False),
    ]  # fmt: skip
    assert len(delete_derived(found)) == 2
    assert [item.kind for item in leftovers(tmp_path)] == ["engine log"]


def test_the_command_says_what_is_gone_and_what_is_left(ledger: LedgerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = ledger.pending("text")
    ledger.append([ledger.new(_run(blob.ref), blob)])
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "x.jsonl").write_text("text")
    settings = Settings(database_url=ledger.url, project="test", data_dir=tmp_path)
    assert run(["shred", MINE, "--reason", "erasure_request", "--delete-files"], settings=settings) == 0
    told = capsys.readouterr().out
    assert "unreadable: 1 blobs (4 bytes), tokens of 0 calls; names deleted: 0" in told
    assert "1 deleted, 0 left" in told and "backups" in told
    assert not (tmp_path / "exports" / "x.jsonl").exists()
    assert run(["subjects", "--json"], settings=settings) == 0
    assert '"subject_id":"project:test"' in capsys.readouterr().out.replace(" ", "")
    assert run(["shred", "nobody", "--reason", "erasure_request"], settings=settings) == 2


def _run(ref: Any, ident: str = "r1") -> Any:
    from ledger.events import RunConfigured

    return RunConfigured(run_id=ident, experiment_id="e", name="n", config=ref, config_digest="0" * 64, root_seed=1)
