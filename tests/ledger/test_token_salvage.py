"""Salvage: what matches is kept, what does not is named, and nothing that was stored badly takes its neighbours with it."""

from dataclasses import replace

from hypothesis import given

from ledger.token_calls import TokenCall
from ledger.token_pack import linked
from ledger.token_salvage import salvage
from tests.token_histories import SALT, commitments, event, histories, ids, plain

CHAIN = [
    TokenCall(event(0), ids(1, 2), ids(3), None),
    TokenCall(event(1), ids(1, 2, 3, 4), ids(5), None),
    TokenCall(event(2), ids(1, 2, 9), ids(8), None),
]


@given(histories())
def test_what_is_stored_well_is_kept_whole(calls: list[TokenCall]) -> None:
    kept, faults = salvage(linked(calls), commitments(calls), SALT)
    assert faults == []
    assert {plain(call) for call in kept.values()} == {plain(call) for call in calls}


def test_a_changed_completion_is_named_with_the_prompts_that_hold_it_and_no_others() -> None:
    rows = [replace(row, sampled=ids(7)) if row.event_id == event(0) else row for row in linked(CHAIN)]
    kept, faults = salvage(rows, commitments(CHAIN), SALT)
    assert [(event_id, fault.split(": ")[1].split()[0]) for event_id, fault in faults] == [
        (event(0), "sampled_ids"),
        (event(1), "prompt_ids"),
    ]
    assert plain(kept[event(2)]) == plain(CHAIN[2])
    assert (kept[event(0)].prompt is not None, kept[event(0)].sampled, kept[event(1)].prompt) == (True, None, None)
    assert kept[event(1)].sampled is not None


def test_rows_too_many_and_too_few_and_in_circles_are_named() -> None:
    rows = linked(CHAIN)
    assert [row.event_id for row in rows] == [event(0), event(1), event(2)]
    kept, faults = salvage([rows[0], rows[2], replace(rows[0])], commitments(CHAIN[:2]), SALT)
    assert faults == [
        (event(0), f"call {event(0)} is stored twice"),
        (event(1), f"call {event(1)} has no stored tokens, but its event commits to some"),
        (event(2), f"call {event(2)} has stored tokens, but its event commits to none"),
    ]
    assert list(kept) == [event(0)]
    circle = [replace(rows[1], parent=rows[2].event_id), replace(rows[2], parent=rows[1].event_id)]
    _, faults = salvage(circle, commitments(CHAIN[1:]), SALT)
    assert {event_id for event_id, _ in faults} == {event(1), event(2)}
