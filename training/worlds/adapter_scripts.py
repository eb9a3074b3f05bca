"""Scripted policies that replay what a task's reference holds, right or wrong."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError
from training.worlds import AssistantTurn


def oracle(draft: BundleDraft) -> list[AssistantTurn]:
    """The reference, one call a message, then DONE in each user turn. Passes every condition."""
    return _replayed(_reference(draft)["turns"])


def other_path(draft: BundleDraft) -> list[AssistantTurn]:
    """The first equivalent path, or the reference where there is none. Passes every condition."""
    equivalent = _reference(draft).get("equivalent") or [_reference(draft)]
    return _replayed(equivalent[0]["turns"])


def goes_wrong(draft: BundleDraft) -> list[AssistantTurn]:
    """The first path that is known to be wrong, or no action where none is known. Fails the conditions that it breaks."""
    wrong = _reference(draft).get("wrong")
    return _replayed(wrong[0]["turns"]) if wrong else gives_up(draft)


def stops_early(draft: BundleDraft) -> list[AssistantTurn]:
    """The reference without its last call."""
    turns = [list(turn) for turn in _reference(draft)["turns"]]
    return _replayed([*turns[:-1], turns[-1][:-1]])


def gives_up(draft: BundleDraft) -> list[AssistantTurn]:
    """Answers without acting."""
    return [AssistantTurn("I am sorry, I cannot do this.") for _ in draft.request["turns"]]


SCRIPTS: dict[str, Callable[[BundleDraft], list[AssistantTurn]]] = {
    script.__name__: script for script in (oracle, other_path, goes_wrong, stops_early, gives_up)
}


def _reference(draft: BundleDraft) -> dict[str, Any]:
    if draft.reference is None:
        raise BundleError(f"bundle {draft.name!r} has no reference; a script needs reference.turns")
    return dict(draft.reference)


def _replayed(turns: Sequence[Sequence[dict[str, Any]]]) -> list[AssistantTurn]:
    return [
        answer
        for turn in turns
        for answer in [*(AssistantTurn(None, ((call["name"], json.dumps(call["arguments"])),)) for call in turn), AssistantTurn("DONE")]
    ]
