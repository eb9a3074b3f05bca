"""Exports: what is written reads back, every damaged record is named, and a whole one can be pushed."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.blobs import pending
from ledger.errors import ExportFault, PushRefused
from ledger.events import WorldRegistered
from ledger.interchange.carried import CarriedEvent
from ledger.interchange.file_source import FileSource
from ledger.interchange.ledger_source import Kept, LedgerSource
from ledger.interchange.native import export
from ledger.interchange.native_check import NativeReader, check_export
from ledger.interchange.push import push
from ledger.interchange.records import line_of, reading, sum_of, writing
from ledger.ledger import open_ledger
from ledger.verify import verify

FORMATS = ("log.jsonl", "log.jsonl.zst", "log.parquet")


@pytest.fixture(scope="module")
def written(cluster: Any, tmp_path_factory: Any) -> Any:
    """A ledger with one whole history, sealed, and a folder for its exports."""
    from tests.ledger.conftest import write_whole
    from tests.ledger.interchange.conftest import Sealed

    url = cluster.migrated_database()
    with open_ledger(url, project="test", actor_id="tester", pool_size=4) as ledger:
        write_whole(ledger)
        # More than one chunk of a blob; the calls have left staged tokens.
        large = pending(random.Random(1).randbytes(5 * 1024 * 1024), media="application/octet-stream")
        ledger.append([ledger.new(WorldRegistered(world_id="9" * 64, name="big", source=large.ref, fidelity="simulated"), large)])
        sealed = Sealed(ledger, Ed25519PrivateKey.generate(), f"tallystick.local/{ledger.ledger_id}")
        sealed.seal()
        yield sealed, tmp_path_factory.mktemp("exports")
    cluster.drop(url)


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_export_holds_every_event_as_it_was(written: Any, name: str) -> None:
    sealed, folder = written
    done = export(sealed.source(), folder / name)
    found = check_export(folder / name, sealed.key)
    events = [item for item in NativeReader(folder / name, sealed.key).items() if isinstance(item, CarriedEvent)]
    assert events == [event for batch in sealed.source().batches(0) for event in batch]
    assert (found.complete, found.events, found.size) == (True, done.size, done.size)
    assert (found.blobs, found.unread_blobs, found.cut_streams, found.sha256) == (done.blobs, 0, (), done.sha256)
    assert "rollout-rollout-a" in found.whole_streams


def test_all_formats_hold_the_same_records(written: Any) -> None:
    sealed, folder = written
    digests = set()
    for name in FORMATS:
        digests.add(export(sealed.source(), folder / f"same-{name}").sha256)
    assert len(digests) == 1
    held = [[line for _, _, line in reading(folder / f"same-{name}")] for name in FORMATS]
    assert held[0] == held[1] == held[2]


@pytest.mark.parametrize("name", FORMATS)
def test_a_filtered_export_proves_presence_and_whole_streams(written: Any, name: str) -> None:
    sealed, folder = written
    keep = Kept(streams=("rollout-rollout-a", "verdict-verdict-a"))
    source = LedgerSource(sealed.ledger, with_keys=True, since=3, keep=keep)
    export(source, folder / f"part-{name}")
    found = check_export(folder / f"part-{name}", sealed.key)
    assert (found.complete, found.head.since, found.whole_streams) == (False, 3, ("rollout-rollout-a", "verdict-verdict-a"))
    keep = Kept(kinds=("ModelCalled",), project="test")
    export(LedgerSource(sealed.ledger, with_keys=True, keep=keep), folder / f"part-{name}")
    found = check_export(folder / f"part-{name}", sealed.key)
    assert (found.events, found.cut_streams) == (2, ("rollout-rollout-a",))
    with pytest.raises(PushRefused, match="filtered"):
        push(FileSource(folder / f"part-{name}", sealed.key), sealed.ledger, key=sealed.key)


def test_every_damaged_line_is_named(written: Any) -> None:
    sealed, folder = written
    export(LedgerSource(sealed.ledger, with_keys=True, keep=Kept(streams=("rollout-rollout-a",))), folder / "damage.jsonl")
    lines = (folder / "damage.jsonl").read_bytes().splitlines(keepends=True)
    rng = random.Random(7)
    for index, line in enumerate(lines):
        at = rng.randrange(len(line) - 1)
        changed = bytes([line[at] ^ 1 << rng.randrange(7)])
        path = folder / "damaged.jsonl"
        path.write_bytes(b"".join([*lines[:index], line[:at] + changed + line[at + 1 :], *lines[index + 1 :]]))
        with pytest.raises(ExportFault, match=rf"line ({index + 1}|{index + 2}):") as caught:
            check_export(path, sealed.key)
        # A line break in the middle cuts the line in two, of which the first does not fit.
        assert str(caught.value).startswith(f"line {index + 1}:")


@pytest.mark.parametrize("change", ["drop", "twice", "swap", "cut"])
def test_lost_doubled_moved_and_cut_lines_are_named(written: Any, change: str) -> None:
    sealed, folder = written
    export(sealed.source(), folder / "moved.jsonl")
    lines = (folder / "moved.jsonl").read_bytes().splitlines(keepends=True)
    path = folder / "changed.jsonl"
    for index in range(0, len(lines) - 1, 9):
        made = {
            "drop": [*lines[:index], *lines[index + 1 :]],
            "twice": [*lines[: index + 1], lines[index], *lines[index + 1 :]],
            "swap": [*lines[:index], lines[index + 1], lines[index], *lines[index + 2 :]],
            "cut": lines[:index],
        }[change]
        path.write_bytes(b"".join(made))
        place = index + 2 if change == "twice" else index + 1
        with pytest.raises(ExportFault, match=rf"^line {place}:"):
            check_export(path, sealed.key)


def test_every_changed_row_of_parquet_is_named(written: Any) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    sealed, folder = written
    export(LedgerSource(sealed.ledger, with_keys=True, keep=Kept(streams=("rollout-rollout-a",))), folder / "rows.parquet")
    table = parquet.read_table(folder / "rows.parquet")
    rows = table.to_pylist()
    for index, row in enumerate(rows):
        name = next(n for n in ("body", "data", "text", "prompt", "stream", "salt") if row[n] is not None)
        value = row[name]
        other = value + "x" if isinstance(value, str) else value + b"x"
        changed = [*rows[:index], {**row, name: other}, *rows[index + 1 :]]
        parquet.write_table(pa.Table.from_pylist(changed, schema=table.schema), folder / "row.parquet")
        with pytest.raises(ExportFault, match=rf"^row {index + 1}:"):
            check_export(folder / "row.parquet", sealed.key)
    place = table.schema.get_field_index("size")
    retyped = table.set_column(place, "size", table["size"].cast(pa.duration("s")))
    parquet.write_table(retyped, folder / "row.parquet")
    with pytest.raises(ExportFault, match=r"size duration\[s\].*allowed: .*size int64"):
        check_export(folder / "row.parquet", sealed.key)
    whole = (folder / "rows.parquet").read_bytes()
    held = [line for _, _, line in reading(folder / "rows.parquet")]
    rng, found = random.Random(3), 0
    for _ in range(40):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (folder / "row.parquet").write_bytes(data)
        said = None
        try:
            check_export(folder / "row.parquet", sealed.key)
        except ExportFault as error:
            said = str(error)
        found += said is not None
        # What no reader looks at, such as a statistic of a column, may change without a record changing; a broken end names no row.
        assert said is not None or [line for _, _, line in reading(folder / "row.parquet")] == held
    assert found > 10


def rewritten(path: Path, to: Path, change: Callable[[int, dict[str, Any]], dict[str, Any] | None]) -> None:
    """A copy with changed records whose sums and end are made to fit again, as a forger would."""
    from hashlib import sha256

    digest, count = sha256(), 0
    with writing(to) as out:
        for number, record, _ in reading(path):
            made = change(number, record)
            if made is None:
                continue
            count += 1
            if made["record"] == "end":
                stated = orjson.loads(made["text"]) | {"sha256": digest.hexdigest(), "records": count}
                made = {**made, "text": orjson.dumps(stated, option=orjson.OPT_SORT_KEYS).decode()}
            digest.update(line_of(made) + b"\n")
            out.write(made)


@pytest.mark.parametrize("proofs", ["leaves", "inclusion"])
def test_a_forger_who_mends_all_sums_is_found_by_leaves_and_proofs(written: Any, proofs: str) -> None:
    sealed, folder = written
    path, forged = folder / "true.jsonl", folder / "forged.jsonl"
    export(LedgerSource(sealed.ledger, with_keys=True, since=0 if proofs == "leaves" else 2), path)
    target = next(n for n, record, _ in reading(path) if record["record"] == "event" and record["kind"] == "VerdictGiven")

    def with_leaf(record: dict[str, Any], **changed: Any) -> dict[str, Any]:
        from hashlib import sha256

        from ledger.proof import LeafFields, leaf_hash

        made = record | changed
        values = [made.get(name) for name in LeafFields._fields[:-1]]
        return made | {"leaf": leaf_hash(LeafFields._make([*values, sha256(made["body"]).digest()]))}

    changes: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "actor": lambda record: {**record, "actor_id": "mallory"},
        "actor and leaf": lambda record: with_leaf(record, actor_id="mallory"),
        "body and leaf": lambda record: with_leaf(record, body=record["body"].replace(b'"passed":true', b'"passed":false')),
        "not canonical": lambda record: with_leaf(record, body=record["body"].replace(b":", b": ", 1)),
        "key": lambda record: with_leaf(record, key="other"),
        "position": lambda record: {**record, "position": record["position"] + 1},
    }
    for name, changed in changes.items():
        rewritten(path, forged, lambda number, record, changed=changed: changed(record) if number == target else record)
        with pytest.raises(ExportFault) as caught:
            check_export(forged, sealed.key)
        # Where leaves alone prove, a forged leaf shows in the root, at the end of the file.
        if proofs == "inclusion" or "leaf" not in name:
            assert str(caught.value).startswith(f"line {target}:"), name
    rewritten(path, forged, lambda number, record: None if number == target else record)
    with pytest.raises(ExportFault):
        check_export(forged, sealed.key)


def test_a_file_signed_by_another_key_or_of_another_kind_is_refused(written: Any, other_laptop: Any, tmp_path: Path) -> None:
    sealed, folder = written
    export(sealed.source(), folder / "key.jsonl")
    with pytest.raises(ExportFault, match=r"^line 1: no signature of the trusted key"):
        check_export(folder / "key.jsonl", other_laptop.key)
    with pytest.raises(ExportFault, match="ends in none of"):
        export(sealed.source(), tmp_path / "log.csv")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(ExportFault, match="line 1: the file ends"):
        check_export(tmp_path / "empty.jsonl", sealed.key)
    (tmp_path / "no.parquet").write_bytes(b"PAR1nothing")
    with pytest.raises(ExportFault, match="row 1"):
        check_export(tmp_path / "no.parquet", sealed.key)


@pytest.mark.parametrize("name", FORMATS)
def test_a_pushed_file_is_as_a_pushed_ledger(written: Any, centre: Any, name: str) -> None:
    sealed, folder = written
    export(sealed.source(), folder / f"push-{name}")
    told = push(FileSource(folder / f"push-{name}", sealed.key), centre.ledger, key=sealed.key)
    assert (told.status, told.events, told.staged_calls) == ("pushed", told.size, 2)
    assert verify(centre.ledger).problems == ()
    assert push(sealed.source(), centre.ledger, key=sealed.key).status == "nothing to push"
    assert push(FileSource(folder / f"push-{name}", sealed.key), centre.ledger, key=sealed.key).status == "nothing to push"


def test_a_later_part_of_a_log_goes_on_from_what_is_there(laptop: Any, centre: Any, tmp_path: Path, sealed: Callable[..., None]) -> None:
    sealed(laptop.ledger)
    first = laptop.seal()
    push(laptop.source(), centre.ledger, key=laptop.key)
    blob = pending("more", media="text/plain")
    laptop.ledger.append([laptop.ledger.new(WorldRegistered(world_id="8" * 64, name="w", source=blob.ref, fidelity="simulated"), blob)])
    last = laptop.seal()
    export(LedgerSource(laptop.ledger, with_keys=True, since=first.size - 2), tmp_path / "rest.jsonl.zst")
    told = push(FileSource(tmp_path / "rest.jsonl.zst", laptop.key), centre.ledger, key=laptop.key)
    assert (told.events, told.held, told.size) == (1, first.size, last.size)
    assert verify(centre.ledger).problems == ()


def test_the_sum_covers_the_number_of_the_record() -> None:
    assert sum_of(1, b"{}") != sum_of(2, b"{}")
