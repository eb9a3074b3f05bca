"""What a rule means on a state: which tickets are due, what is to be done about each, and why the others are not. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ledger.errors import BundleError
from training.worlds.ticket_desk.days import business_days, local_date
from training.worlds.ticket_desk.rules import (
    AddTag,
    Age,
    All,
    AnyOf,
    Away,
    Cap,
    Condition,
    HandTo,
    Load,
    Mail,
    MonthEnd,
    Not,
    Priority,
    Reminded,
    Rule,
    SetNote,
    SetPriority,
    SetReminded,
    SetStatus,
    Status,
    Step,
    Tagged,
    Team,
)
from training.worlds.ticket_desk.state import DURING_ROLLOUT, DeskState, Owner, Profile, Ticket, parse_time

Act = tuple[str, str, Any]
"""`("mail", "to", address)` or `("set", column, value)`."""


@dataclass(frozen=True)
class Facts:
    """What conditions look at beside the ticket itself.

    Attributes:
        start: the time of the request, from which everything is counted back.
        desk: the desk's profile.
        owners: people by id.
        loads: number of open tickets by owner id.
    """

    start: datetime
    desk: Profile
    owners: Mapping[str, Owner]
    loads: Mapping[str, int]


@dataclass(frozen=True)
class Duty:
    """What is to be done about one due ticket, in order; `tier` is the number of the tier that it falls in, -1 for the rule's own steps."""

    ticket_id: str
    tier: int
    acts: tuple[Act, ...]

    @property
    def mails(self) -> frozenset[str]:
        """Addresses to be mailed about the ticket."""
        return frozenset(value for kind, _, value in self.acts if kind == "mail")

    @property
    def fields(self) -> dict[str, Any]:
        """Columns with the values that they must have in the end."""
        return {column: value for kind, column, value in self.acts if kind == "set"}


def facts_of(state: DeskState) -> Facts:
    """What conditions look at in the state."""
    loads = Counter(ticket.owner_id for ticket in state.tickets if ticket.status == "open")
    return Facts(parse_time(state.clock.started_at), state.desk or Profile(), {owner.id: owner for owner in state.owners}, loads)


def plan(rule: Rule, state: DeskState) -> tuple[Duty, ...]:
    """What the rule asks for, one duty for each due ticket, by ticket id."""
    facts = facts_of(state)
    due = {ticket: tier for ticket in state.tickets if (tier := outcome(rule, ticket, facts)) is not None}
    kept = list(due) if rule.cap is None else capped(list(due), rule.cap)
    return tuple(Duty(ticket.id, due[ticket], acts(steps_of(rule, due[ticket]), ticket, facts)) for ticket in kept)


def steps_of(rule: Rule, tier: int) -> tuple[Step, ...]:
    """The steps of a tier, or the rule's own for -1."""
    return rule.steps if tier < 0 else rule.tiers[tier].steps


def outcome(rule: Rule, ticket: Ticket, facts: Facts) -> int | None:
    """The tier of a due ticket, -1 for the rule's own steps, None for a ticket that is not due; the cap aside."""
    if not holds(rule.when, ticket, facts) or cooling(rule, ticket, facts) or (rule.unless and holds(rule.unless, ticket, facts)):
        return None
    return max((number for number, tier in enumerate(rule.tiers) if holds(tier.when, ticket, facts)), default=-1)


def reasons(rule: Rule, state: DeskState, ticket: Ticket) -> frozenset[str]:
    """Why a ticket is not due: any of matching, exceptions, cooldown and limit; none for one that is."""
    facts = facts_of(state)
    found = {
        "matching": not holds(rule.when, ticket, facts),
        "exceptions": rule.unless is not None and holds(rule.unless, ticket, facts),
        "cooldown": cooling(rule, ticket, facts),
    }
    if any(found.values()):
        return frozenset(name for name, applies in found.items() if applies)
    return frozenset() if any(duty.ticket_id == ticket.id for duty in plan(rule, state)) else frozenset({"limit"})


def cooling(rule: Rule, ticket: Ticket, facts: Facts) -> bool:
    """Whether the rule's cool-down leaves the ticket out."""
    if rule.cooldown is None or ticket.last_reminded_at is None:
        return False
    rest = facts.start - parse_time(ticket.last_reminded_at)
    return _within(rest, rule.cooldown.bound, timedelta(hours=rule.cooldown.hours))


def holds(condition: Condition, ticket: Ticket, facts: Facts) -> bool:
    """Whether the condition holds for the ticket."""
    match condition:
        case Priority(values):
            return ticket.priority in values
        case Status(values):
            return ticket.status in values
        case Tagged(tag):
            return tag in ticket.tags
        case Team(team):
            return facts.owners[ticket.owner_id].team == team
        case Away():
            return facts.owners[ticket.owner_id].away
        case Reminded():
            return ticket.last_reminded_at is not None
        case Age():
            return _aged(condition, ticket, facts)
        case MonthEnd(which, zone):
            opened, today = (local_date(moment, _zone(zone, ticket, facts)) for moment in (parse_time(ticket.opened_at), facts.start))
            if which == "earlier_month":
                return (opened.year, opened.month) < (today.year, today.month)
            return (opened + timedelta(days=1)).day == 1
        case Load(bound, limit):
            return _within(facts.loads.get(ticket.owner_id, 0), bound, limit)
        case All(of):
            return all(holds(item, ticket, facts) for item in of)
        case AnyOf(of):
            return any(holds(item, ticket, facts) for item in of)
        case Not(of):
            return not holds(of, ticket, facts)


def _aged(age: Age, ticket: Ticket, facts: Facts) -> bool:
    since = parse_time(ticket.assigned_at if age.clock == "assigned" and ticket.assigned_at is not None else ticket.opened_at)
    if age.unit == "elapsed":
        return _within(facts.start - since, age.bound, timedelta(days=age.limit))
    first, today = (local_date(moment, _zone(age.zone, ticket, facts)) for moment in (since, facts.start))
    days = (today - first).days if age.unit == "calendar" else business_days(first, today, facts.desk.holidays)
    return _within(days, age.bound, age.limit)


def _within(seen: Any, bound: str, limit: Any) -> bool:
    match bound:
        case "over":
            return bool(seen > limit)
        case "at_least":
            return bool(seen >= limit)
        case "under":
            return bool(seen < limit)
        case "at_most":
            return bool(seen <= limit)
    raise BundleError(f"bound is {bound!r}; allowed: over, at_least, under, at_most")


def _zone(zone: str, ticket: Ticket, facts: Facts) -> str:
    return facts.desk.time_zone if zone == "desk" else facts.owners[ticket.owner_id].time_zone


def capped(due: list[Ticket], cap: Cap) -> list[Ticket]:
    """The tickets of one state that a cap leaves, by id."""
    by_owner: defaultdict[str, list[Ticket]] = defaultdict(list)
    for ticket in sorted(due, key=lambda row: (row.opened_at, row.id), reverse=cap.order == "newest"):
        by_owner[ticket.owner_id].append(ticket)
    if cap.order == "most_urgent":
        by_owner.update({owner: sorted(rows, key=lambda row: row.priority) for owner, rows in by_owner.items()})
    return sorted((row for rows in by_owner.values() for row in rows[: cap.count]), key=lambda row: row.id)


def acts(steps: tuple[Step, ...], ticket: Ticket, facts: Facts) -> tuple[Act, ...]:
    """What the steps ask for about a ticket, in order."""
    done: list[Act] = []
    owner_id = ticket.owner_id
    for step in steps:
        done.append(_act(step, ticket, owner_id, facts))
        owner_id = done[-1][2] if done[-1][1] == "owner_id" else owner_id
    return tuple(done)


def _act(step: Step, ticket: Ticket, owner_id: str, facts: Facts) -> Act:
    match step:
        case Mail(to):
            return "mail", "to", facts.owners[_contact(to, owner_id, facts)].email.casefold()
        case SetReminded():
            return "set", "last_reminded_at", DURING_ROLLOUT
        case SetStatus(value):
            return "set", "status", value
        case SetPriority(value):
            return "set", "priority", value
        case HandTo(to):
            return "set", "owner_id", _contact(to, owner_id, facts)
        case AddTag(tag):
            return "set", "tags", tuple(sorted({*ticket.tags, tag}))
        case SetNote(text):
            return "set", "note", text


def _contact(to: str, owner_id: str, facts: Facts) -> str:
    """The id of the owner, of the owner's manager, or of the lead; the lead also stands in for a manager whom nobody named."""
    if to == "owner":
        return owner_id
    manager = facts.owners[owner_id].manager_id if to == "manager" else None
    if manager is None and facts.desk.lead_id is None:
        raise BundleError(f"the rule mails or hands to the {to} of {owner_id}, and the desk names neither that one nor a lead")
    return str(manager or facts.desk.lead_id)
