"""The state of a ticket desk: immutable rows, their JSON view, and the part of a view that decides whether two end states are the same."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ledger.canonical import canonical_bytes
from ledger.errors import BundleError

PRIORITIES = ("P1", "P2", "P3", "P4")
STATUSES = ("open", "in_progress", "closed")
TIME_PATTERN = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
CALL_SECONDS = 1
USER_ERRORS = ("wrong", "silent", "changes_mind")
DURING_ROLLOUT = "during the rollout"
_NULLABLE = {"last_reminded_at", "error_class", "assigned_at", "manager_id", "lead_id", "topic", "error"}
_TIMES = {"opened_at", "last_reminded_at", "sent_at", "started_at", "now", "assigned_at"}
_LISTS = {"tags", "also", "holidays", "notes", "about"}
_SETS = {"tags", "also"}
_FLAGS = {"away"}
_DEFAULTS: dict[type, tuple[tuple[str, Any], ...]] = {}
"""Kind of row to its columns with their defaults, MISSING where there is none; filled as kinds are met."""
_PARTS = ("tickets", "owners", "outbox", "call_log", "clock")
_OPTIONAL_PARTS = ("desk", "user")


@dataclass(frozen=True)
class Ticket:
    """One ticket.

    Times are UTC text such as `2026-03-02T09:00:00Z`; `last_reminded_at` is None when its owner was never reminded, `assigned_at` when it
    was never handed to another owner. Tags are sorted.
    """

    id: str
    priority: str
    status: str
    opened_at: str
    owner_id: str
    last_reminded_at: str | None
    note: str
    assigned_at: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Owner:
    """One person who owns tickets; `time_zone` is an IANA name, `manager_id` another person's id or None."""

    id: str
    name: str
    email: str
    team: str = ""
    time_zone: str = "UTC"
    manager_id: str | None = None
    away: bool = False


@dataclass(frozen=True)
class Mail:
    """One mail that has left the desk; a digest names its first ticket as `ticket_id` and the `also` others after it, sorted."""

    id: str
    ticket_id: str
    to: str
    subject: str
    body: str
    sent_at: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoggedCall:
    """One tool call as it reached the desk: name and arguments as ASCII text, and the error class of its answer or None."""

    name: str
    arguments: str
    error_class: str | None


@dataclass(frozen=True)
class Clock:
    """The desk's time: when the request was made, and now, one second later for every call since."""

    started_at: str
    now: str


@dataclass(frozen=True)
class Profile:
    """What the desk knows of itself: time zone, lead, holidays as dates, and notes, the newest last."""

    time_zone: str = "UTC"
    lead_id: str | None = None
    holidays: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fact:
    """Something that the user knows and the request leaves open.

    Attributes:
        topic: short name.
        about: words of which one or more occur in a question about it.
        reply: the true answer.
        other: what a mistaken user answers.
        error: how the user errs about it: `wrong` (always the other answer), `silent` (no answer), `changes_mind` (the other answer the
            first time, the true one when asked again), or None.
    """

    topic: str
    about: tuple[str, ...]
    reply: str
    other: str
    error: str | None = None


@dataclass(frozen=True)
class Said:
    """One answer of the user about one topic, or about none; `error` says how it was wrong, or None."""

    question: str
    topic: str | None
    reply: str
    error: str | None


@dataclass(frozen=True)
class User:
    """The person behind the request: what they know, and what they said; a policy sees only their replies."""

    facts: tuple[Fact, ...]
    log: tuple[Said, ...] = ()


@dataclass(frozen=True)
class DeskState:
    """The whole desk. Rows are sorted by id, calls are in order; nothing in it can be changed in place.

    A desk without a profile or a user is a plain one: nobody answers, and nothing but tickets, owners and mails is kept.
    """

    tickets: tuple[Ticket, ...]
    owners: tuple[Owner, ...]
    outbox: tuple[Mail, ...]
    call_log: tuple[LoggedCall, ...]
    clock: Clock
    desk: Profile | None = None
    user: User | None = None

    def ticket(self, ticket_id: str) -> Ticket | None:
        """The ticket with that id, or None."""
        return next((ticket for ticket in self.tickets if ticket.id == ticket_id), None)

    def owner(self, owner_id: str) -> Owner | None:
        """The owner with that id, or None."""
        return next((owner for owner in self.owners if owner.id == owner_id), None)


Row = TypeVar("Row", Ticket, Owner, Mail)
Record = TypeVar("Record", Ticket, Owner, Mail, LoggedCall, Clock, Profile, Fact, Said)


@lru_cache(maxsize=65536)
def parse_time(text: str) -> datetime:
    """The moment that `text` names, in UTC.

    Raises:
        ValueError: `text` is not of the form 2026-03-02T09:00:00Z or names no real date.
    """
    if not re.fullmatch(TIME_PATTERN, text):
        raise ValueError(f"{text!r} is not a time of the form 2026-03-02T09:00:00Z")
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """The desk's text for a UTC moment, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def tick(clock: Clock) -> Clock:
    """The clock one call later."""
    return replace(clock, now=format_time(parse_time(clock.now) + timedelta(seconds=CALL_SECONDS)))


def view_of(state: DeskState) -> dict[str, Any]:
    """The state as JSON: tables keyed by row id, the call log as a list, the clock; columns with their default are left out."""
    view: dict[str, Any] = {
        "tickets": {row.id: _columns(row) for row in state.tickets},
        "owners": {row.id: _columns(row) for row in state.owners},
        "outbox": {row.id: _columns(row) for row in state.outbox},
        "call_log": [_columns(entry) for entry in state.call_log],
        "clock": _columns(state.clock),
    }
    if state.desk is not None:
        view["desk"] = _columns(state.desk)
    if state.user is not None:
        view["user"] = {"facts": [_columns(fact) for fact in state.user.facts], "log": [_columns(said) for said in state.user.log]}
    return view


def state_of(view: Any) -> DeskState:
    """The state whose view is `view`.

    Raises:
        BundleError: a table, a column or a value is missing, unknown or of the wrong form; the message names it.
        CanonicalError: a text holds NUL or a lone surrogate.
    """
    canonical_bytes(view)
    if not isinstance(view, Mapping) or not set(_PARTS) <= set(view) <= {*_PARTS, *_OPTIONAL_PARTS}:
        seen = sorted(view) if isinstance(view, Mapping) else repr(view)
        raise BundleError(f"a desk state has the parts {', '.join(_PARTS)}, and may have {', '.join(_OPTIONAL_PARTS)}; seen {seen}")
    state = DeskState(
        tickets=_table(Ticket, view["tickets"], "tickets"),
        owners=_table(Owner, view["owners"], "owners"),
        outbox=_table(Mail, view["outbox"], "outbox"),
        call_log=_list(LoggedCall, view["call_log"], "call_log"),
        clock=_record(Clock, view["clock"], "clock"),
        desk=None if view.get("desk") is None else _record(Profile, view["desk"], "desk"),
        user=None if view.get("user") is None else _user(view["user"]),
    )
    _check(state)
    return state


def _check(state: DeskState) -> None:
    people = {owner.id for owner in state.owners}
    for ticket in state.tickets:
        if ticket.priority not in PRIORITIES or ticket.status not in STATUSES:
            raise BundleError(
                f"tickets.{ticket.id} has priority {ticket.priority!r} and status {ticket.status!r};"
                f" allowed: {', '.join(PRIORITIES)} and {', '.join(STATUSES)}"
            )
        if ticket.owner_id not in people:
            raise BundleError(f"tickets.{ticket.id} names owner {ticket.owner_id!r}; there are {sorted(people)}")
    named = {f"owners.{owner.id}.manager_id": owner.manager_id for owner in state.owners if owner.manager_id is not None}
    zones = {f"owners.{owner.id}.time_zone": owner.time_zone for owner in state.owners}
    if state.desk is not None:
        zones["desk.time_zone"] = state.desk.time_zone
        if state.desk.lead_id is not None:
            named["desk.lead_id"] = state.desk.lead_id
    for place, person in named.items():
        if person not in people:
            raise BundleError(f"{place} is {person!r}; there are {sorted(people)}")
    for place, name in zones.items():
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise BundleError(f"{place} is {name!r}; allowed: an IANA time zone such as Europe/Berlin") from error
    if state.clock.now < state.clock.started_at:
        raise BundleError(f"clock.now {state.clock.now} is before clock.started_at {state.clock.started_at}")


def material_of(view: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a view on which two end states are compared.

    Left out: the call log, the clock, mail ids, subjects, bodies and sending times. A reminder time between the request and now is written
    as `during the rollout`, since how many calls came before it does not matter; any other time is kept. Mails are counted by ticket and
    address, the address without outer spaces and in lower case; a digest counts under its tickets, joined by `+`. The desk's profile and
    the user are left out: no tool changes the one, and the other is no part of the task.
    """
    clock = view["clock"]
    tickets = {}
    for ticket_id, row in view["tickets"].items():
        reminded = row["last_reminded_at"]
        fresh = reminded is not None and clock["started_at"] <= reminded <= clock["now"]
        tickets[ticket_id] = {**row, "last_reminded_at": DURING_ROLLOUT if fresh else reminded}
    mails: dict[str, Counter[str]] = {}
    for mail in view["outbox"].values():
        mails.setdefault("+".join((mail["ticket_id"], *mail.get("also", ()))), Counter())[mail["to"].strip().casefold()] += 1
    return {
        "tickets": tickets,
        "owners": {owner_id: dict(row) for owner_id, row in view["owners"].items()},
        "outbox": {ticket_id: dict(count) for ticket_id, count in mails.items()},
    }


def _columns(row: Any) -> dict[str, Any]:
    columns, kind = {}, type(row)
    if kind not in _DEFAULTS:
        _DEFAULTS[kind] = tuple((field.name, field.default) for field in fields(kind) if field.name != "id")
    for name, default in _DEFAULTS[kind]:
        value = getattr(row, name)
        if value is not default and value != default:
            columns[name] = list(value) if type(value) is tuple else value
    return columns


def _table(kind: type[Row], table: Any, name: str) -> tuple[Row, ...]:
    if not isinstance(table, Mapping):
        raise BundleError(f"{name} must be an object keyed by id; seen {table!r}")
    return tuple(_record(kind, table[row_id], f"{name}.{row_id}", id=row_id) for row_id in sorted(table))


def _list(kind: type[Record], rows: Any, name: str) -> tuple[Record, ...]:
    if not isinstance(rows, list | tuple):
        raise BundleError(f"{name} must be a list; seen {rows!r}")
    return tuple(_record(kind, row, f"{name}[{index}]") for index, row in enumerate(rows))


def _user(value: Any) -> User:
    if not isinstance(value, Mapping) or set(value) != {"facts", "log"}:
        raise BundleError(f"user must be an object with facts and log; seen {value!r}")
    user = User(_list(Fact, value["facts"], "user.facts"), _list(Said, value["log"], "user.log"))
    for fact in user.facts:
        if fact.error not in (None, *USER_ERRORS):
            raise BundleError(f"the user's error about {fact.topic} is {fact.error!r}; allowed: null, {', '.join(USER_ERRORS)}")
    return user


def _record(kind: type[Record], row: Any, place: str, **key: str) -> Record:
    if not isinstance(row, Mapping):
        raise BundleError(f"{place} must be an object; seen {row!r}")
    allowed = [field.name for field in fields(kind) if field.name not in key]
    needed = {field.name for field in fields(kind) if field.name not in key and field.default is MISSING}
    if not needed <= set(row) <= set(allowed):
        raise BundleError(f"{place} has the columns {sorted(row)}; allowed: {sorted(allowed)}, needed: {sorted(needed)}")
    cells: dict[str, Any] = {**key, **{column: _cell(column, value, f"{place}.{column}") for column, value in row.items()}}
    return kind(**cells)


def _cell(column: str, value: Any, place: str) -> Any:
    if value is None and column in _NULLABLE:
        return None
    if column in _FLAGS:
        if not isinstance(value, bool):
            raise BundleError(f"{place} is {value!r}; allowed: true or false")
        return value
    if column in _LISTS:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise BundleError(f"{place} is {value!r}; allowed: a list of text")
        return tuple(sorted(set(value))) if column in _SETS else tuple(value)
    if not isinstance(value, str):
        raise BundleError(f"{place} is {value!r}; allowed: text{' or null' if column in _NULLABLE else ''}")
    if column in _TIMES:
        try:
            parse_time(value)
        except ValueError as error:
            raise BundleError(f"{place}: {error}") from error
    return value
