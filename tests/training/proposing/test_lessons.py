"""What a counterexample did otherwise, and the same done elsewhere."""

from random import Random

import pytest

from ledger.errors import ProposalError
from tests.tiny_world import Library, library_task
from training.proposers import ProposalContext, proposers
from training.proposing.lessons import edits, read_counterexample, transferred
from training.worlds import ToolCall


def lend(book: str, reader: str) -> ToolCall:
    return ToolCall("lend", {"book_id": book, "reader_id": reader})


FIND, LEND, MOVE = ToolCall("find_books", {}), lend("B2", "R1"), ToolCall("move", {"book_id": "B2", "shelf": "north"})
KNOWN = {"book_id": ["B1", "B2"], "reader_id": ["R1", "R2"]}


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        ((FIND, LEND), [("drop", "move", False)]),
        ((FIND, LEND, LEND, MOVE), [("repeat", "lend", False)]),
        ((FIND, lend("B2", "R2"), MOVE), [("alter", "lend", False)]),
        ((FIND, LEND, MOVE, lend("B1", "R1")), [("add", "lend", False)]),
        ((FIND, MOVE, LEND), [("earlier", "move", False)]),
        ((FIND, LEND, MOVE), []),
    ],
)
def test_an_edit_is_named_by_what_was_done_to_which_tool(solution: tuple[ToolCall, ...], expected: list[tuple[str, str, bool]]) -> None:
    found = edits(((FIND, LEND, MOVE),), (solution,))
    assert [(edit.kind, edit.tool, edit.every) for edit in found] == expected


def test_what_was_done_to_all_calls_of_a_tool_is_done_to_all_elsewhere() -> None:
    reference = ((LEND, lend("B1", "R1")),)
    found = edits(reference, ((LEND, LEND, lend("B1", "R1"), lend("B1", "R1")),))
    assert [(edit.kind, edit.every) for edit in found] == [("repeat", True)]
    other = transferred(found, ((lend("B1", "R2"), MOVE),), (KNOWN, KNOWN), rng=Random(0))
    assert other == ((lend("B1", "R2"), lend("B1", "R2"), MOVE),)


def test_another_value_comes_from_where_the_values_were_found_together() -> None:
    found = edits(((LEND,),), ((lend("B2", "R2"),),))
    there = {"reader_id": ["R7", "R8"], "book_id": ["B9"]}
    assert transferred(found, ((lend("B9", "R7"),),), (KNOWN, there), rng=Random(0)) == ((lend("B9", "R8"),),)
    with pytest.raises(ProposalError, match="no other value: the state holds only 'R7' under 'reader_id'"):
        transferred(found, ((lend("B9", "R7"),),), (KNOWN, {"reader_id": ["R7"]}), rng=Random(0))
    with pytest.raises(ProposalError, match="no such call: the reference never calls lend"):
        transferred(found, ((MOVE,),), (KNOWN, there), rng=Random(0))


def test_a_rightly_judged_solution_or_a_malformed_one_teaches_nothing() -> None:
    right = {"draft": "a", "verifier": "v", "accepted": False, "correct": False, "turns": []}
    with pytest.raises(ProposalError, match="v judged it rightly"):
        read_counterexample(right)
    with pytest.raises(ProposalError, match="counterexample.correct is 'no'; allowed: bool"):
        read_counterexample({**right, "correct": "no"})
    with pytest.raises(ProposalError, match="turns must be lists of"):
        read_counterexample({**right, "correct": True, "turns": [[{"tool": "lend"}]]})


def test_a_rejected_right_solution_becomes_an_equivalent_and_one_that_does_not_separate_is_dropped() -> None:
    task = library_task()
    straight = {"draft": task.name, "verifier": "strict", "accepted": False, "correct": True}
    turns = [[{"name": "lend", "arguments": {"book_id": "B2", "reader_id": "R1"}}]]
    context = ProposalContext(Library(), drafts=(task,), counterexamples=({**straight, "turns": turns},))
    draft = proposers["counterexample_driven"](context, 1, rng=Random(0))[0]
    assert draft.spec["separates"]["verdict"] == "failed"
    assert draft.spec["separates"]["candidate"] in [item["name"] for item in (draft.reference or {})["equivalent"]]
    not_right = ProposalContext(Library(), drafts=(task,), counterexamples=({**straight, "turns": [[]]},))
    assert proposers["counterexample_driven"](not_right, 1, rng=Random(0)).rejected == {"does not separate": 5}
    with pytest.raises(ProposalError, match="needs counterexamples; the context holds none"):
        proposers["counterexample_driven"](ProposalContext(Library(), drafts=(task,)), 1)
    with pytest.raises(ProposalError, match=r"counterexample for draft 'x'; drafts with a reference: \['library_0'\]"):
        other = {**straight, "draft": "x", "turns": turns}
        proposers["counterexample_driven"](ProposalContext(Library(), drafts=(task,), counterexamples=(other,)), 1)
