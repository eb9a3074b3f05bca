"""Names behind pseudonyms: one person one pseudonym, erasable, never derived from the name."""

import pytest

from ledger.actors import actor_names, note_actor, person_named
from ledger.errors import InvalidEvent
from ledger.ledger import LedgerHandle


def test_a_person_keeps_one_pseudonym_whatever_the_case_and_spacing(ledger: LedgerHandle) -> None:
    first = person_named(ledger, "Ann Example")
    assert person_named(ledger, "  ann   example ") == first
    assert person_named(ledger, "Ann Examples") != first
    assert actor_names(ledger)[first] == "Ann Example"


def test_an_erased_name_leaves_nothing_to_find_it_by(ledger: LedgerHandle) -> None:
    before = person_named(ledger, "Ann")
    with ledger.connection() as conn:
        conn.execute("DELETE FROM actor WHERE actor_id = %s", (before,))
    assert person_named(ledger, "Ann") != before
    assert before not in actor_names(ledger)


def test_a_noted_name_is_replaced(ledger: LedgerHandle) -> None:
    note_actor(ledger, "operator", "First")
    note_actor(ledger, "operator", "Second")
    assert actor_names(ledger) == {"operator": "Second"}


@pytest.mark.parametrize("name", ["", "   ", "a" * 121, "a\x00b", "a\u202eb"])
def test_what_is_no_name_is_refused(ledger: LedgerHandle, name: str) -> None:
    with pytest.raises(InvalidEvent, match="allowed: 1 to 120"):
        person_named(ledger, name)
