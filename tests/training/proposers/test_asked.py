"""Tasks that a model writes: acted out and judged before they are used, asked for again a bounded number of times, replayable."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from ledger.errors import ProposalError
from ledger.ledger import LedgerHandle
from tests.scripted_model import scripted_server
from tests.tiny_world import Library, library_task
from training.proposers import Document, ProposalContext, proposers
from training.proposing.acting import act, calls_of
from training.proposing.recorded import Asking, recorded, replayed
from training.verifiers import JudgeTask, verifiers
from training.worlds import AssistantTurn

asked = proposers["asked"]
LEND = {"name": "lend", "arguments": {"book_id": "B2", "reader_id": "R1"}}
GOOD = {
    "request": "Ada would like to take Emma home, please see to it.",
    "calls": [{"name": "find_reader", "arguments": {"name": "Ada"}}, LEND],
    "conditions": [{"name": "C1", "says": "Emma is lent to Ada", "place": "/books/B2/lent_to", "value": "R1"}],
    "wrong": [{"name": "to_ben", "calls": [{"name": "lend", "arguments": {"book_id": "B2", "reader_id": "R2"}}]}],
}
CONTEXT = ProposalContext(
    Library(), drafts=(library_task(),), documents=(Document("manual.md", "How lending works.\n\nBooks go out.", "CC0"),)
)


class Scripted:
    """Answers in order, whatever is asked; keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [item if isinstance(item, str) else json.dumps(item) for item in answers]
        self.seen: list[list[Any]] = []

    def __call__(self, messages: Sequence[Any], fields: Any) -> str:
        self.seen.append([dict(message) for message in messages])
        return self.answers[len(self.seen) - 1]


def test_a_task_that_holds_becomes_a_draft_with_its_document_and_its_conditions() -> None:
    model = Scripted(GOOD)
    got = asked(CONTEXT, 1, rng=Random(1), ask=model)
    draft = got[0]
    assert (len(got), got.rejected) == (1, {})
    assert draft.spec["verifier"] == "pointed_conditions"
    assert (draft.provenance["source"]["document"], draft.provenance["licence"]) == ("manual.md", "CC0")
    assert [item["name"] for item in draft.reference["wrong"]] == ["to_ben", "without_2_lend"]  # type: ignore[index]
    assert "How lending works." in model.seen[0][1]["content"]
    world = Library()
    view = world.view(world.reset(draft, seed=0))
    judge = verifiers[draft.spec["verifier"]]
    for turns, expected in ((draft.reference["turns"], True), ([[]], False)):  # type: ignore[index]
        end = world.view(act(world, draft, calls_of(turns)).state)
        assert judge(view, end, (), JudgeTask(draft, world.material)).passed is expected


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I would rather not.", "not JSON"),
        ("```json\n{}\n```\nor\n```json\n{}\n```", "not one object"),
        ({**GOOD, "price": 3}, "wrong form"),
        ({**GOOD, "conditions": [{**GOOD["conditions"][0], "place": "Emma"}]}, "wrong form"),  # type: ignore[dict-item,index]
        ({**GOOD, "calls": [{"name": "lend", "arguments": {"book_id": "B9", "reader_id": "R1"}}]}, "refused"),
        ({**GOOD, "calls": [{"name": "find_books", "arguments": {}}]}, "nothing to do"),
        ({**GOOD, "conditions": [{**GOOD["conditions"][0], "value": "R2"}]}, "conditions fail"),  # type: ignore[dict-item,index]
        ({**GOOD, "wrong": [{"name": "same", "calls": [LEND]}]}, "not wrong"),
        ({**GOOD, "conditions": [{**GOOD["conditions"][0], "place": "/books/B3/lent_to", "value": "R2"}]}, "conditions fail"),  # type: ignore[dict-item,index]
    ],
)  # fmt: skip
def test_an_answer_that_does_not_hold_is_sent_back_with_the_reason_and_counted(answer: Any, reason: str) -> None:
    model = Scripted(answer, GOOD)
    got = asked(CONTEXT, 1, rng=Random(1), ask=model)
    assert (len(got), got.rejected) == (1, {f"answer, {reason}": 1})
    assert model.seen[1][-1]["content"].startswith(f"That cannot be used. {reason}")


def test_a_model_that_never_holds_is_asked_a_bounded_number_of_times_and_leaves_nothing() -> None:
    model = Scripted(*["no"] * 6)
    got = asked(CONTEXT, 2, rng=Random(1), ask=model, retries=2)
    assert (len(got), len(model.seen)) == (0, 6)
    assert got.rejected == {"answer, not JSON": 6, "task, not JSON": 2}


def test_without_a_model_or_a_state_there_is_a_clear_refusal() -> None:
    with pytest.raises(ProposalError, match="needs a model to ask"):
        asked(CONTEXT, 1)
    with pytest.raises(ProposalError, match="needs 1 or more drafts for world 'library'"):
        asked(ProposalContext(Library()), 1, ask=Scripted())
    with pytest.raises(ProposalError, match="retries -1; allowed: 0 or more"):
        asked(CONTEXT, 1, ask=Scripted(), retries=-1)


def test_asking_is_recorded_and_its_replay_gives_the_same_drafts_without_a_model(ledger: LedgerHandle) -> None:
    asking = Asking("run-7", "scripted", {"temperature": 1.0}, seed=3)
    with scripted_server() as server:
        server.script(None, [AssistantTurn("Sure, here it is!"), AssistantTurn(json.dumps(GOOD))])
        with recorded(ledger, server.upstream("scripted-v1"), asking) as ask:
            first = asked(CONTEXT, 1, rng=Random(4), ask=ask)
        requests = server.requests
    again = replayed(ledger, asking)
    second = asked(CONTEXT, 1, rng=Random(4), ask=again)
    assert requests == 2
    assert first.rejected == second.rejected == {"answer, not JSON": 1}
    assert list(first) == list(second)
    assert again.counts == {"answered": 2}
