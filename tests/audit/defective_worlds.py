"""Ticket desks that are wrong in one known way each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledger.bundle import BundleDraft
from training.worlds import Observation, ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.state import DeskState


class SeedlessDesk(TicketDesk):
    """Says that it is random and drops its seed: every reset is the same."""

    stochastic = True


class SeededDesk(TicketDesk):
    """Is random and obeys its seed: the first ticket's note is drawn from it."""

    stochastic = True

    def reset(self, draft: BundleDraft, *, seed: int) -> DeskState:
        """The initial state with a note of the seed's."""
        return _noted(super().reset(draft, seed=seed), f"drawn {seed}")


class DriftingDesk(TicketDesk):
    """Draws from a counter that all resets share instead of its seed."""

    def __init__(self) -> None:
        super().__init__()
        self._resets = 0

    def reset(self, draft: BundleDraft, *, seed: int) -> DeskState:
        """The initial state with a note that counts resets."""
        self._resets += 1
        return _noted(super().reset(draft, seed=seed), f"reset {self._resets}")


class ForgetfulDesk(TicketDesk):
    """Answers a query in an order that depends on how many were asked before: the states agree, the observations do not."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        """As the desk, with the number of the call in every answer."""
        self._calls += 1
        after, seen = super().call(state, call)
        return after, Observation(f"{seen.content} #{self._calls}", seen.error_class)


class WritingReader(TicketDesk):
    """Marks a ticket whenever somebody looks up an owner."""

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        """As the desk, with a write in get_owner."""
        after, seen = super().call(state, call)
        return (_noted(after, "looked at") if call.name == "get_owner" else after), seen


class CrashingDesk(TicketDesk):
    """Breaks on a legal call: an update of the note."""

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        """As the desk, without support for notes."""
        if call.name == "update_ticket" and "note" in call.arguments.get("fields", {}):
            raise KeyError("note")
        return super().call(state, call)


class CarelessDesk(TicketDesk):
    """Takes an id of any type for the first ticket, so that illegal calls are carried out."""

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        """As the desk, with no check of an id's type."""
        arguments = dict(call.arguments)
        if call.name == "update_ticket" and not isinstance(arguments.get("id"), str):
            arguments["id"] = state.tickets[0].id
        if call.name == "send_email" and not isinstance(arguments.get("ticket_id"), str):
            arguments["ticket_id"] = state.tickets[0].id
        return super().call(state, ToolCall(call.name, arguments, call.call_id))


class LeakyDesk(TicketDesk):
    """Remembers the end of the last episode in the next one."""

    def __init__(self) -> None:
        super().__init__()
        self._mails = 0

    def reset(self, draft: BundleDraft, *, seed: int) -> DeskState:
        """The initial state, marked when a mail was sent in an earlier episode."""
        state = super().reset(draft, seed=seed)
        return _noted(state, "mailed before") if self._mails else state

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        """As the desk, counting mails over all episodes."""
        self._mails += call.name == "send_email"
        return super().call(state, call)


def _noted(state: DeskState, note: str) -> DeskState:
    return replace(state, tickets=(replace(state.tickets[0], note=note), *state.tickets[1:]))


MakeDesk = Callable[[], Any]
