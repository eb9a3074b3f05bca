"""The state of a ticket desk: immutable rows, their JSON view, and the part of a view that decides whether two end states are the same."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from ledger.canonical import canonical_bytes
from ledger.errors import BundleError

PRIORITIES = ("P1", "P2", "P3", "P4")
STATUSES = ("open", "in_progress", "closed")
TIME_PATTERN = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
CALL_SECONDS = 1
DURING_ROLLOUT = "during the rollout"
_NULLABLE = {"last_reminded_at", "error_class"}
_TIMES = {"opened_at", "last_reminded_at", "sent_at", "started_at", "now"}
_TABLES = ("tickets", "owners", "outbox", "call_log", "clock")


@dataclass(frozen=True)
class Ticket:
    """One ticket; times are UTC text such as `2026-03-02T09:00:00Z`, `last_reminded_at` is None when its owner was never reminded."""

    id: str
    priority: str
    status: str
    opened_at: str
    owner_id: str
    last_reminded_at: str | None
    note: str


@dataclass(frozen=True)
class Owner:
    """One person who owns tickets."""

    id: str
    name: str
    email: str


@dataclass(frozen=True)
class Mail:
    """One mail that has left the desk."""

    id: str
    ticket_id: str
    to: str
    subject: str
    body: str
    sent_at: str


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
class DeskState:
    """The whole desk. Rows are sorted by id, calls are in order; nothing in it can be changed in place."""

    tickets: tuple[Ticket, ...]
    owners: tuple[Owner, ...]
    outbox: tuple[Mail, ...]
    call_log: tuple[LoggedCall, ...]
    clock: Clock

    def ticket(self, ticket_id: str) -> Ticket | None:
        """The ticket with that id, or None."""
        return next((ticket for ticket in self.tickets if ticket.id == ticket_id), None)

    def owner(self, owner_id: str) -> Owner | None:
        """The owner with that id, or None."""
        return next((owner for owner in self.owners if owner.id == owner_id), None)


Row = TypeVar("Row", Ticket, Owner, Mail)
Record = TypeVar("Record", Ticket, Owner, Mail, LoggedCall, Clock)


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
    """The state as JSON: tables keyed by row id, the call log as a list, and the clock."""
    return {
        "tickets": {row.id: _columns(row) for row in state.tickets},
        "owners": {row.id: _columns(row) for row in state.owners},
        "outbox": {row.id: _columns(row) for row in state.outbox},
        "call_log": [_columns(entry) for entry in state.call_log],
        "clock": _columns(state.clock),
    }


def state_of(view: Any) -> DeskState:
    """The state whose view is `view`.

    Raises:
        BundleError: a table, a column or a value is missing, unknown or of the wrong form; the message names it.
        CanonicalError: a text holds NUL or a lone surrogate.
    """
    canonical_bytes(view)
    if not isinstance(view, Mapping) or set(view) != set(_TABLES):
        raise BundleError(f"a desk state has the parts {', '.join(_TABLES)}; seen {sorted(view) if isinstance(view, Mapping) else view!r}")
    if not isinstance(view["call_log"], list | tuple):
        raise BundleError(f"call_log must be a list; seen {view['call_log']!r}")
    state = DeskState(
        tickets=_table(Ticket, view["tickets"], "tickets"),
        owners=_table(Owner, view["owners"], "owners"),
        outbox=_table(Mail, view["outbox"], "outbox"),
        call_log=tuple(_record(LoggedCall, entry, f"call_log[{index}]") for index, entry in enumerate(view["call_log"])),
        clock=_record(Clock, view["clock"], "clock"),
    )
    for ticket in state.tickets:
        if ticket.priority not in PRIORITIES or ticket.status not in STATUSES:
            raise BundleError(
                f"tickets.{ticket.id} has priority {ticket.priority!r} and status {ticket.status!r};"
                f" allowed: {', '.join(PRIORITIES)} and {', '.join(STATUSES)}"
            )
        if state.owner(ticket.owner_id) is None:
            raise BundleError(f"tickets.{ticket.id} names owner {ticket.owner_id!r}; there are {[owner.id for owner in state.owners]}")
    if state.clock.now < state.clock.started_at:
        raise BundleError(f"clock.now {state.clock.now} is before clock.started_at {state.clock.started_at}")
    return state


def material_of(view: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a view on which two end states are compared.

    Left out: the call log, the clock, mail ids, subjects, bodies and sending times. A reminder time between the request and now is written
    as `during the rollout`, since how many calls came before it does not matter; any other time is kept. Mails are counted by ticket and
    address, the address without outer spaces and in lower case.
    """
    clock = view["clock"]
    tickets = {}
    for ticket_id, row in view["tickets"].items():
        reminded = row["last_reminded_at"]
        fresh = reminded is not None and clock["started_at"] <= reminded <= clock["now"]
        tickets[ticket_id] = {**row, "last_reminded_at": DURING_ROLLOUT if fresh else reminded}
    mails: dict[str, Counter[str]] = {}
    for mail in view["outbox"].values():
        mails.setdefault(mail["ticket_id"], Counter())[mail["to"].strip().casefold()] += 1
    return {
        "tickets": tickets,
        "owners": {owner_id: dict(row) for owner_id, row in view["owners"].items()},
        "outbox": {ticket_id: dict(count) for ticket_id, count in mails.items()},
    }


def _columns(row: Ticket | Owner | Mail | LoggedCall | Clock) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name != "id"}


def _table(kind: type[Row], table: Any, name: str) -> tuple[Row, ...]:
    if not isinstance(table, Mapping):
        raise BundleError(f"{name} must be an object keyed by id; seen {table!r}")
    return tuple(_record(kind, table[row_id], f"{name}.{row_id}", id=row_id) for row_id in sorted(table))


def _record(kind: type[Record], row: Any, place: str, **key: str) -> Record:
    if not isinstance(row, Mapping):
        raise BundleError(f"{place} must be an object; seen {row!r}")
    columns = [field.name for field in fields(kind) if field.name not in key]
    if set(row) != set(columns):
        raise BundleError(f"{place} has the columns {sorted(row)}; allowed: {sorted(columns)}")
    for column, value in row.items():
        if value is None and column in _NULLABLE:
            continue
        if not isinstance(value, str):
            raise BundleError(f"{place}.{column} is {value!r}; allowed: text{' or null' if column in _NULLABLE else ''}")
        if column in _TIMES:
            try:
                parse_time(value)
            except ValueError as error:
                raise BundleError(f"{place}.{column}: {error}") from error
    return kind(**key, **row)
