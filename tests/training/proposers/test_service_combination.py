"""Two tasks in one, of one world or of two services, with a joint end state."""

from random import Random

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, ProposalError
from tests.tiny_world import Library, library_task
from training.proposers import ProposalContext, proposers
from training.proposing.acting import act, calls_of
from training.worlds import ToolCall
from training.worlds.combined import Combined
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

combine = proposers["service_combination"]
BOTH = Combined({"desk": TicketDesk(), "library": Library()})


def moving() -> BundleDraft:
    turns = [[{"name": "move", "arguments": {"book_id": "B1", "shelf": "south"}}]]
    return BundleDraft(**{**vars(library_task("moving")), "split": "test", "reference": {"turns": turns}})


def test_a_desk_task_and_a_library_task_end_as_each_does_alone() -> None:
    desk, library = generate(1, seed=4)[0], library_task()
    draft = combine(ProposalContext(BOTH, drafts=(desk, library)), 1, rng=Random(1), turns=True)[0]
    assert [turn[0]["content"] for turn in draft.request["turns"]] == [desk.request["turns"][0][0]["content"], "Lend Emma to Ada."]
    end = (draft.reference or {})["end_state"]
    assert end["desk.tickets"] == (desk.reference or {})["end_state"]["tickets"]
    assert end["library.books"]["B2"]["lent_to"] == "R1"
    names = [call["name"] for turn in (draft.reference or {})["turns"] for call in turn]
    assert names[0] == "desk__query_tickets"
    assert names[-1] == "library__lend"
    breaks = {item["name"]: item["breaks"] for item in (draft.reference or {})["wrong"]}
    assert breaks["first_only"] == ["library.books"]
    assert breaks["second_only"] == ["desk.outbox", "desk.tickets"]


def test_two_tasks_of_one_state_are_joined_and_the_second_goes_on_where_the_first_ended() -> None:
    first, second = library_task(), moving()
    context = ProposalContext(Library(), drafts=(first, second))
    in_turns = combine(context, 2, rng=Random(1), turns=True)
    in_message = combine(context, 2, rng=Random(1), turns=False)
    assert {len(draft.request["turns"]) for draft in in_turns} == {2}
    assert {len(draft.request["turns"]) for draft in in_message} == {1}
    for draft in [*in_turns, *in_message]:
        books = (draft.reference or {})["end_state"]["books"]
        assert (books["B2"]["lent_to"], books["B1"]["shelf"]) == ("R1", "south")
        assert draft.split == "test"
        assert "Lend Emma to Ada." in str(draft.request["turns"])


def test_tasks_that_stand_in_each_other_s_way_are_dropped_and_those_of_other_states_are_refused() -> None:
    twice = ProposalContext(Library(), drafts=(library_task(), library_task("again")))
    assert combine(twice, 1, rng=Random(1)).rejected == {"refused": 5}
    apart = ProposalContext(Library(), drafts=(library_task(), library_task("other", notices=[{"about": "B1", "text": "x"}])))
    with pytest.raises(ProposalError, match="no two of 2 drafts can be combined in world 'library'"):
        combine(apart, 1)
    with pytest.raises(ProposalError, match="3 services; allowed: two"):
        combine(ProposalContext(Combined({"a": Library(), "b": Library(), "c": Library()}), drafts=(library_task(),)), 1)


def test_a_combined_world_keeps_its_services_apart() -> None:
    draft = combine(ProposalContext(BOTH, drafts=(generate(1, seed=4)[0], library_task())), 1, rng=Random(1))[0]
    state = BOTH.reset(draft, seed=0)
    after, observation = BOTH.call(state, ToolCall("library__move", {"book_id": "B1", "shelf": "south"}))
    assert observation.error_class is None
    assert [change.path for change in BOTH.diff(state, after).changes] == ["/library/books/B1/shelf", "/library/log/0"]
    assert BOTH.digest(state) == BOTH.snapshot(state).snapshot_id != BOTH.digest(after)
    forked = BOTH.fork(BOTH.snapshot(after), 2)
    assert [BOTH.digest(fork) for fork in forked] == [BOTH.digest(after)] * 2
    assert BOTH.call(state, ToolCall("move", {}))[1].error_class == "unknown_tool"
    assert BOTH.call(state, ToolCall("desk__move", {}))[1].error_class == "unknown_tool"
    assert act(BOTH, draft, calls_of((draft.reference or {})["turns"])).end == (draft.reference or {})["end_state"]


def test_services_need_names_and_tasks_a_part_for_each() -> None:
    with pytest.raises(BundleError, match="services \\['one__two'\\]"):
        Combined({"one__two": Library()})
    with pytest.raises(BundleError, match="needs an initial state for each of the services"):
        BOTH.reset(BundleDraft("x", "combined", {"turns": [[]]}, {"desk": {}}), seed=0)
    with pytest.raises(BundleError, match="is for world 'library'; allowed: combined"):
        BOTH.reset(library_task(), seed=0)
