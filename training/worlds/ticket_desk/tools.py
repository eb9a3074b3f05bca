"""The desk's five tools: their schemas, the check of arguments against them, and what each call does to a state."""

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from training.worlds import Observation, ToolCall
from training.worlds.ticket_desk.state import PRIORITIES, STATUSES, TIME_PATTERN, DeskState, LoggedCall, Mail, parse_time, tick

_ID = {"type": "string", "minLength": 1, "maxLength": 40}
_ADDRESS_PATTERN = r"\s*[^\s@]+@[^\s@]+\.[^\s@]+\s*"
_LOG_CHARS = 4000
_SHOWN = ("type", "function", "name", "description", "parameters", "properties", "required", "enum")
_ANSWER = "Nobody is at the desk. Follow the request as it is written."


def _schema(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


SCHEMAS: tuple[dict[str, Any], ...] = (
    _schema(
        "query_tickets",
        "List tickets. older_than_days counts back from the time of the request.",
        {
            "priority": {"type": "string", "enum": list(PRIORITIES)},
            "older_than_days": {"type": "number", "minimum": 0, "maximum": 36500},
            "status": {"type": "string", "enum": list(STATUSES)},
        },
        [],
    ),
    _schema("get_owner", "Name and e-mail of an owner.", {"owner_id": _ID}, ["owner_id"]),
    _schema(
        "send_email",
        "Send a mail about a ticket. It cannot be taken back.",
        {
            "to": {"type": "string", "pattern": _ADDRESS_PATTERN, "maxLength": 200},
            "subject": {"type": "string", "minLength": 1, "maxLength": 200},
            "body": {"type": "string", "minLength": 1, "maxLength": 2000},
            "ticket_id": _ID,
        },
        ["to", "subject", "body", "ticket_id"],
    ),
    _schema(
        "update_ticket",
        "Change fields of a ticket.",
        {
            "id": _ID,
            "fields": {
                "type": "object",
                "properties": {
                    "status": {"type": "string", "enum": list(STATUSES)},
                    "priority": {"type": "string", "enum": list(PRIORITIES)},
                    "owner_id": _ID,
                    "last_reminded_at": {
                        "type": ["string", "null"], "description": "UTC, like 2026-03-02T09:00:00Z", "pattern": TIME_PATTERN,
                    },
                    "note": {"type": "string", "maxLength": 500},
                },
                "additionalProperties": False,
                "minProperties": 1,
            },
        },
        ["id", "fields"],
    ),
    _schema(
        "ask_user", "Ask the user a question.", {"question": {"type": "string", "minLength": 1, "maxLength": 1000}}, ["question"]
    ),
)  # fmt: skip


def shown_schemas() -> list[dict[str, Any]]:
    """The tool schemas as a policy sees them: names, types and choices, without the limits of the check, to keep prompts short."""
    return [_shown(schema) for schema in SCHEMAS]


def apply(state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
    """The state one second later with the call in its log, and the answer; a mistake in the call is an answer with an error class."""
    state = replace(state, clock=tick(state.clock))
    tool = _TOOLS.get(call.name) if isinstance(call.name, str) else None
    if tool is None:
        answer = _refusal("unknown_tool", f"no tool {_ascii(call.name, 100)}; there are {', '.join(_TOOLS)}")
    elif not isinstance(call.arguments, Mapping):
        answer = _refusal("malformed_arguments", f"arguments must be an object; seen {_ascii(call.arguments, 100)}")
    elif (fault := _fault(call.arguments, _PARAMETERS[call.name], "arguments")) is not None:
        answer = _refusal("invalid_arguments", fault)
    else:
        state, answer = tool(state, **call.arguments)
    entry = LoggedCall(_ascii(call.name, 100).removeprefix('"').removesuffix('"'), _ascii(call.arguments, _LOG_CHARS), answer.error_class)
    return replace(state, call_log=(*state.call_log, entry)), answer


def _query_tickets(
    state: DeskState, *, priority: str | None = None, older_than_days: float | None = None, status: str | None = None
) -> tuple[DeskState, Observation]:
    rows = []
    for ticket in state.tickets:
        age = parse_time(state.clock.started_at) - parse_time(ticket.opened_at)
        young = older_than_days is not None and age <= timedelta(days=older_than_days)
        if young or priority not in (None, ticket.priority) or status not in (None, ticket.status):
            continue
        rows.append(
            {
                "id": ticket.id, "priority": ticket.priority, "status": ticket.status, "opened_at": ticket.opened_at,
                "owner_id": ticket.owner_id, "last_reminded_at": ticket.last_reminded_at, "note": ticket.note,
            }
        )  # fmt: skip
    return state, _answer({"tickets": rows})


def _get_owner(state: DeskState, *, owner_id: str) -> tuple[DeskState, Observation]:
    owner = state.owner(owner_id)
    if owner is None:
        return state, _refusal("not_found", f"no owner {_ascii(owner_id, 60)}")
    return state, _answer({"id": owner.id, "name": owner.name, "email": owner.email})


def _send_email(state: DeskState, *, to: str, subject: str, body: str, ticket_id: str) -> tuple[DeskState, Observation]:
    if state.ticket(ticket_id) is None:
        return state, _refusal("not_found", f"no ticket {_ascii(ticket_id, 60)}; nothing was sent")
    taken = {mail.id for mail in state.outbox}
    mail_id = next(name for number in range(len(taken) + 1, 2 * len(taken) + 2) if (name := f"M{number:03d}") not in taken)
    mail = Mail(mail_id, ticket_id, to, subject, body, state.clock.now)
    outbox = tuple(sorted((*state.outbox, mail), key=lambda row: row.id))
    return replace(state, outbox=outbox), _answer({"sent": mail.id, "sent_at": mail.sent_at})


def _update_ticket(state: DeskState, *, id: str, fields: Mapping[str, Any]) -> tuple[DeskState, Observation]:
    ticket = state.ticket(id)
    if ticket is None:
        return state, _refusal("not_found", f"no ticket {_ascii(id, 60)}; nothing was changed")
    if "owner_id" in fields and state.owner(fields["owner_id"]) is None:
        return state, _refusal("not_found", f"no owner {_ascii(fields['owner_id'], 60)}; nothing was changed")
    changed = replace(ticket, **fields)
    tickets = tuple(changed if row.id == id else row for row in state.tickets)
    return replace(state, tickets=tickets), _answer({"updated": id})


def _ask_user(state: DeskState, *, question: str) -> tuple[DeskState, Observation]:
    return state, _answer({"answer": _ANSWER})


_TOOLS: dict[str, Callable[..., tuple[DeskState, Observation]]] = {
    "query_tickets": _query_tickets,
    "get_owner": _get_owner,
    "send_email": _send_email,
    "update_ticket": _update_ticket,
    "ask_user": _ask_user,
}
_PARAMETERS: dict[str, dict[str, Any]] = {schema["function"]["name"]: schema["function"]["parameters"] for schema in SCHEMAS}


def _shown(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, item in schema.items():
        if key == "properties":
            kept[key] = {name: _shown(field) for name, field in item.items()}
        elif key in _SHOWN and item != []:
            kept[key] = _shown(item) if isinstance(item, Mapping) else copy.copy(item)
    return kept


def _answer(value: Any) -> Observation:
    return Observation(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _refusal(error_class: str, message: str) -> Observation:
    return Observation(json.dumps({"error": error_class, "message": message}, separators=(",", ":")), error_class)


def _ascii(value: Any, limit: int) -> str:
    """JSON text in ASCII, cut to `limit` characters: a sampled argument may hold lone surrogates or numbers with no canonical form."""
    try:
        text = json.dumps(value if not isinstance(value, Mapping) else dict(value), sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        text = f"<{type(value).__name__} without JSON form>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _fault(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    """What is wrong with `value` under the part of JSON Schema that the tools use, or None."""
    allowed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None and "null" in allowed:
        return None
    if "object" in allowed:
        return _object_fault(value, schema, place)
    if "number" in allowed:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not schema["minimum"] <= value <= schema["maximum"]:
            return f"{place} must be a number from {schema['minimum']} to {schema['maximum']}; seen {_ascii(value, 60)}"
        return None
    return _text_fault(value, schema, place)


def _object_fault(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    names = ", ".join(schema["properties"])
    if not isinstance(value, Mapping):
        return f"{place} must be an object with {names}; seen {_ascii(value, 60)}"
    for name in schema.get("required", []):
        if name not in value:
            return f"{place}.{name} is missing"
    if len(value) < schema.get("minProperties", 0):
        return f"{place} is empty; give one or more of {names}"
    for name, item in value.items():
        if name not in schema["properties"]:
            return f"{place} takes no {_ascii(name, 60)}; it takes {names}"
        if (fault := _fault(item, schema["properties"][name], f"{place}.{name}")) is not None:
            return fault
    return None


def _text_fault(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    if not isinstance(value, str):
        return f"{place} must be text; seen {_ascii(value, 60)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} must be one of {', '.join(schema['enum'])}; seen {_ascii(value, 60)}"
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", _LOG_CHARS):
        return f"{place} must have {schema.get('minLength', 0)} to {schema.get('maxLength', _LOG_CHARS)} characters; seen {len(value)}"
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        return f"{place} must be plain text without NUL or lone surrogates; seen {_ascii(value, 60)}"
    if "pattern" not in schema:
        return None
    if not re.fullmatch(schema["pattern"], value):
        wanted = "a time such as 2026-03-02T09:00:00Z" if schema["pattern"] == TIME_PATTERN else "one e-mail address"
        return f"{place} must be {wanted}; seen {_ascii(value, 60)}"
    if schema["pattern"] == TIME_PATTERN:
        try:
            parse_time(value)
        except ValueError:
            return f"{place} names no real date; seen {_ascii(value, 60)}"
    return None
