"""The tool graph of a world that was probed, and chains along it."""

import json
from random import Random

import pytest

from ledger.errors import ProposalError
from tests.tiny_world import Library, library_task
from training.proposers import ProposalContext, proposers
from training.proposing.acting import act, calls_of
from training.proposing.arguments import leaves_of
from training.proposing.tool_graph import USER, observe, outputs
from training.worlds import Observation
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate


def test_the_library_s_graph_is_found_edge_by_edge() -> None:
    graph = observe(Library(), library_task(), rng=Random(3))
    edges = {(edge.source, edge.output, edge.target, edge.parameter) for edge in graph.edges}
    assert edges == {
        ("find_books", "/books/*/id", "lend", "book_id"),
        ("find_books", "/books/*/id", "give_back", "book_id"),
        ("find_books", "/books/*/id", "move", "book_id"),
        ("find_books", "/books/*/id", "post_notice", "book_id"),
        ("find_books", "/books/*/lent_to", "lend", "reader_id"),
        ("find_reader", "/reader_id", "lend", "reader_id"),
        (USER, "/readers/*/name", "find_reader", "name"),
    }
    lend = graph.node("lend")
    assert (lend.fed, lend.free, lend.changes) == (("book_id", "reader_id"), (), True)
    assert (graph.node("post_notice").free, graph.node("move").free, graph.node("find_books").changes) == (("text",), ("shelf",), False)
    assert {tool.name: graph.depth(tool.name) for tool in graph.tools} == {
        "find_books": 1, "find_reader": 1, "lend": 2, "give_back": 2, "move": 2, "post_notice": 2,
    }  # fmt: skip
    assert graph.unreached == ()
    accepted = next(edge for edge in graph.edges if (edge.target, edge.source) == ("give_back", "find_books"))
    assert (accepted.accepted, accepted.tried) == (1, 3)


def test_the_desk_s_mail_needs_an_owner_s_address_so_it_is_unlocked_third() -> None:
    graph = observe(TicketDesk(), generate(1, seed=1)[0], rng=Random(3))
    assert [graph.depth(name) for name in ("query_tickets", "get_owner", "send_email", "update_ticket")] == [1, 2, 3, 2]
    assert graph.node("send_email").fed == ("ticket_id", "to")
    assert [edge.source for edge in graph.feeding("send_email", "to")] == ["get_owner"]
    assert ("send_email", "/sent_at") in {(e.source, e.output) for e in graph.feeding("update_ticket", "fields.last_reminded_at")}
    assert json.loads(json.dumps(graph.as_json()))["tools"][0]["name"] == "query_tickets"


@pytest.mark.parametrize("world", ["library", "desk"])
def test_every_fed_argument_was_answered_by_an_earlier_call_and_its_value_is_not_in_the_request(world: str) -> None:
    opened, drafts = (Library(), [library_task()]) if world == "library" else (TicketDesk(), generate(1, seed=2))
    got = proposers["tool_graph"](ProposalContext(opened, drafts=tuple(drafts)), 6, rng=Random(5))
    assert len(got) == 6
    for draft in got:
        calls = calls_of((draft.reference or {})["turns"])
        steps = act(opened, draft, calls).steps
        text = draft.request["turns"][0][0]["content"]
        assert draft.spec["links"]
        for link in draft.spec["links"]:
            value = dict(leaves_of(steps[link["call"]].call.arguments))[tuple(link["parameter"].split("."))]
            if link["source"] is None:
                assert json.dumps(value) in text
            else:
                assert link["source"] < link["call"]
                assert value in [output.value for output in outputs(steps[link["source"]].observation) if output.pattern == link["output"]]
                identifier = link["output"].endswith(("/id", "_id", "/email"))
                assert not identifier or json.dumps(value) not in text


def test_a_declared_depth_is_the_longest_chain_and_is_kept_to() -> None:
    context = ProposalContext(TicketDesk(), drafts=tuple(generate(1, seed=2)))
    shallow = proposers["tool_graph"](context, 5, rng=Random(1), depth=2, ends=1)
    assert {draft.spec["depth"] for draft in shallow} == {2}
    deep = proposers["tool_graph"](context, 12, rng=Random(1), ends=1)
    assert {draft.spec["depth"] for draft in deep} == {2, 3, 4}
    for draft in deep:
        links = [(link["call"], link["source"]) for link in draft.spec["links"] if link["source"] is not None]
        longest = dict.fromkeys(range(len((draft.reference or {})["turns"][0])), 1)
        for call, source in links:
            longest[call] = max(longest[call], longest[source] + 1)
        assert max(longest.values()) == draft.spec["depth"]


def test_a_depth_at_which_nothing_changes_is_refused() -> None:
    context = ProposalContext(Library(), drafts=(library_task(),))
    with pytest.raises(ProposalError, match="no tool of world 'library' changes anything within depth 1"):
        proposers["tool_graph"](context, 1, depth=1)
    with pytest.raises(ProposalError, match="depth 0 and ends 2; allowed: 1 or more"):
        proposers["tool_graph"](context, 1, depth=0)


def test_an_answer_that_is_not_json_has_no_outputs() -> None:
    assert outputs(Observation("done")) == []
    assert [(item.pattern, item.value) for item in outputs(Observation('{"a": [{"b": 1}, {"b": 2}]}'))] == [("/a/*/b", 1), ("/a/*/b", 2)]


def test_values_of_one_goal_come_from_one_row_so_a_mail_goes_to_the_owner_of_its_ticket() -> None:
    context = ProposalContext(TicketDesk(), drafts=tuple(generate(2, seed=2)))
    mails = 0
    for draft in proposers["tool_graph"](context, 10, rng=Random(6)):
        owners, tickets = draft.initial_state["owners"], dict(draft.initial_state["tickets"])
        for call in (draft.reference or {})["turns"][0]:
            if call["name"] == "send_email":
                mails += 1
                assert call["arguments"]["to"] == owners[tickets[call["arguments"]["ticket_id"]]["owner_id"]]["email"]
    assert mails >= 5
