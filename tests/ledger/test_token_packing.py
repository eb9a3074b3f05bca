"""Token tables: staged with the event or not at all, packed once by whoever comes first, and never lost."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
import pytest

from ledger import store, token_packing, tokens
from ledger.arrays import Uuids
from ledger.errors import TokenError
from ledger.events import ModelCalled
from ledger.ledger import LedgerHandle, open_ledger
from ledger.store import New
from ledger.token_calls import TokenCall
from ledger.token_link import Linker
from ledger.token_packing import SENT_BYTES, Packed, pack_ended, pack_rollout, pack_rollouts, pack_stream
from ledger.token_reading import check_streams, examine_tokens, read_tokens, streams_of
from ledger.token_rows import stored_streams
from ledger.verify import verify
from tests.ledger.conftest import History
from tests.token_histories import held, plain

HEAD = [11, 12, 13, 14]


def model_call(ledger: LedgerHandle, rollout_id: str, index: int, arrays: tokens.CapturedTokens) -> New:
    body = ModelCalled(
        call_id=f"{rollout_id}-call-{index}", rollout_id=rollout_id, index=index, participant="agent", role="agent", status="completed",
        prompt_ids=arrays.prompt_ids, sampled_ids=arrays.sampled_ids, logprobs=arrays.logprobs, attempts=1, latency_s=0.1,
    )  # fmt: skip
    return ledger.new(body, tokens=arrays.staged)


def write_calls(ledger: LedgerHandle, rollout_id: str, count: int, *, first: int = 0, size: int = 3) -> list[tuple[Any, ...]]:
    """Append calls that each continue the one before, as a gateway would; what was sampled, as bytes."""
    linker, prompt, made = Linker(), np.array(HEAD, "<i4"), []
    rng = np.random.default_rng(5)
    for index in range(first, first + count):
        sampled = rng.integers(0, 50_000, size).astype("<i4")
        logprobs = -rng.random(size).astype("<f4")
        link = linker.find(prompt)
        arrays = held(ledger, (prompt.tobytes(), sampled.tobytes(), logprobs.tobytes()), rollout_id, f"{rollout_id}-call-{index}", link)
        event_id = ledger.append([model_call(ledger, rollout_id, index, arrays)]).events[0].event_id
        linker.add(event_id, prompt, sampled)
        made.append((event_id, prompt.tobytes(), sampled.tobytes(), logprobs.tobytes()))
        prompt = np.concatenate([prompt, sampled, np.array([index], "<i4")])
    return made


def stream_of(ledger: LedgerHandle, made: Sequence[tuple[Any, ...]]) -> int:
    with ledger.connection() as conn:
        (stream_id,) = streams_of(conn, [call[0] for call in made])
    return stream_id


def read(ledger: LedgerHandle, *stream_ids: int) -> list[tuple[Any, ...]]:
    with ledger.connection() as conn:
        found: list[TokenCall] = list(read_tokens(conn, stream_ids).values())
    return sorted(plain(call) for call in found)


def counts(ledger: LedgerHandle) -> tuple[int, int]:
    """Staged calls and packs."""
    with ledger.connection() as conn:
        row = conn.execute("SELECT (SELECT count(*) FROM token_live), (SELECT count(*) FROM token_pack)").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def test_calls_are_read_alike_staged_packed_and_half_of_each(each_ledger: LedgerHandle) -> None:
    made = write_calls(each_ledger, "r0", 5)
    stream_id = stream_of(each_ledger, made)
    assert (read(each_ledger, stream_id), counts(each_ledger)) == (sorted(made), (5, 0))
    packed = pack_stream(each_ledger, stream_id)
    assert (packed.packs, packed.calls, packed.taken, packed.faults, packed.packed_bytes > 0) == (1, 5, 0, (), True)
    assert (read(each_ledger, stream_id), counts(each_ledger)) == (sorted(made), (0, 1))
    assert pack_stream(each_ledger, stream_id) == Packed()
    late = write_calls(each_ledger, "r0", 2, first=5)
    assert read(each_ledger, stream_id) == sorted(made + late)
    again = pack_rollout(each_ledger, "r0")
    assert (again.packs, again.calls) == (1, 2)
    assert (read(each_ledger, stream_id), counts(each_ledger)) == (sorted(made + late), (0, 2))
    assert verify(each_ledger).problems == ()


def test_a_late_call_shares_what_an_earlier_pack_holds(ledger: LedgerHandle) -> None:
    made = write_calls(ledger, "r0", 1, size=5_000)
    stream_id = stream_of(ledger, made)
    first = pack_stream(ledger, stream_id)
    write_calls(ledger, "r0", 1, first=1, size=5_000)
    event_id, prompt, sampled, _ = made[0]
    arrays = held(ledger, (prompt + sampled, b"", None), "r0", "r0-call-9")
    ledger.append([model_call(ledger, "r0", 9, arrays)])
    second = pack_stream(ledger, stream_id)
    assert (second.calls, second.staged_bytes > 4 * 15_000) == (2, True)
    assert second.packed_bytes < first.packed_bytes + 500
    assert event_id in {call[0] for call in read(ledger, stream_id)}


def test_many_streams_are_read_at_once(ledger: LedgerHandle) -> None:
    made = [write_calls(ledger, f"r{n}", 2) for n in range(6)]
    streams = [stream_of(ledger, some) for some in made]
    for stream_id in streams[:3]:
        pack_stream(ledger, stream_id)
    assert read(ledger, *streams) == sorted(call for some in made for call in some)
    with ledger.connection() as conn:
        assert read_tokens(conn, []) == {}


def packs_of(ledger: LedgerHandle) -> list[bytes]:
    """All packs as they are stored."""
    with ledger.connection() as conn:
        return sorted(bytes(row[0]) for row in conn.execute("SELECT data FROM token_pack"))


def test_rollouts_are_packed_together_as_each_is_by_itself(ledger: LedgerHandle) -> None:
    made = {f"r{n}": write_calls(ledger, f"r{n}", 2 + n % 3, size=3 + n) for n in range(8)}
    _spoil(ledger, made["r3"][1][0])
    both = {name: made[name] for name in ("r5", "r6")}
    for name, size in (("r5", 1), ("r6", 2)):
        pack_rollout(ledger, name)
        both[name] = both[name] + write_calls(ledger, name, size, first=9)
    staged = counts(ledger)[0]
    with psycopg.connect(ledger.url) as conn:
        conn.execute("CREATE TABLE kept AS SELECT * FROM token_live")
    packed = pack_rollouts(ledger, [*made, "nobody"])
    assert {name for name, one in packed.items() if one.faults} == {"r3"}
    assert f"call {made['r3'][1][0]}" in packed["r3"].faults[0]
    assert (packed["r3"].packs, packed["nobody"], packed["r5"].calls, packed["r6"].calls) == (0, Packed(), 1, 2)
    total = sum(packed.values(), Packed())
    assert (total.packs, total.calls, total.taken, counts(ledger)) == (7, staged - 2, 0, (2, 9))
    streams = [stream_of(ledger, calls) for name, calls in made.items() if name != "r3"]
    assert read(ledger, *streams) == sorted(call for name, calls in {**made, **both}.items() if name != "r3" for call in calls)
    together = packs_of(ledger)
    # The same rows again, packed stream by stream.
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("DELETE FROM token_pack WHERE pack_id > 2")
        conn.execute("TRUNCATE token_live")
        conn.execute("INSERT INTO token_live SELECT * FROM kept")
    for stream_id in streams:
        assert pack_stream(ledger, stream_id).packs == 1
    assert packs_of(ledger) == together


def _spoil(ledger: LedgerHandle, event_id: str) -> None:
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE token_live SET prompt = prompt || 'x' WHERE event_id = %s", (event_id,))


def test_packs_that_are_too_large_for_one_statement_go_in_several(ledger: LedgerHandle) -> None:
    made = [write_calls(ledger, f"r{n}", 1, size=70_000) for n in range(5)]
    packed = pack_rollouts(ledger, [f"r{n}" for n in range(5)])
    total = sum(packed.values(), Packed())
    assert (total.packs, total.faults, counts(ledger)) == (5, (), (0, 5))
    assert total.packed_bytes > 2 * SENT_BYTES
    assert read(ledger, *(stream_of(ledger, some) for some in made)) == sorted(call for some in made for call in some)


def test_only_ended_rollouts_are_packed(ledger: LedgerHandle, history: History) -> None:
    history.task()
    for name in ("r0", "r1"):
        history.start(name, slot=int(name[1]))
        history.call(name)
    history.end("r0", [])
    history.call(None)
    seen: list[tuple[int, int]] = []
    packed = pack_ended(ledger, progress=lambda done, total: seen.append((done, total)))
    assert (packed.packs, packed.calls, packed.faults, seen) == (2, 2, (), [(1, 2), (2, 2)])
    assert counts(ledger) == (1, 2)
    assert pack_ended(ledger) == Packed()
    assert pack_rollout(ledger, "nobody") == Packed()


def test_what_is_appended_again_is_not_staged_again(ledger: LedgerHandle) -> None:
    made = write_calls(ledger, "r0", 2)
    pack_stream(ledger, stream_of(ledger, made))
    assert write_calls(ledger, "r0", 2) == made
    assert counts(ledger) == (0, 1)


@pytest.mark.parametrize("events", [1, store.SMALL + 2])
def test_an_append_that_is_rolled_back_leaves_nothing_staged(each_ledger: LedgerHandle, events: int) -> None:
    batch = []
    for index in range(events):
        arrays = held(each_ledger, (tokens.ids_bytes([1]), tokens.ids_bytes([2]), None), "r0", f"r0-call-{index}")
        batch.append(model_call(each_ledger, "r0", index, arrays))
    with pytest.raises(RuntimeError), each_ledger.connection() as conn:
        store.append(conn, each_ledger.ledger_id, each_ledger.project, batch)
        assert conn.execute("SELECT count(*) FROM token_live").fetchone() == (events,)
        raise RuntimeError
    assert counts(each_ledger) == (0, 0)
    each_ledger.append(batch)
    assert counts(each_ledger) == (events, 0)


@pytest.mark.parametrize("statement", [
    "DELETE FROM token_live", "UPDATE token_live SET shared = 0", "TRUNCATE token_live", "DELETE FROM token_pack",
    "UPDATE token_pack SET data = ''", "TRUNCATE token_pack",
])  # fmt: skip
def test_token_tables_refuse_changes(each_ledger: LedgerHandle, statement: str) -> None:
    made = write_calls(each_ledger, "r0", 2)
    pack_stream(each_ledger, stream_of(each_ledger, made))
    write_calls(each_ledger, "r1", 1)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="append-only"), each_ledger.connection() as conn:
        conn.execute(statement)
    assert counts(each_ledger) == (1, 1)


@pytest.mark.parametrize("wrong", ["digest", "events", "subject", "stream"])
def test_a_pack_of_other_rows_than_are_staged_is_refused(each_ledger: LedgerHandle, wrong: str) -> None:
    made = write_calls(each_ledger, "r0", 2)
    stream_id = stream_of(each_ledger, made)
    with each_ledger.connection() as conn:
        row = conn.execute(
            "SELECT sha256(string_agg(token_row_digest(t), ''::bytea ORDER BY event_id)) FROM token_live AS t WHERE stream_id = %s",
            (stream_id,),
        ).fetchone()
    assert row is not None
    digest, event_ids = (b"0" * 32 if wrong == "digest" else row[0]), [call[0] for call in made]
    subject = "somebody" if wrong == "subject" else each_ledger.subject_id
    given = (stream_id + (wrong == "stream"), subject, Uuids(event_ids[: 1 if wrong == "events" else 2]), digest, b"pack")
    with pytest.raises(psycopg.Error, match="not the") as caught, each_ledger.connection() as conn:
        conn.execute("SELECT pack_tokens(%s, %s, %s, %s, %s)", given)
    assert caught.value.sqlstate == "TY005"
    assert (counts(each_ledger), read(each_ledger, stream_id)) == ((2, 0), sorted(made))


def test_a_pack_that_is_rolled_back_leaves_the_rows(each_ledger: LedgerHandle) -> None:
    made = write_calls(each_ledger, "r0", 2)
    stream_id = stream_of(each_ledger, made)
    with each_ledger.connection() as conn:
        row = conn.execute(
            "SELECT sha256(string_agg(token_row_digest(t), ''::bytea ORDER BY event_id)) FROM token_live AS t WHERE stream_id = %s",
            (stream_id,),
        ).fetchone()
    assert row is not None
    with pytest.raises(RuntimeError), each_ledger.connection() as conn:
        given = (stream_id, each_ledger.subject_id, Uuids(call[0] for call in made), row[0], b"pack")
        conn.execute("SELECT pack_tokens(%s, %s, %s, %s, %s)", given)
        assert conn.execute("SELECT count(*) FROM token_live").fetchone() == (0,)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState), conn.transaction():
            conn.execute("DELETE FROM token_live")
        raise RuntimeError
    assert read(each_ledger, stream_id) == sorted(made)


def test_of_packers_at_once_each_row_goes_into_one_pack(ledger: LedgerHandle) -> None:
    made = [write_calls(ledger, f"r{n}", 3) for n in range(12)]
    streams = [stream_of(ledger, some) for some in made]
    done: list[Packed] = []
    together = threading.Barrier(3)

    def work() -> None:
        for stream_id in streams:
            together.wait()
            done.append(pack_stream(ledger, stream_id))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(done, Packed())
    assert (total.packs, total.calls, total.faults, counts(ledger)) == (12, 36, (), (0, 12))
    assert total.taken > 0
    assert read(ledger, *streams) == sorted(call for some in made for call in some)


def test_of_packers_of_many_rollouts_at_once_each_row_goes_into_one_pack(ledger: LedgerHandle) -> None:
    names = [f"r{n}" for n in range(24)]
    made = [write_calls(ledger, name, 2) for name in names]
    done: list[Packed] = []
    together = threading.Barrier(3)

    def work(mine: Sequence[str]) -> None:
        for at in range(0, len(mine), 8):
            together.wait()
            done.extend(pack_rollouts(ledger, mine[at : at + 8]).values())

    # In different orders, and not always the same rollouts together.
    threads = [threading.Thread(target=work, args=(order,)) for order in (names, names[::-1], names[8:] + names[:8])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 72
    total = sum(done, Packed())
    assert (total.packs, total.calls, total.faults, counts(ledger)) == (24, 48, (), (0, 24))
    assert read(ledger, *(stream_of(ledger, some) for some in made)) == sorted(call for some in made for call in some)


def test_what_another_packer_took_of_many_leaves_the_others_packed(ledger: LedgerHandle) -> None:
    made = {name: write_calls(ledger, name, 2) for name in ("r0", "r1", "r2")}
    first = stream_of(ledger, made["r1"])
    done: list[dict[str, Packed]] = []
    with ledger.connection() as conn:
        # Another packer is about to take r1: it holds the stream while the rows of all three are read and packed.
        conn.execute("SELECT FROM stream_head WHERE stream_id = %s FOR UPDATE", (first,))
        thread = threading.Thread(target=lambda: done.append(pack_rollouts(ledger, list(made))))
        thread.start()
        _wait_for_a_lock(ledger)
        assert _packed_by(conn, first) == 1
    thread.join()
    assert {name: (one.packs, one.taken, one.faults) for name, one in done[0].items()} == {
        "r0": (1, 0, ()), "r1": (0, 1, ()), "r2": (1, 0, ()),
    }  # fmt: skip
    assert counts(ledger) == (0, 3)


def _wait_for_a_lock(ledger: LedgerHandle) -> None:
    deadline = time.monotonic() + 60
    with psycopg.connect(ledger.url, autocommit=True) as conn:
        while not conn.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _packed_by(conn: psycopg.Connection[Any], stream_id: int) -> int:
    """Packs written for a stream on a connection that has it locked."""
    (stored,), subjects = stored_streams(conn, [stream_id])
    made = token_packing._packs(stored, subjects)
    for pack in made:
        given = (stream_id, pack.subject_id, Uuids(row.event_id for row in pack.live), pack.digest, pack.data)
        conn.execute("SELECT pack_tokens(%s, %s, %s, %s, %b)", given)
    return len(made)


def test_calls_may_be_captured_while_others_are_packed_and_read(ledger: LedgerHandle) -> None:
    stream_id = stream_of(ledger, write_calls(ledger, "r0", 1))
    ended = threading.Event()
    faults: list[str] = []

    def pack() -> None:
        while not ended.is_set():
            faults.extend(pack_stream(ledger, stream_id).faults)

    def look() -> None:
        while not ended.is_set():
            with ledger.connection() as conn:
                faults.extend(fault for _, fault in examine_tokens(conn, [stream_id]).faults)

    threads = [threading.Thread(target=work) for work in (pack, look)]
    for thread in threads:
        thread.start()
    made = write_calls(ledger, "r0", 60)
    ended.set()
    for thread in threads:
        thread.join()
    pack_stream(ledger, stream_id)
    assert faults == []
    assert read(ledger, stream_id) == sorted(made)


def test_rows_that_do_not_fit_stay_staged_and_are_told(ledger: LedgerHandle) -> None:
    made = write_calls(ledger, "r0", 3)
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE token_live SET prompt = prompt || 'x' WHERE event_id = %s", (made[1][0],))
    stream_id = stream_of(ledger, made)
    packed = pack_stream(ledger, stream_id)
    assert packed.packs == 0
    assert f"call {made[1][0]}" in packed.faults[0]
    assert counts(ledger) == (3, 0)
    with pytest.raises(TokenError, match=made[2][0]):
        read(ledger, stream_id)
    with ledger.connection() as conn:
        ledger.barrier()
        faults = list(check_streams(conn))
    assert {fault.event_id for fault in faults} >= {made[1][0]}
    assert all(fault.position is not None and fault.stream_id == stream_id for fault in faults)


PACKER = """
import sys
from ledger.ledger import open_ledger
from ledger.token_packing import pack_ended
with open_ledger(sys.argv[1], project="test", actor_id="packer") as ledger:
    print("ready", flush=True)
    print(pack_ended(ledger), flush=True)
"""


def test_a_packer_that_is_killed_loses_nothing(ledger: LedgerHandle) -> None:
    made = [write_calls(ledger, f"r{n}", 4, size=3_000) for n in range(12)]
    streams = [stream_of(ledger, some) for some in made]
    expected = sorted(call for some in made for call in some)
    for pause_s in (0.0, 0.02, 0.06):
        packer = subprocess.Popen([sys.executable, "-c", PACKER, ledger.url], stdout=subprocess.PIPE, text=True)
        assert packer.stdout is not None
        assert packer.stdout.readline() == "ready\n"
        time.sleep(pause_s)
        packer.send_signal(signal.SIGKILL)
        packer.wait()
        packer.stdout.close()
        assert read(ledger, *streams) == expected
    staged, packs = counts(ledger)
    assert staged > 0
    packed = pack_ended(ledger)
    assert (packed.packs, packed.calls, packed.faults) == (12 - packs, staged, ())
    assert (counts(ledger), read(ledger, *streams)) == ((0, 12), expected)


def test_a_subject_has_packs_of_its_own(ledger: LedgerHandle) -> None:
    made = write_calls(ledger, "r0", 2)
    other = ledger.subject("person:ann")
    prompt = tokens.ids_bytes(HEAD)
    event_id = ledger.append([_other(ledger, prompt)]).events[0].event_id
    stream_id = stream_of(ledger, made)
    assert pack_stream(ledger, stream_id).packs == 2
    assert read(ledger, stream_id) == sorted([*made, (event_id, prompt, b"", None)])
    with psycopg.connect(ledger.url) as conn:
        conn.execute("UPDATE subject SET salt = NULL, key = NULL, destroyed_at = now() WHERE subject_id = %s", (other.subject_id,))
    with open_ledger(ledger.url, project="test", actor_id="tester") as after, after.connection() as conn:
        found = examine_tokens(conn, [stream_id])
        assert (found.faults, found.shredded, len(found.calls)) == ([], {event_id}, 2)
        (stored,), subjects = stored_streams(conn, [stream_id])
        assert (len(stored.packs), subjects["person:ann"].key) == (2, None)
    assert read(ledger, stream_id) == sorted(made)


def _other(ledger: LedgerHandle, prompt: bytes) -> New:
    from ledger import ids

    event_id = ids.event_id(ledger.ledger_id, ledger.project, "rollout-r0", "called:r0-call-9")
    return model_call(ledger, "r0", 9, tokens.captured((prompt, b"", None), event_id=event_id, subject=ledger.subject("person:ann")))


def test_a_commitment_without_tokens_is_told(ledger: LedgerHandle) -> None:
    made = write_calls(ledger, "r0", 2)
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("DELETE FROM token_live WHERE event_id = %s", (made[1][0],))
    stream_id = stream_of(ledger, made)
    with pytest.raises(TokenError, match="no stored tokens"):
        read(ledger, stream_id)
    assert pack_stream(ledger, stream_id).calls == 1
    report = verify(ledger)
    assert [problem.fault for problem in report.problems] == [f"call {made[1][0]} has no stored tokens, but its event commits to some"]
    assert report.problems[0].position is not None


def test_calls_of_the_first_schema_are_read_from_their_blobs(ledger: LedgerHandle) -> None:
    data = [tokens.ids_bytes([1, 2, 3]), tokens.ids_bytes([5, 6]), tokens.logprob_bytes([-0.5, -0.25])]
    blobs = [ledger.pending(raw, media="int32") for raw in data]
    arrays = held(ledger, (data[0], data[1], data[2]), "r0", "r0-call-0")
    event_id = ledger.append([model_call(ledger, "r0", 0, arrays)]).events[0].event_id
    with ledger.connection() as conn:
        from ledger import blobs as blob_store

        blob_store.write(conn, blobs)
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("DELETE FROM token_live")
        for name, raw, blob in zip(("prompt_ids", "sampled_ids", "logprobs"), data, blobs, strict=True):
            assert getattr(arrays, name).commitment == blob.ref.blob_id
            old = f'"{name}":{{"count":{len(raw) // 4},"data":{{"blob_id":"{blob.ref.blob_id}","media":"int32","size":{len(raw)}}},"sha256":"{"0" * 64}"}}'
            new = f'"{name}":{{"commitment":"{blob.ref.blob_id}","count":{len(raw) // 4}}}'
            assert conn.execute(
                "UPDATE event SET schema_version = 1, body = convert_to(replace(convert_from(body, 'UTF8'), %s, %s), 'UTF8') WHERE event_id = %s",
                (new, old, event_id),
            ).rowcount == 1  # fmt: skip
    stream_id = stream_of(ledger, [(event_id,)])
    assert read(ledger, stream_id) == [(event_id, *data)]
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("DELETE FROM blob WHERE blob_id = %s", (bytes.fromhex(blobs[1].ref.blob_id),))
    with ledger.connection() as conn:
        assert [event for event, _ in examine_tokens(conn, [stream_id]).faults] == [event_id]
