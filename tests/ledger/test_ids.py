"""Ids."""

import uuid

from ledger.ids import derived_id, event_id, uuid7


def test_a_uuid7_holds_its_time_version_and_variant() -> None:
    made = uuid.UUID(uuid7(b"\xff" * 10, unix_ms=0x0123456789AB))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 0x0123456789AB


def test_uuid7_sorts_by_time() -> None:
    assert uuid7(b"\xff" * 10, unix_ms=1) < uuid7(b"\x00" * 10, unix_ms=2)


def test_derived_ids_are_the_same_on_every_machine() -> None:
    assert derived_id("rollout", "r", 0) == derived_id("rollout", "r", 0) == "74fb84ed-fdab-8e9f-9482-79191c9cd5d7"


def test_derived_ids_tell_parts_apart() -> None:
    assert len({derived_id("a", "bc"), derived_id("ab", "c"), derived_id("a", "b", "c"), derived_id("a", 1), derived_id("a", "1")}) == 5


def test_an_event_id_depends_on_ledger_project_stream_and_key() -> None:
    base = ("l", "p", "s", "k")
    changed = [tuple("x" if i == place else part for i, part in enumerate(base)) for place in range(4)]
    assert len({event_id(*parts) for parts in [base, *changed]}) == 5
