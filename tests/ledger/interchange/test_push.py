"""Pushing a ledger into another: leaves, ids and versions stay, positions are new, nothing comes twice, another history is refused."""

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from ledger import lineage, proof, queries
from ledger.blobs import pending
from ledger.errors import BlobShredded, BlobWithheld, CheckpointError, DivergedLog, ForeignStream, PushRefused, SettingsError
from ledger.events import LogForked, WorldRegistered
from ledger.interchange import held
from ledger.interchange.ledger_source import Kept, LedgerSource
from ledger.interchange.log_tree import tiles_of
from ledger.interchange.push import push
from ledger.ledger import Guards, open_ledger
from ledger.lineage_steps import WITHHELD
from ledger.prove import write_proof
from ledger.shred import shred
from ledger.tables import METADATA, READ_MODELS
from ledger.token_packing import pack_stream
from ledger.tree import inclusion
from ledger.verify import verify
from ledger.verify_events import EventPass

Write = Callable[..., None]


def worlds(ledger: Any, count: int, *, begin: int = 0) -> None:
    """So many worlds, registered under digests that every ledger gives alike."""
    source = pending("world", media="text/x-python")
    ledger.append(
        [
            ledger.new(
                WorldRegistered(world_id=sha256(b"%d" % n).hexdigest(), name="desk", source=source.ref, fidelity="simulated"), source
            )
            for n in range(begin, begin + count)
        ]
    )


def counts(ledger: Any) -> dict[str, int]:
    """Rows of every table that a push writes."""
    names = ("event", "event_key", "edge", "node", "stream_head", "blob", "blob_chunk", "blob_use", "token_live", "token_pack", "subject",
             "source_log", "source_position")  # fmt: skip
    with ledger.connection() as conn:
        return {name: conn.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


def without_positions(value: Any) -> Any:
    """A trace as plain values, without what the ledger that holds it gives."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: without_positions(getattr(value, f.name)) for f in dataclasses.fields(value) if not f.name.endswith("position")}
    if isinstance(value, list | tuple):
        return [without_positions(item) for item in value]
    if isinstance(value, dict):
        return {name: without_positions(item) for name, item in value.items() if not str(name).endswith("position")}
    return value


def read_models(ledger: Any) -> dict[str, list[Any]]:
    """Rows of every read model without positions."""
    queries.fresh(ledger)
    found = {}
    with ledger.connection() as conn:
        for name in READ_MODELS:
            columns = [c.name for c in METADATA.tables[name].columns if not c.name.endswith("position")]
            listed = ", ".join(f'"{column}"' for column in columns)
            found[name] = conn.execute(f"SELECT to_jsonb(t) FROM (SELECT {listed} FROM {name}) AS t ORDER BY t::text").fetchall()
    return found


def test_an_event_keeps_leaf_ledger_and_version_under_a_new_position(laptop: Any, centre: Any, sealed: Write) -> None:
    worlds(centre.ledger, 3)
    sealed(laptop.ledger)
    head = laptop.seal()
    told = push(laptop.source(), centre.ledger, key=laptop.key)
    assert (told.status, told.events, told.held, told.size) == ("pushed", head.size, 0, head.size)
    centre.ledger.barrier()
    here = {event.event_id: event for event in centre.ledger.read(limit=5000)}
    for there in laptop.ledger.read(limit=5000):
        twin = here[there.event_id]
        assert (twin.leaf, twin.ledger_id, twin.version, twin.body_bytes) == (there.leaf, there.ledger_id, there.version, there.body_bytes)
        assert twin.position == (there.position or 0) + 4
    assert verify(centre.ledger).problems == ()
    assert centre.ledger.read_stream("rollout-rollout-a")[0].ledger_id == laptop.ledger.ledger_id


def test_a_second_push_adds_nothing_and_later_events_follow(laptop: Any, centre: Any, sealed: Write) -> None:
    sealed(laptop.ledger)
    laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    before = counts(centre.ledger)
    again = push(laptop.source(), centre.ledger, key=laptop.key)
    assert (again.status, again.events, again.held) == ("nothing to push", 0, again.size)
    assert counts(centre.ledger) == before
    worlds(laptop.ledger, 5)
    laptop.seal()
    assert push(laptop.source(), centre.ledger, key=laptop.key, dry_run=True).kinds == (("WorldRegistered", 5),)
    assert counts(centre.ledger) == before
    told = push(laptop.source(), centre.ledger, key=laptop.key)
    assert (told.events, counts(centre.ledger)["source_log"]) == (5, 2)
    assert verify(centre.ledger).intact


def test_a_proof_made_on_the_laptop_and_one_made_at_the_centre_are_valid(laptop: Any, centre: Any, sealed: Write) -> None:
    sealed(laptop.ledger)
    head = laptop.seal()
    source = laptop.source()
    _, read = tiles_of(source.leaves())
    event = next(event for batch in source.batches(0) for event in batch if event.fields.kind == "RewardDerived")
    path = tuple(inclusion(read, event.position - 1, head.size))
    early = write_proof(proof.Proof(event.fields, event.body, event.position - 1, path, source.claim.note))
    push(source, centre.ledger, key=laptop.key)
    with centre.ledger.connection() as conn:
        late = write_proof(held.prove(conn, event.fields.event_id))
    assert late == early
    assert [name for name, _ in proof.checks(proof.read_proof(late), proof.parse_key(laptop.key))][:3] == [
        "checkpoint",
        "event id",
        "inclusion",
    ]


def test_a_trace_at_the_centre_equals_the_laptops(laptop: Any, centre: Any, other_laptop: Any, sealed: Write) -> None:
    for number, each in enumerate((laptop, other_laptop)):
        sealed(each.ledger, f"-{number}")
        each.seal()
    queries.fresh(laptop.ledger)
    there = without_positions(lineage.trace(laptop.ledger, "reward-a-0"))
    for each in (laptop, other_laptop):
        push(each.source(), centre.ledger, key=each.key)
        queries.fresh(centre.ledger)
        here = without_positions(lineage.trace(centre.ledger, "reward-a-0"))
        assert all(check["passed"] for check in here["checks"])
        if each is other_laptop:
            # Registrations are by digest, so those of both ledgers are in the chain and are checked.
            assert here["checks"][0]["detail"] != there["checks"][0]["detail"]
            here["checks"][:2] = there["checks"][:2]
        assert here == there


def test_two_laptops_in_either_order_give_equal_read_models(laptop: Any, other_laptop: Any, new_ledger: Any, sealed: Write) -> None:
    sealed(laptop.ledger, "-1")
    sealed(other_laptop.ledger, "-2")
    found = []
    for order in ((laptop, other_laptop), (other_laptop, laptop)):
        centre = new_ledger()
        for each in order:
            each.seal()
            push(each.source(), centre.ledger, key=each.key)
        found.append(read_models(centre.ledger))
        assert verify(centre.ledger).problems == ()
    assert found[0] == found[1]
    assert len(found[0]["rollout_view"]) == 2
    assert len(found[0]["bundle_view"]) == 1


def test_laptops_push_at_the_same_time(laptop: Any, other_laptop: Any, centre: Any) -> None:
    failed: list[BaseException] = []
    for each in (laptop, other_laptop):
        worlds(each.ledger, 1200)
        each.seal()

    def run(each: Any) -> None:
        try:
            push(each.source(), centre.ledger, key=each.key)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in (laptop, other_laptop, laptop)]
    for thread in threads:
        thread.start()
    worlds(centre.ledger, 300)
    for thread in threads:
        thread.join()
    assert failed == []
    assert counts(centre.ledger)["event"] == 1201 + 1201 + 301
    assert counts(centre.ledger)["node"] == 1200 + 3
    assert verify(centre.ledger).problems == ()


def _push_slowly(url: str, target: str, key: str) -> None:
    with open_ledger(url, project="test", actor_id="t") as ledger, open_ledger(target, project="test", actor_id="t") as centre:
        push(LedgerSource(ledger, with_keys=True), centre, key=key)


@pytest.mark.parametrize("after", [1, 1001])
def test_a_push_killed_on_its_way_goes_on_where_it_ended(laptop: Any, centre: Any, sealed: Write, after: int) -> None:
    sealed(laptop.ledger)
    worlds(laptop.ledger, 2500)
    head = laptop.seal()
    process = multiprocessing.get_context("spawn").Process(target=_push_slowly, args=(laptop.ledger.url, centre.ledger.url, laptop.key))
    process.start()
    deadline = time.monotonic() + 60
    with psycopg.connect(centre.ledger.url, autocommit=True) as conn:
        while conn.execute("SELECT count(*) FROM source_position").fetchone()[0] < after and time.monotonic() < deadline:  # type: ignore[index]
            time.sleep(0.002)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert verify(centre.ledger).problems == ()
    told = push(laptop.source(), centre.ledger, key=laptop.key)
    assert told.held + told.events == head.size
    assert told.held >= 1000
    assert counts(centre.ledger)["event"] == head.size + 1
    assert verify(centre.ledger).problems == ()


def test_another_history_is_refused_with_both_shown(laptop: Any, centre: Any, cluster: Any) -> None:
    worlds(laptop.ledger, 3)
    laptop.seal()
    url = cluster.migrated_database()
    # A copy of the laptop as a restore would make it, which then goes another way.
    with laptop.ledger.connection() as conn, psycopg.connect(url) as copy:
        copy.execute("SET session_replication_role = replica")
        for table in ("ledger", "node", "stream_head", "event", "event_key", "event_order", "order_step", "edge", "blob", "blob_chunk",
                      "blob_use", "checkpoint"):  # fmt: skip
            columns = "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute"
            names = conn.execute(f"{columns} WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped").fetchone()[0]
            with conn.cursor().copy(f"COPY (SELECT {names} FROM {table}) TO STDOUT") as out:
                data = b"".join(out)
            with copy.cursor().copy(f"COPY {table} ({names}) FROM STDIN") as into:
                into.write(data)
        for sequence in ("event_id_seq", "blob_no_seq", "stream_head_stream_id_seq"):
            copy.execute(f"SELECT setval('{sequence}', 1000)")
    worlds(laptop.ledger, 2, begin=10)
    first = laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    before = counts(centre.ledger)
    with open_ledger(url, project="test", actor_id="t") as ledger:
        other = dataclasses.replace(laptop, ledger=ledger)
        worlds(ledger, 4, begin=20)
        second = other.seal()
        with pytest.raises(DivergedLog, match="split view") as caught:
            push(other.source(), centre.ledger, key=laptop.key)
        assert proof.b64(first.root) in str(caught.value)
        assert proof.b64(second.root) in str(caught.value)
        # Under the name of a fork it is refused as well, since the centre has what the fork does not.
        other.origin = f"{laptop.origin}/fork-1"
        other.seal()
        with pytest.raises(DivergedLog, match="does not say that it forked"):
            push(other.source(), centre.ledger, key=other.key)
    assert counts(centre.ledger) == before
    cluster.drop(url)


def fork_said(sealed: Any, number: int, common: int) -> None:
    """The log says that it forked, as `tally seal --fork` does, and is sealed under its new name."""
    origin, root = f"{sealed.origin}/fork-{number}", "0" * 64
    body = LogForked(ledger_id=sealed.ledger.ledger_id, fork=number, origin=origin, previous_origin=sealed.origin, common_size=common,
                     common_root=root, lost_size=common + 9, lost_root=root)  # fmt: skip
    sealed.ledger.append([sealed.ledger.new(body)])
    sealed.seal(origin)


def test_a_fork_is_taken_only_where_nothing_above_the_common_checkpoint_is_here(laptop: Any, centre: Any) -> None:
    worlds(laptop.ledger, 3)
    common = laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    worlds(laptop.ledger, 3, begin=3)
    fork_said(laptop, 1, common.size)
    assert push(laptop.source(), centre.ledger, key=laptop.key).events == 4
    assert verify(centre.ledger).problems == ()
    for each, forks in ((laptop, 1), (centre, 0)):
        with each.ledger.connection() as conn:
            events = EventPass(conn, each.ledger.ledger_id)
            assert list(events.chunks()) and events.faults == []
            # It is the laptop's log that forked, and not that of the centre.
            assert len(events.forks) == forks
    held_now = common.size + 4
    fork_said(laptop, 2, held_now - 1)
    with pytest.raises(DivergedLog, match=f"forked from .* after {held_now - 1} events; here are {held_now}"):
        push(laptop.source(), centre.ledger, key=laptop.key)


def test_a_source_that_is_behind_says_so(laptop: Any, centre: Any) -> None:
    worlds(laptop.ledger, 3)
    laptop.seal()
    early = laptop.source()
    worlds(laptop.ledger, 3, begin=3)
    laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    before = counts(centre.ledger)
    told = push(early, centre.ledger, key=laptop.key)
    assert (told.status, told.held, told.size) == ("source is behind", 7, 4)
    assert counts(centre.ledger) == before


def test_only_a_whole_log_under_its_own_key_is_taken(laptop: Any, centre: Any, other_laptop: Any) -> None:
    worlds(laptop.ledger, 5)
    with pytest.raises(PushRefused, match="no checkpoint"):
        laptop.source()
    laptop.seal()
    for source, said in (
        (LedgerSource(laptop.ledger, with_keys=True, keep=Kept(kinds=("WorldRegistered",))), "filtered"),
        (LedgerSource(laptop.ledger, with_keys=True, until=4), "ends at position 4"),
        (LedgerSource(laptop.ledger, with_keys=True, since=2), "begins after position 2"),
    ):
        with pytest.raises(PushRefused, match=said):
            push(source, centre.ledger, key=laptop.key)
    with pytest.raises(PushRefused, match="both ledger"):
        push(laptop.source(), laptop.ledger, key=laptop.key)
    with pytest.raises(CheckpointError, match="no signature of the trusted key"):
        push(laptop.source(), centre.ledger, key=other_laptop.key)
    assert counts(centre.ledger)["source_position"] == 0
    push(laptop.source(), centre.ledger, key=laptop.key)
    worlds(laptop.ledger, 1, begin=9)
    laptop.private = other_laptop.private
    laptop.seal()
    with pytest.raises(PushRefused, match="its key may not change"):
        push(laptop.source(), centre.ledger, key=laptop.key)


def test_a_stream_belongs_to_one_ledger_and_digests_may_have_one_in_each(
    laptop: Any, other_laptop: Any, centre: Any, sealed: Write
) -> None:
    sealed(laptop.ledger)
    laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    worlds(centre.ledger, 1)
    event = laptop.ledger.read_stream("rollout-rollout-a")[0]
    with pytest.raises(ForeignStream, match="belongs to ledger"):
        centre.ledger.append([centre.ledger.new(event.body)])
    with pytest.raises(ForeignStream, match="belongs to ledger"):
        centre.ledger.append([centre.ledger.new(event.body)] * 1 + _many(centre.ledger))
    sealed(other_laptop.ledger)
    other_laptop.seal()
    with pytest.raises(ForeignStream, match="belongs to ledger"):
        push(other_laptop.source(), centre.ledger, key=other_laptop.key)
    assert verify(centre.ledger).problems == ()


def _many(ledger: Any) -> list[Any]:
    source = pending("world", media="text/x-python")
    return [
        ledger.new(WorldRegistered(world_id=sha256(b"x%d" % n).hexdigest(), name="desk", source=source.ref, fidelity="simulated"), source)
        for n in range(60)
    ]


def test_text_stays_unreadable_until_its_keys_travel(laptop: Any, centre: Any, sealed: Write) -> None:
    sealed(laptop.ledger)
    laptop.seal()
    push(laptop.source(with_keys=False), centre.ledger, key=laptop.key)
    with centre.ledger.connection() as conn:
        assert conn.execute("SELECT count(*) FROM subject").fetchone() == (0,)
    blob = laptop.ledger.read_stream("verdict-verdict-a")[0].body.conditions[0].evidence
    with pytest.raises(BlobWithheld, match=laptop.ledger.ledger_id):
        centre.ledger.blob(blob.blob_id)
    report = verify(centre.ledger)
    assert (report.problems, report.shredded) == ((), 0)
    assert report.withheld > 10
    queries.fresh(centre.ledger)
    trace = lineage.trace(centre.ledger, "reward-a")
    assert trace.intact
    assert {call.request for call in trace.calls} == {WITHHELD}
    assert "stayed with another ledger" in str(trace.checks)
    told = push(laptop.source(), centre.ledger, key=laptop.key)
    assert (told.status, told.keys) == ("pushed", 1)
    assert centre.ledger.blob(blob.blob_id) == laptop.ledger.blob(blob.blob_id)
    assert verify(centre.ledger).withheld == 0


@pytest.mark.parametrize("with_keys", [True, False])
def test_a_subject_shredded_at_its_source_is_shredded_here_once_its_event_is_here(
    laptop: Any, centre: Any, sealed: Write, with_keys: bool
) -> None:
    sealed(laptop.ledger)
    laptop.seal()
    push(laptop.source(with_keys=with_keys), centre.ledger, key=laptop.key)
    shred(laptop.ledger, laptop.ledger.subject_id, reason="erasure_request")
    assert push(laptop.source(), centre.ledger, key=laptop.key).destroyed == 0
    laptop.seal()
    told = push(laptop.source(with_keys=with_keys), centre.ledger, key=laptop.key)
    assert (told.events, told.destroyed) == (1, 1)
    assert push(laptop.source(), centre.ledger, key=laptop.key).status == "nothing to push"
    with centre.ledger.connection() as conn:
        assert conn.execute("SELECT salt, key, destroyed_at IS NOT NULL FROM subject").fetchall() == [(None, None, True)]
    report = verify(centre.ledger)
    assert (report.problems, report.withheld) == ((), 0)
    assert report.shredded > 10


def test_a_log_goes_on_under_a_subject_that_the_centre_shredded(laptop: Any, centre: Any, sealed: Write) -> None:
    sealed(laptop.ledger)
    laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    abroad = f"{laptop.ledger.ledger_id}/{laptop.ledger.subject_id}"
    shred(centre.ledger, abroad, reason="retention_over")
    more = laptop.ledger.pending("words of afterwards", media="text/plain")
    laptop.ledger.append([laptop.ledger.new(WorldRegistered(world_id="7" * 64, name="w", source=more.ref, fidelity="simulated"), more)])
    laptop.seal()
    told = push(laptop.source(), centre.ledger, key=laptop.key)
    assert (told.events, told.blobs, told.keys) == (1, 1, 0)
    with pytest.raises(BlobShredded):
        centre.ledger.blob(more.ref.blob_id)
    report = verify(centre.ledger)
    assert (report.problems, report.withheld) == ((), 0)
    with centre.ledger.connection() as conn:
        assert conn.execute("SELECT subject_id, salt, key FROM subject").fetchall() == [(abroad, None, None)]


def test_text_that_lies_in_the_clear_stays_unless_keys_may_travel(laptop: Any, centre: Any, sealed: Write) -> None:
    sealed(laptop.ledger)
    laptop.seal()
    with laptop.ledger.connection() as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE blob SET codec = codec & 1 WHERE blob_no = (SELECT min(blob_no) FROM blob WHERE subject_id <> 'public')")
    with pytest.raises(PushRefused, match="--with-keys"):
        laptop.source(with_keys=False)


def test_keys_are_unwrapped_at_the_source_and_wrapped_at_the_centre(laptop: Any, centre: Any, cluster: Any) -> None:
    with (
        open_ledger(laptop.ledger.url, project="test", actor_id="t", guards=Guards(kek=b"l" * 32)) as wrapping,
        open_ledger(centre.ledger.url, project="test", actor_id="t", guards=Guards(kek=b"c" * 32)) as taking,
    ):
        blob = wrapping.pending("words", media="text/plain")
        wrapping.append([wrapping.new(WorldRegistered(world_id="7" * 64, name="w", source=blob.ref, fidelity="simulated"), blob)])
        laptop.seal()
        source = LedgerSource(wrapping, with_keys=True)
        assert push(source, taking, key=laptop.key).keys == 1
        assert taking.blob(blob.ref.blob_id) == b"words"
        with centre.ledger.connection() as conn:
            assert conn.execute("SELECT octet_length(salt), octet_length(key) FROM subject").fetchall() == [(40, 40)]
        with pytest.raises(SettingsError, match="wrapped"):
            laptop.source(with_keys=True).subjects()
        more = wrapping.pending("other words", media="text/plain", subject_id="project:more")
        wrapping.append([wrapping.new(WorldRegistered(world_id="8" * 64, name="w", source=more.ref, fidelity="simulated"), more)])
        laptop.seal()
        # Without the centre's key, keys are not put beside its wrapped ones as they are.
        with pytest.raises(SettingsError, match="wrapped"):
            push(LedgerSource(wrapping, with_keys=True), centre.ledger, key=laptop.key)


def test_what_the_centre_had_from_others_comes_along_when_it_is_pulled(laptop: Any, other_laptop: Any, centre: Any, sealed: Write) -> None:
    for number, each in enumerate((laptop, other_laptop)):
        sealed(each.ledger, f"-{number}")
        each.seal()
        push(each.source(), centre.ledger, key=each.key)
    centre.seal()
    told = push(centre.source(), laptop.ledger, key=centre.key)
    own = counts(other_laptop.ledger)["event"]
    assert told.events == own + 1
    assert verify(laptop.ledger).problems == ()
    queries.fresh(laptop.ledger)
    assert lineage.trace(laptop.ledger, "reward-a-1").intact
    # Nor does its own history come twice when the other ledger is pushed to it directly.
    again = push(other_laptop.source(), laptop.ledger, key=other_laptop.key)
    assert (again.events, again.size) == (0, own)
    assert verify(laptop.ledger).problems == ()


def test_an_event_changed_at_the_source_is_not_taken(laptop: Any, centre: Any) -> None:
    worlds(laptop.ledger, 3)
    laptop.seal()
    with laptop.ledger.connection() as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE event SET actor_id = 'mallory' WHERE kind = 'WorldRegistered' AND id = 3")
    with pytest.raises(PushRefused, match="leaf does not match"):
        push(laptop.source(), centre.ledger, key=laptop.key)
    assert counts(centre.ledger)["source_log"] == 0


def test_verify_finds_what_no_log_brought_and_a_log_that_was_changed(laptop: Any, centre: Any) -> None:
    worlds(laptop.ledger, 3)
    laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    for change, said in (
        ("DELETE FROM source_position WHERE position = 2", "no log that was taken over holds it"),
        ("UPDATE source_log SET root = sha256(root)", "its first 4 events lead to"),
        ("DELETE FROM source_position", "none of its events is here"),
        ("UPDATE source_position SET position = position % 4 + 1", "its first 4 events lead to"),
    ):
        with pytest.raises(ZeroDivisionError), centre.ledger.connection() as conn:
            conn.execute("SET LOCAL session_replication_role = replica")
            conn.execute(change.replace("position % 4 + 1", "-position"))
            if "%" in change:
                conn.execute("UPDATE source_position SET position = (-position) % 4 + 1")
            from ledger.verify import examine

            faults = [problem.fault for problem in examine(conn).problems]
            assert any(said in fault for fault in faults), faults
            raise ZeroDivisionError
    assert verify(centre.ledger).problems == ()


def staged_calls(sealed: Any) -> list[Any]:
    """Stream and event ids of the model calls whose tokens are staged."""
    with sealed.ledger.connection() as conn:
        return list(conn.execute("SELECT stream_id, event_id FROM token_live ORDER BY event_id").fetchall())


def packed(sealed: Any, rows: Any) -> None:
    """The staged tokens become one pack."""
    assert pack_stream(sealed.ledger, rows[0][0]).packs == 1


def test_packed_tokens_take_the_place_of_staged_ones(laptop: Any, centre: Any, sealed: Write) -> None:
    sealed(laptop.ledger)
    laptop.seal()
    rows = staged_calls(laptop)
    told = push(laptop.source(), centre.ledger, key=laptop.key)
    assert (told.staged_calls, told.packs) == (2, 0)
    packed(laptop, rows)
    told = push(laptop.source(), centre.ledger, key=laptop.key)
    assert (told.status, told.staged_calls, told.packs) == ("pushed", 0, 1)
    assert (counts(centre.ledger)["token_live"], counts(centre.ledger)["token_pack"]) == (0, 1)
    before = counts(centre.ledger)
    assert push(laptop.source(), centre.ledger, key=laptop.key).status == "nothing to push"
    assert counts(centre.ledger) == before
    with centre.ledger.connection() as conn, pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        conn.execute("DELETE FROM token_pack")


def test_an_own_event_that_is_missing_here_is_refused(laptop: Any, centre: Any, new_ledger: Any) -> None:
    worlds(laptop.ledger, 2)
    laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    centre.seal()
    with laptop.ledger.connection() as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("DELETE FROM event_key WHERE id = (SELECT max(id) FROM event)")
    with pytest.raises(PushRefused, match="as after a restore"):
        push(centre.source(), laptop.ledger, key=centre.key)


def test_a_login_of_the_role_writer_takes_a_log_over(laptop: Any, centre: Any, cluster: Any, sealed: Write) -> None:
    from tests.ledger.test_roles import Deployment, drop_roles

    deployment = Deployment(cluster, centre.ledger.url, "exchange", lambda ledger: None)
    sealed(laptop.ledger)
    laptop.seal()
    staged = staged_calls(laptop)
    with deployment.opened("writer") as writer:
        told = push(laptop.source(), writer, key=laptop.key)
        assert (told.status, told.keys, told.staged_calls) == ("pushed", 1, 2)
        packed(laptop, staged)
        shred(laptop.ledger, laptop.ledger.subject_id, reason="erasure_request")
        laptop.seal()
        told = push(laptop.source(), writer, key=laptop.key)
        assert (told.events, told.packs, told.destroyed) == (1, 1, 1)
    assert verify(centre.ledger).problems == ()
    centre.ledger.close()
    cluster.drop(centre.ledger.url)
    drop_roles(cluster.server.url("postgres"), "exchange")
