"""The leaf of an event."""

import hashlib
from dataclasses import fields, replace

from ledger.proof import LeafFields, leaf_hash

LEAF = LeafFields("l", "e", "p", "s", 1, "K", 1, "c1", "2026-11-29T00:00:00.000000Z", "a", None, None, "k", b"\x00" * 32)


def _field(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def test_a_leaf_is_the_hash_written_out_by_hand() -> None:
    parts = [b"tallystick/event/1", b"l", b"e", b"p", b"s", b"1", b"K", b"1", b"c1", b"2026-11-29T00:00:00.000000Z", b"a"]
    data = b"\x00" + b"".join(map(_field, parts)) + b"\xff\xff\xff\xff" * 2 + _field(b"k") + _field(b"\x00" * 32)
    assert leaf_hash(LEAF) == hashlib.sha256(data).digest()


def test_every_field_changes_the_leaf() -> None:
    changed = []
    for field in fields(LeafFields):
        value = getattr(LEAF, field.name)
        other = value + 1 if isinstance(value, int) else b"\x01" * 32 if isinstance(value, bytes) else "other"
        changed.append(leaf_hash(replace(LEAF, **{field.name: other})))
    assert len({leaf_hash(LEAF), *changed}) == len(fields(LeafFields)) + 1


def test_absent_differs_from_empty_and_neighbours_do_not_run_together() -> None:
    assert leaf_hash(LEAF) != leaf_hash(replace(LEAF, correlation_id=""))
    assert leaf_hash(replace(LEAF, project="ab", stream="c")) != leaf_hash(replace(LEAF, project="a", stream="bc"))
