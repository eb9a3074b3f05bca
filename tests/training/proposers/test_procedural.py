"""What every procedural proposer promises, in the ticket desk and in a world that none of them was made for."""

import json
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

import pytest

from ledger.bundle import Bundle, BundleDraft
from ledger.errors import ProposalError
from tests.tiny_world import Library, library_task
from training.proposers import ProposalContext, Proposed, proposers
from training.proposing.acting import act, calls_of
from training.verifiers import JudgeTask, Verdict, verifiers
from training.worlds import World
from training.worlds.ticket_desk import TicketDesk, scripts
from training.worlds.ticket_desk.bundles import generate

PROCEDURAL = ("axes_sampler", "counterexample_driven", "healthy_inversion", "service_combination", "state_first", "tool_graph")
WORLDS: Mapping[str, World[Any]] = {"library": Library(), "ticket_desk": TicketDesk()}
N = 3


def counterexample(draft: BundleDraft, turns: Any, **fields: Any) -> dict[str, Any]:
    return {"draft": draft.name, "verifier": "lax", "accepted": True, "correct": False, "turns": turns, **fields}


@cache
def context(world: str) -> ProposalContext:
    if world == "library":
        first, second = (
            library_task(),
            library_task("library_1", readers={"R1": {"name": "Ada"}, "R2": {"name": "Ben"}, "R3": {"name": "Cy"}}),
        )
        moved = {"turns": [[{"name": "move", "arguments": {"book_id": "B1", "shelf": "south"}}]]}
        third = BundleDraft(**{**vars(first), "name": "library_2", "reference": moved})
        lent = {"name": "lend", "arguments": {"book_id": "B2", "reader_id": "R2"}}
        posted = {"name": "move", "arguments": {"book_id": "B3", "shelf": "south"}}
        known = (counterexample(first, [[lent]]), counterexample(third, [[*moved["turns"][0], posted]]))
        return ProposalContext(WORLDS[world], drafts=(first, second, third), counterexamples=known)
    drafts = generate(2, seed=1)
    told = [[{"name": name, "arguments": json.loads(raw)} for turn in scripts.duplicate_sender(drafts[0]) for name, raw in turn.tool_calls]]
    started = proposers["state_first"](ProposalContext(WORLDS[world], drafts=tuple(drafts[:1])), 3, rng=Random(7), most=2)
    return ProposalContext(WORLDS[world], drafts=(*drafts, *started), counterexamples=(counterexample(drafts[0], told),))


@pytest.fixture(scope="module")
def proposed() -> dict[tuple[str, str], Proposed]:
    return {(name, world): proposers[name](context(world), N, rng=Random(11)) for name in PROCEDURAL for world in WORLDS}


def verdict(world: World[Any], draft: BundleDraft, turns: Any) -> Verdict:
    start = world.view(world.reset(draft, seed=3))
    end = world.view(act(world, draft, calls_of(turns), seed=3).state)
    return verifiers["end_state"](start, end, (), JudgeTask(draft, world.material))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", PROCEDURAL)
def test_the_same_generator_gives_the_same_drafts_and_another_gives_others(name: str, world: str, proposed: Any) -> None:
    first = proposed[name, world]
    again = proposers[name](context(world), N, rng=Random(11))
    other = proposers[name](context(world), 1, rng=Random(12))
    assert len(first) == N
    assert first == again
    assert other[0] not in first


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", PROCEDURAL)
def test_a_reference_passes_its_equivalents_too_and_neither_doing_nothing_nor_a_wrong_candidate_does(
    name: str, world: str, proposed: Any
) -> None:
    for draft in proposed[name, world]:
        reference = draft.reference
        assert verdict(WORLDS[world], draft, reference["turns"]).passed is True
        assert verdict(WORLDS[world], draft, [[]]).passed is False
        assert reference["wrong"]
        for item in reference["equivalent"]:
            assert verdict(WORLDS[world], draft, item["turns"]).passed is True
        for item in reference["wrong"]:
            seen = verdict(WORLDS[world], draft, item["turns"])
            assert seen.passed is False
            assert [condition.name for condition in seen.conditions if condition.status == "failed"] == item["breaks"]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", PROCEDURAL)
def test_a_draft_can_be_sealed_and_says_where_it_is_from(name: str, world: str, proposed: Any) -> None:
    drafts = list(proposed[name, world])
    assert len({Bundle(draft, "world", "verifier", "harness").bundle_id for draft in drafts}) == len({draft.name for draft in drafts}) == N
    for draft in drafts:
        assert draft.provenance["proposer"] == name
        assert isinstance(draft.provenance["seed"], int)
        assert draft.provenance["licence"] == "Apache-2.0"
        assert all(isinstance(draft.provenance[key], str) and draft.provenance[key] for key in ("family", "wording", "names"))
        parents = [parent for parent in context(world).drafts if parent.name in draft.provenance["source"]["drafts"]]
        assert parents
        assert draft.split in {parent.split for parent in parents}


@pytest.mark.parametrize("name", PROCEDURAL)
def test_a_draft_can_be_made_again_from_its_seed_alone(name: str, proposed: Any) -> None:
    """No draft depends on how many were made before it."""
    fewer = proposers[name](context("library"), 2, rng=Random(11))
    assert list(fewer) == list(proposed[name, "library"])[:2]


@pytest.mark.parametrize("name", PROCEDURAL)
def test_without_a_task_to_start_from_or_with_a_negative_number_there_is_a_clear_refusal(name: str) -> None:
    with pytest.raises(
        ProposalError, match=r"needs \d or more drafts for world 'library' to start from; seen 0 among 1 drafts for \['ticket_desk'\]"
    ):
        proposers[name](ProposalContext(Library(), drafts=(generate(1, seed=0)[0],), counterexamples=({},)), 1)
    with pytest.raises(ProposalError, match="n is -1; allowed: 0 or more"):
        proposers[name](context("library"), -1)
    assert list(proposers[name](context("library"), 0)) == []
