"""Scripted policies made from a task's reference: one that is right and two that are not."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError
from training.worlds import AssistantTurn

Turns = Sequence[Sequence[Mapping[str, Any]]]


def oracle(draft: BundleDraft) -> list[AssistantTurn]:
    """The reference, one call a message, with a text after each user turn."""
    return answers(_reference(draft))


def gives_up(draft: BundleDraft) -> list[AssistantTurn]:
    """A text for every user turn and no call."""
    return answers([[] for _ in draft.request["turns"]])


def drops_last_call(draft: BundleDraft) -> list[AssistantTurn]:
    """The reference without its very last call."""
    turns = [list(calls) for calls in _reference(draft)]
    last = max((at for at, calls in enumerate(turns) if calls), default=None)
    if last is not None:
        turns[last].pop()
    return answers(turns)


def answers(turns: Turns) -> list[AssistantTurn]:
    """The model answers that make these calls and end each user turn with a text."""
    made: list[AssistantTurn] = []
    for calls in turns:
        made += [AssistantTurn(None, ((call["name"], json.dumps(call["arguments"])),)) for call in calls]
        made.append(AssistantTurn("Done." if calls else "I am sorry, I cannot do this."))
    return made


def _reference(draft: BundleDraft) -> Turns:
    if draft.reference is None or "turns" not in draft.reference:
        raise BundleError(f"bundle {draft.name!r} has no reference; a script needs reference.turns")
    turns: Turns = draft.reference["turns"]
    return turns


SCRIPTS: dict[str, Callable[[BundleDraft], list[AssistantTurn]]] = {
    script.__name__: script for script in (oracle, gives_up, drops_last_call)
}
"""Policy name to what it answers in a task, turn by turn."""
