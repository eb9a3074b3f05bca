"""Worlds that a model writes: they run in the sandbox, begin in their state, can be changed, and have tasks that hold."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ledger.errors import ProposalError
from tests.tiny_world import Library
from training.proposers import Document, ProposalContext, Proposed, proposers
from training.proposing.acting import act, calls_of
from training.proposing.class_folder import write_folder
from training.worlds.python_class import PythonClasses, read_sources, read_tasks

asked_worlds = proposers["asked_worlds"]
CONTEXT = ProposalContext(Library(), documents=(Document("garden.txt", "Beds are watered in turn.", "CC-BY-4.0"),))
SOURCE = '''
class Garden:
    """Beds and how often each was watered."""

    def __init__(self, state=None):
        self.beds = {}

    def list_beds(self) -> dict:
        """List the beds."""
        return {"beds": self.beds}

    def water(self, bed: str) -> dict:
        """Water a bed."""
        if bed not in self.beds:
            return {"success": False, "error": "no such bed"}
        self.beds[bed] += 1
        return {"success": True}
'''
GARDEN = {"name": "garden", "source": SOURCE, "state": {"beds": {"rose": 0, "herb": 2}}}
TASK = {
    "request": "Give the roses some water, once will do.",
    "calls": [{"name": "water", "arguments": {"bed": "rose"}}],
    "conditions": [{"name": "C1", "says": "roses were watered once", "place": "/beds/rose", "value": 1}],
}


class Scripted:
    """Answers in order, whatever is asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.calls = [item if isinstance(item, str) else json.dumps(item) for item in answers], 0

    def __call__(self, messages: Any, fields: Any) -> str:
        self.calls += 1
        return self.answers[self.calls - 1]


@pytest.fixture(scope="module")
def garden() -> Proposed:
    return asked_worlds(CONTEXT, 1, rng=Random(1), ask=Scripted(GARDEN, TASK), tasks=1)


def test_a_class_and_its_task_become_a_draft_of_a_world_that_can_be_opened(garden: Proposed) -> None:
    assert (len(garden), garden.rejected) == (1, {})
    assert garden.artifacts == {"class/garden": SOURCE}
    draft = garden[0]
    assert (draft.world, draft.initial_state) == ("python_class", {"class": "garden", "state": GARDEN["state"]})
    assert (draft.provenance["source"]["document"], draft.provenance["licence"]) == ("garden.txt", "CC-BY-4.0")
    world = PythonClasses({"garden": SOURCE})
    try:
        assert act(world, draft, calls_of((draft.reference or {})["turns"])).end == {"beds": {"rose": 1, "herb": 2}}
    finally:
        world.close()


def test_proposed_classes_are_kept_in_a_folder_from_which_they_open_again(garden: Proposed, tmp_path: Path) -> None:
    assert write_folder(garden, tmp_path / "worlds") == 1
    world = PythonClasses(read_sources(tmp_path / "worlds"))
    try:
        assert read_tasks(tmp_path / "worlds", world) == list(garden)
    finally:
        world.close()
    with pytest.raises(ProposalError, match="is not empty; allowed: an empty or a new one"):
        write_folder(garden, tmp_path / "worlds")
    with pytest.raises(ProposalError, match="no class among the artifacts"):
        write_folder(Proposed(()), tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source": "class Garden(:" + " " * 50}, "no Python"),
        (
            {"source": "class Garden:\n    def __init__(self, state=None):\n        raise ValueError('never')\n    def water(self): ...\n"},
            "does not run",
        ),
        ({"source": SOURCE.replace("self.beds[bed] += 1", "pass")}, "no legal call"),
        ({"state": {"beds": {}}}, "no legal call"),
        ({"source": SOURCE.replace("def list_beds", "def _list").replace("def water", "def _water")}, "does not run"),
        ({"name": "Garden World"}, "wrong form"),
    ],
)
def test_a_class_that_does_not_hold_is_sent_back_with_the_reason_and_counted(change: dict[str, Any], reason: str) -> None:
    got = asked_worlds(CONTEXT, 1, rng=Random(1), ask=Scripted({**GARDEN, **change}, GARDEN, TASK), tasks=1)
    assert len(got) == 1
    assert got.rejected == {f"answer, {reason}": 1}


def test_a_world_without_any_task_that_holds_is_dropped_with_its_class() -> None:
    got = asked_worlds(CONTEXT, 1, rng=Random(1), ask=Scripted(GARDEN, "no", "no"), tasks=1, retries=1)
    assert (len(got), got.artifacts) == (0, {})
    assert got.rejected == {"answer, not JSON": 2, "task, not JSON": 1, "world, no task": 1}


def test_without_a_model_there_is_a_clear_refusal() -> None:
    with pytest.raises(ProposalError, match="asked_worlds needs a model to ask"):
        asked_worlds(CONTEXT, 1)
    with pytest.raises(ProposalError, match="tasks 0"):
        asked_worlds(CONTEXT, 1, ask=Scripted(), tasks=0)
