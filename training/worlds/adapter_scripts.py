"""Scripted policies for worlds whose tasks list further paths: those made from the reference, an equivalent path and a wrong one. Pure."""

from collections.abc import Callable

from ledger.bundle import BundleDraft
from training.worlds import AssistantTurn
from training.worlds.reference_scripts import candidates, drops_last_call, gives_up, oracle, reference_turns, script


def other_path(draft: BundleDraft) -> list[AssistantTurn]:
    """The first equivalent path, or the reference where none is listed. Passes every condition."""
    return script(next(iter(candidates(draft, "equivalent").values()), reference_turns(draft)))


def goes_wrong(draft: BundleDraft) -> list[AssistantTurn]:
    """The first path that is known to be wrong, or no call where none is listed. Fails the conditions that it breaks."""
    wrong = next(iter(candidates(draft, "wrong").values()), None)
    return gives_up(draft) if wrong is None else script(wrong)


SCRIPTS: dict[str, Callable[[BundleDraft], list[AssistantTurn]]] = {
    made.__name__: made for made in (oracle, other_path, goes_wrong, drops_last_call, gives_up)
}
"""Policy name to what it answers in a task, turn by turn."""
