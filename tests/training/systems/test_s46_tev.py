"""S46 Tev: the specification comes first, equals a replay step by step, and means the same in two renderings."""

from random import Random
from typing import Any

from ledger.canonical import digest
from training.proposers import ProposalContext, Proposed, proposers
from training.proposing.acting import act, calls_of
from training.proposing.milestones import progress, reached, read_milestones
from training.worlds.command_line import CommandLine, command_of
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

DESK, PROMPT = TicketDesk(), CommandLine(TicketDesk())


def drafts() -> Proposed:
    return proposers["state_first"](ProposalContext(DESK, drafts=tuple(generate(2, seed=6))), 6, rng=Random(8), least=2, most=4)


def views(world: Any, draft: Any, calls: Any) -> list[Any]:
    state = world.reset(draft, seed=0)
    seen = [world.view(state)]
    for call in calls:
        state, _ = world.call(state, call)
        seen.append(world.view(state))
    return seen


def test_the_expected_state_after_every_step_equals_a_replay() -> None:
    for draft in drafts():
        reference = draft.reference or {}
        acted = act(DESK, draft, calls_of(reference["turns"]))
        assert [digest(step.material) for step in acted.steps] == reference["states"]
        assert len(reference["states"]) == len(draft.spec["milestones"]) >= 2
        for index, milestone in enumerate(read_milestones(draft.spec)):
            assert dict(milestone.expected) == {change.path: change.after for change in acted.changes(index)}


def test_two_renderings_give_the_same_milestones_for_the_same_actions() -> None:
    for draft in drafts():
        (calls,) = calls_of((draft.reference or {})["turns"])
        for script in (calls, calls[:-1], calls[::-1], ()):
            called = reached(draft.spec, views(DESK, draft, script), material=DESK.material)
            typed = reached(draft.spec, views(PROMPT, draft, [command_of(call) for call in script]), material=PROMPT.material)
            assert called == typed
        assert [tool["function"]["name"] for tool in PROMPT.tools(draft, turn=0)] == ["run"]


def test_progress_is_what_held_over_all_and_one_only_at_the_end() -> None:
    draft = max(drafts(), key=lambda item: len(item.spec["milestones"]))
    (calls,) = calls_of((draft.reference or {})["turns"])
    total = len(calls)
    for done in range(total + 1):
        found = reached(draft.spec, views(DESK, draft, calls[:done]), material=DESK.material)
        assert progress(found) == done / total
        assert found == (*range(1, done + 1), *[None] * (total - done))
