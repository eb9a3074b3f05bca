"""One check a ticket, and the same verdict as the desk's own verifier."""

import json
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import VerifierFailed
from training.verifiers import JudgeTask, verifiers
from training.worlds import ToolCall
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.synthesis import slice_tasks, synthesize
from training.worlds.ticket_desk.walks import WALKS
from training.worlds.ticket_desk.world import TicketDesk

DESK = TicketDesk()


def end_of(draft: BundleDraft, calls: list[tuple[str, dict[str, Any]]]) -> tuple[Any, Any]:
    state = first = DESK.reset(draft, seed=0)
    for name, arguments in calls:
        state, _ = DESK.call(state, ToolCall(name, arguments))
    return DESK.view(first), DESK.view(state)


def script_calls(draft: BundleDraft, name: str) -> list[tuple[str, dict[str, Any]]]:
    return [(tool, json.loads(raw)) for turn in WALKS[name](draft) for tool, raw in turn.tool_calls]


def test_each_wrongly_mailed_ticket_fails_alone() -> None:
    draft = next(
        draft
        for draft in slice_tasks(20, 3, "train", judging=["cooldown"], rows="drawn")
        if script_calls(draft, "mails_everyone") != script_calls(draft, "window_alone")
    )
    mailed = {call[1]["ticket"] for call in script_calls(draft, "mails_everyone") if call[0] == "mail"}
    due = {call[1]["ticket"] for call in script_calls(draft, "window_alone") if call[0] == "mail"}
    verdict = verifiers["desk_tickets"](*end_of(draft, script_calls(draft, "mails_everyone")), (), JudgeTask(draft, DESK.material))
    checks = {c.name: c.status for c in verdict.conditions if not c.in_basis}
    assert {name for name, status in checks.items() if status == "failed"} == {f"ticket {name}" for name in mailed - due}
    assert checks.keys() == {f"ticket {name}" for name in draft.initial_state["tickets"]}


def test_success_is_that_of_the_desks_own_verifier_whatever_was_done() -> None:
    for draft in [*synthesize(25, 5), *slice_tasks(10, 4, "train", rows="drawn")]:
        reference = draft.reference or {}
        ways = [reference["turns"], *(way["turns"] for way in (*reference["equivalent"], *reference["wrong"])), []]
        for way in ways:
            views = end_of(draft, [(call["name"], call["arguments"]) for turn in way for call in turn])
            task = JudgeTask(draft, DESK.material)
            told, plain = verifiers["desk_tickets"](*views, (), task), verifiers["desk_conditions"](*views, (), task)
            assert told.conditions[: len(plain.conditions)] == plain.conditions
            assert (told.passed, told.side_effects) == (plain.passed, plain.side_effects)


def test_a_task_without_a_rule_of_its_own_is_refused() -> None:
    draft = generate(1, seed=1)[0]
    with pytest.raises(VerifierFailed, match="has no rule of its own"):
        verifiers["desk_tickets"](*end_of(draft, []), (), JudgeTask(draft, DESK.material))
