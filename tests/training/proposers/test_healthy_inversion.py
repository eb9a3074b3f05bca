"""A healthy state, broken by legal calls and restored by their inverses."""

from random import Random
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import ProposalError, WorldFailed
from tests.tiny_world import Library, library_task
from training.proposers import ProposalContext, proposers
from training.proposing.acting import act, calls_of
from training.proposing.exploring import Move
from training.proposing.inverses import inverse_of
from training.worlds import ToolCall
from training.worlds.difference import differences
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

invert = proposers["healthy_inversion"]


def moved(world: Any, draft: Any, call: ToolCall) -> tuple[Any, Move]:
    start = world.reset(draft, seed=0)
    after, observation = world.call(start, call)
    assert observation.error_class is None
    return start, Move(call, observation, after, differences(world.material(world.view(start)), world.material(world.view(after))).changes)


def test_an_update_is_undone_by_the_values_that_it_replaced_and_lending_by_giving_back() -> None:
    library, task = Library(), library_task()
    start, move = moved(library, task, ToolCall("move", {"book_id": "B1", "shelf": "south"}))
    assert inverse_of(library, task, start, move, rng=Random(0)) == ToolCall("move", {"book_id": "B1", "shelf": "north"})
    start, move = moved(library, task, ToolCall("give_back", {"book_id": "B3"}))
    assert inverse_of(library, task, start, move, rng=Random(0)) == ToolCall("lend", {"book_id": "B3", "reader_id": "R2"})
    desk, draft = TicketDesk(), generate(1, seed=1)[0]
    name, row = next((name, row) for name, row in draft.initial_state["tickets"].items() if row["status"] == "open")
    start, move = moved(desk, draft, ToolCall("update_ticket", {"id": name, "fields": {"status": "closed", "note": "gone"}}))
    undone = inverse_of(desk, draft, start, move, rng=Random(0))
    assert undone == ToolCall("update_ticket", {"id": name, "fields": {"status": row["status"], "note": row["note"]}})


def test_what_cannot_be_taken_back_has_no_inverse() -> None:
    library, task = Library(), library_task()
    start, move = moved(library, task, ToolCall("post_notice", {"book_id": "B1", "text": "torn"}))
    assert inverse_of(library, task, start, move, rng=Random(0)) is None


def test_the_reference_leads_back_to_the_healthy_state_and_the_call_log_starts_as_it_was() -> None:
    task = library_task()
    for draft in invert(ProposalContext(Library(), drafts=(task,)), 5, rng=Random(2)):
        acted = act(Library(), draft, calls_of((draft.reference or {})["turns"]))
        healthy = Library().material(task.initial_state)
        assert acted.end == healthy
        assert acted.start != healthy
        assert draft.initial_state["log"] == []
        assert [change.path for change in differences(acted.start, healthy).changes] == draft.spec["repaired"]


def test_sound_places_are_listed_among_the_broken_ones() -> None:
    task = library_task()
    for draft in invert(ProposalContext(Library(), drafts=(task,)), 4, rng=Random(2), most=1, sound=1):
        listed = [line for line in draft.request["turns"][0][0]["content"].splitlines() if line.startswith("- ")]
        assert 1 <= len(draft.spec["repaired"]) <= len(listed) <= len(draft.spec["repaired"]) + 1


class Seeded(Library):
    """A library whose state comes from elsewhere than the draft."""

    def reset(self, draft: Any, *, seed: int) -> Any:
        return super().reset(library_task(), seed=seed)


class Picky(Library):
    """A library that only opens in the morning."""

    def reset(self, draft: Any, *, seed: int) -> Any:
        if draft.initial_state["books"]["B1"]["shelf"] != "north" or draft.initial_state["books"] != library_task().initial_state["books"]:
            raise WorldFailed("the books are not where they were")
        return super().reset(draft, seed=seed)


def test_a_world_that_cannot_begin_where_it_was_brought_to_is_refused() -> None:
    context = ProposalContext(Seeded(), drafts=(library_task(notices=[{"about": "B1", "text": "new"}]),))
    got = invert(context, 1, rng=Random(1))
    assert set(got.rejected) == {"cannot begin there"}
    assert len(got) == 0
    got = invert(ProposalContext(Picky(), drafts=(library_task(),)), 1, rng=Random(1))
    assert set(got.rejected) == {"cannot begin there"}


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ProposalError, match="2 to 1 calls and 2 sound places; allowed: 1 or more, in order, and 0 or more"):
        invert(ProposalContext(Library(), drafts=(library_task(),)), 1, least=2, most=1)


class Boxed(Library):
    """A library whose initial states hold the state beside something else."""

    def reset(self, draft: Any, *, seed: int) -> Any:
        if set(draft.initial_state) != {"edition", "state"}:
            raise WorldFailed("no edition")
        return Library().reset(BundleDraft("x", "library", draft.request, draft.initial_state["state"]), seed=seed)


def test_a_state_goes_back_to_where_the_initial_state_holds_it() -> None:
    task = library_task()
    boxed = BundleDraft(**{**vars(task), "initial_state": {"edition": {"n": 2}, "state": task.initial_state}})
    (draft,) = invert(ProposalContext(Boxed(), drafts=(boxed,)), 1, rng=Random(1))
    assert draft.initial_state["edition"] == {"n": 2}
    assert draft.initial_state["state"] != task.initial_state
