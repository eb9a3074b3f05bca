"""The tools of the ticket desk as JSON schemas, and what of them a policy sees. Pure."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from training.worlds.ticket_desk.state import PRIORITIES, STATUSES, TIME_PATTERN

PLAIN = ("query_tickets", "get_owner", "send_email", "update_ticket", "ask_user")
WALK = ("list_tickets", "get_ticket", "mail", "mark_reminded", "ask_user")
_ID = {"type": "string", "minLength": 1, "maxLength": 40}
_ADDRESS = {"type": "string", "pattern": r"\s*[^\s@]+@[^\s@]+\.[^\s@]+\s*", "maxLength": 200}
_SUBJECT = {"type": "string", "minLength": 1, "maxLength": 200}
_BODY = {"type": "string", "minLength": 1, "maxLength": 2000}
_PRIORITY = {"type": "string", "enum": list(PRIORITIES)}
_STATUS = {"type": "string", "enum": list(STATUSES)}
_DAYS = {"type": "number", "minimum": 0, "maximum": 36500}
_IDS = {"type": "array", "items": _ID, "minItems": 1, "maxItems": 100}
_TAGS = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 40}, "minItems": 0, "maxItems": 20}
_SHOWN = ("type", "function", "name", "description", "parameters", "properties", "required", "enum", "items")


def _schema(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_FIELDS: dict[str, Any] = {
    "status": _STATUS,
    "priority": _PRIORITY,
    "owner_id": _ID,
    "last_reminded_at": {"type": ["string", "null"], "description": "UTC, like 2026-03-02T09:00:00Z", "pattern": TIME_PATTERN},
    "note": {"type": "string", "maxLength": 500},
    "tags": _TAGS,
}
SCHEMAS: tuple[dict[str, Any], ...] = (
    _schema(
        "query_tickets",
        "List tickets. older_than_days counts back from the time of the request.",
        {"priority": _PRIORITY, "older_than_days": _DAYS, "status": _STATUS},
        [],
    ),
    _schema("get_owner", "Name and e-mail of an owner.", {"owner_id": _ID}, ["owner_id"]),
    _schema(
        "send_email",
        "Send a mail about a ticket. It cannot be taken back.",
        {"to": _ADDRESS, "subject": _SUBJECT, "body": _BODY, "ticket_id": _ID},
        ["to", "subject", "body", "ticket_id"],
    ),
    _schema(
        "send_digest",
        "Send one mail about several tickets. It cannot be taken back.",
        {"to": _ADDRESS, "subject": _SUBJECT, "body": _BODY, "ticket_ids": _IDS},
        ["to", "subject", "body", "ticket_ids"],
    ),
    _schema(
        "update_ticket",
        "Change fields of a ticket.",
        {"id": _ID, "fields": {"type": "object", "properties": _FIELDS, "additionalProperties": False, "minProperties": 1}},
        ["id", "fields"],
    ),
    _schema("get_desk", "The desk's time zone, lead, holidays and notes.", {}, []),
    _schema("list_tickets", "Ids of tickets.", {"priority": _PRIORITY, "older_than_days": _DAYS}, []),
    _schema("get_ticket", "One ticket with its owner.", {"ticket": _ID}, ["ticket"]),
    _schema("mail", "Mail somebody about a ticket.", {"to": _ADDRESS, "ticket": _ID}, ["to", "ticket"]),
    _schema("mark_reminded", "Write the time to last_reminded_at.", {"ticket": _ID}, ["ticket"]),
    _schema(
        "ask_user", "Ask the user a question.", {"question": {"type": "string", "minLength": 1, "maxLength": 1000}}, ["question"]
    ),
)  # fmt: skip
PARAMETERS: dict[str, dict[str, Any]] = {schema["function"]["name"]: schema["function"]["parameters"] for schema in SCHEMAS}


def shown_schemas(names: Sequence[str] = PLAIN) -> list[dict[str, Any]]:
    """The named tools as a policy sees them: names, types and choices, without the limits of the check, to keep prompts short.

    Tags are shown where the desk's profile is, since a plain desk has none.
    """
    shown = [_shown(schema) for schema in SCHEMAS if schema["function"]["name"] in names]
    for schema in shown:
        if schema["function"]["name"] == "update_ticket" and "get_desk" not in names:
            del schema["function"]["parameters"]["properties"]["fields"]["properties"]["tags"]
    return shown


def _shown(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, item in schema.items():
        if key == "properties":
            kept[key] = {name: _shown(field) for name, field in item.items()}
        elif key in _SHOWN and item != []:
            kept[key] = _shown(item) if isinstance(item, Mapping) else copy.copy(item)
    return kept
