"""The tools of the ticket desk: what each call does to a state."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from training.worlds import Observation, ToolCall
from training.worlds.ticket_desk.arguments import LOG_CHARS, ascii_text, fault
from training.worlds.ticket_desk.schemas import PARAMETERS
from training.worlds.ticket_desk.state import DeskState, LoggedCall, Mail, Owner, Ticket, parse_time, tick
from training.worlds.ticket_desk.user import Respond, answered, keyword_user

_ANSWER = "Nobody is at the desk. Follow the request as it is written."
Outcome = tuple[DeskState, Observation]


def apply(state: DeskState, call: ToolCall, *, respond: Respond = keyword_user) -> Outcome:
    """The state one second later with the call in its log, and the answer; a mistake in the call is an answer with an error class.

    Args:
        respond: how the user behind the request answers.
    """
    state = replace(state, clock=tick(state.clock))
    name = call.name if isinstance(call.name, str) else None
    if name not in PARAMETERS:
        answer = _refusal("unknown_tool", f"no tool {ascii_text(call.name, 100)}; there are {', '.join(PARAMETERS)}")
    elif not isinstance(call.arguments, Mapping):
        answer = _refusal("malformed_arguments", f"arguments must be an object; seen {ascii_text(call.arguments, 100)}")
    elif (found := fault(call.arguments, PARAMETERS[name], "arguments")) is not None:
        answer = _refusal("invalid_arguments", found)
    elif name == "ask_user":
        state, answer = _ask_user(state, respond=respond, **call.arguments)
    else:
        state, answer = _TOOLS[name](state, **call.arguments)
    shown = ascii_text(call.name, 100).removeprefix('"').removesuffix('"')
    entry = LoggedCall(shown, ascii_text(call.arguments, LOG_CHARS), answer.error_class)
    return replace(state, call_log=(*state.call_log, entry)), answer


def _matching(state: DeskState, priority: str | None, older_than_days: float | None, status: str | None = None) -> list[Ticket]:
    rows = []
    for ticket in state.tickets:
        young = older_than_days is not None and _age(state, ticket.opened_at) <= timedelta(days=older_than_days)
        if not young and priority in (None, ticket.priority) and status in (None, ticket.status):
            rows.append(ticket)
    return rows


def _query_tickets(
    state: DeskState, *, priority: str | None = None, older_than_days: float | None = None, status: str | None = None
) -> Outcome:
    rows = []
    for ticket in _matching(state, priority, older_than_days, status):
        row: dict[str, Any] = {
            "id": ticket.id, "priority": ticket.priority, "status": ticket.status, "opened_at": ticket.opened_at,
            "owner_id": ticket.owner_id, "last_reminded_at": ticket.last_reminded_at, "note": ticket.note,
        }  # fmt: skip
        rows.append(row if state.desk is None else {**row, "assigned_at": ticket.assigned_at, "tags": list(ticket.tags)})
    return state, _answer({"tickets": rows})


def _get_owner(state: DeskState, *, owner_id: str) -> Outcome:
    owner = state.owner(owner_id)
    if owner is None:
        return state, _refusal("not_found", f"no owner {ascii_text(owner_id, 60)}")
    return state, _answer({"id": owner.id, "name": owner.name, "email": owner.email, **_further(state, owner)})


def _send_email(state: DeskState, *, to: str, subject: str, body: str, ticket_id: str) -> Outcome:
    return _send_digest(state, to=to, subject=subject, body=body, ticket_ids=[ticket_id])


def _send_digest(state: DeskState, *, to: str, subject: str, body: str, ticket_ids: Sequence[str]) -> Outcome:
    for ticket_id in ticket_ids:
        if state.ticket(ticket_id) is None:
            return state, _refusal("not_found", f"no ticket {ascii_text(ticket_id, 60)}; nothing was sent")
    first, *also = sorted(set(ticket_ids))
    taken = {mail.id for mail in state.outbox}
    mail_id = next(name for number in range(len(taken) + 1, 2 * len(taken) + 2) if (name := f"M{number:03d}") not in taken)
    mail = Mail(mail_id, first, to, subject, body, state.clock.now, tuple(also))
    outbox = tuple(sorted((*state.outbox, mail), key=lambda row: row.id))
    return replace(state, outbox=outbox), _answer({"sent": mail.id, "sent_at": mail.sent_at})


def _update_ticket(state: DeskState, *, id: str, fields: Mapping[str, Any]) -> Outcome:
    ticket = state.ticket(id)
    if ticket is None:
        return state, _refusal("not_found", f"no ticket {ascii_text(id, 60)}; nothing was changed")
    if "owner_id" in fields and state.owner(fields["owner_id"]) is None:
        return state, _refusal("not_found", f"no owner {ascii_text(fields['owner_id'], 60)}; nothing was changed")
    columns: dict[str, Any] = {key: tuple(sorted(set(value))) if key == "tags" else value for key, value in fields.items()}
    changed = replace(ticket, **columns)
    tickets = tuple(changed if row.id == id else row for row in state.tickets)
    return replace(state, tickets=tickets), _answer({"updated": id})


def _get_desk(state: DeskState) -> Outcome:
    if state.desk is None:
        return state, _refusal("not_found", "this desk has no profile")
    desk = state.desk
    return state, _answer(
        {"time_zone": desk.time_zone, "lead_id": desk.lead_id, "holidays": list(desk.holidays), "notes": list(desk.notes)}
    )  # fmt: skip


def _list_tickets(state: DeskState, *, priority: str | None = None, older_than_days: float | None = None) -> Outcome:
    return state, _answer({"tickets": [ticket.id for ticket in _matching(state, priority, older_than_days)]})


def _get_ticket(state: DeskState, *, ticket: str) -> Outcome:
    row = state.ticket(ticket)
    if row is None:
        return state, _refusal("not_found", f"no ticket {ascii_text(ticket, 60)}")
    owner = state.owner(row.owner_id)
    assert owner is not None
    reminded = row.last_reminded_at
    answer: dict[str, Any] = {
        "ticket": row.id, "owner": owner.name, "email": owner.email, "priority": row.priority, "status": row.status,
        "days": _plain(_age(state, row.opened_at) / timedelta(days=1)),
        "reminded_hours": None if reminded is None else _plain(_age(state, reminded) / timedelta(hours=1)),
    }  # fmt: skip
    return state, _answer(answer if state.desk is None else {**answer, "tags": list(row.tags), **_further(state, owner)})


def _mail(state: DeskState, *, to: str, ticket: str) -> Outcome:
    state, answer = _send_digest(state, to=to, subject=f"Reminder: {ticket}", body=f"Please look at {ticket}.", ticket_ids=[ticket])
    # `mark_reminded` writes the time by itself, so a walk has no use for it.
    return state, answer if answer.error_class is not None else _answer({"sent": json.loads(answer.content)["sent"]})


def _mark_reminded(state: DeskState, *, ticket: str) -> Outcome:
    return _update_ticket(state, id=ticket, fields={"last_reminded_at": state.clock.now})


def _ask_user(state: DeskState, *, respond: Respond, question: str) -> Outcome:
    if state.user is None:
        return state, _answer({"answer": _ANSWER})
    user, text = answered(state.user, question, respond)
    return replace(state, user=user), _answer({"answer": text})


_TOOLS: dict[str, Callable[..., Outcome]] = {
    "query_tickets": _query_tickets,
    "get_owner": _get_owner,
    "send_email": _send_email,
    "send_digest": _send_digest,
    "update_ticket": _update_ticket,
    "get_desk": _get_desk,
    "list_tickets": _list_tickets,
    "get_ticket": _get_ticket,
    "mail": _mail,
    "mark_reminded": _mark_reminded,
}


def _age(state: DeskState, since: str) -> timedelta:
    """Time from `since` to the request."""
    return parse_time(state.clock.started_at) - parse_time(since)


def _further(state: DeskState, owner: Owner) -> dict[str, Any]:
    """What a desk with a profile knows of an owner beyond name and address."""
    if state.desk is None:
        return {}
    return {"team": owner.team, "time_zone": owner.time_zone, "manager_id": owner.manager_id, "away": owner.away}


def _plain(number: float) -> int | float:
    """Rounded to four decimals, whole where it is whole."""
    rounded = round(number, 4)
    return int(rounded) if rounded == int(rounded) else rounded


def _answer(value: Any) -> Observation:
    return Observation(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _refusal(error_class: str, message: str) -> Observation:
    return Observation(json.dumps({"error": error_class, "message": message}, separators=(",", ":")), error_class)
