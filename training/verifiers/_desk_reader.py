"""A desk rule read from its JSON against the first state, in three values: true, false, or None where a row cannot be read."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from ledger.errors import VerifierFailed

Row = Mapping[str, Any]
Truth = bool | None
_DAY, _HOUR = 86400, 3600
_URGENCY = {"P1": 1, "P2": 2, "P3": 3, "P4": 4}


def moment(value: Any) -> datetime | None:
    """The UTC moment that `value` names, or None when it is not a time of the form 2026-03-02T09:00:00Z."""
    return _moment(value) if isinstance(value, str) else None


@lru_cache(maxsize=16384)
def _moment(value: str) -> datetime | None:
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", value):
        return None
    try:
        return datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def address(value: Any) -> str | None:
    """An e-mail address without outer spaces and in lower case, or None when `value` is not text."""
    return value.strip().casefold() if isinstance(value, str) else None


def every(truths: Iterable[Truth]) -> Truth:
    """Whether all are true: one false decides, else one unknown leaves it open."""
    seen = list(truths)
    return False if False in seen else None if None in seen else True


def some(truths: Iterable[Truth]) -> Truth:
    """Whether one is true: one true decides, else one unknown leaves it open."""
    seen = list(truths)
    return True if True in seen else None if None in seen else False


def opposite(truth: Truth) -> Truth:
    """Not, which leaves unknown unknown."""
    return None if truth is None else not truth


@dataclass(frozen=True)
class Reader:
    """Answers questions about the tickets of a first state under one rule.

    Attributes:
        rule: the rule's JSON.
        s0: the desk's view at the request.
        start: the time of the request.
    """

    rule: Row
    s0: Row
    start: datetime

    def named(self, ticket: Row) -> Truth:
        """Whether the rule's `when` names the ticket."""
        return self._holds(self.rule["when"], ticket)

    def excepted(self, ticket: Row) -> Truth:
        """Whether its `unless` leaves the ticket out."""
        return False if self.rule["unless"] is None else self._holds(self.rule["unless"], ticket)

    def cooling(self, ticket: Row) -> Truth:
        """Whether its cool-down leaves the ticket out."""
        rest, last = self.rule["cooldown"], ticket.get("last_reminded_at")
        if rest is None or last is None:
            return False
        since = moment(last)
        return None if since is None else _compare((self.start - since).total_seconds(), rest["bound"], rest["hours"] * _HOUR)

    def due(self) -> dict[str, Truth]:
        """For every ticket whether something is to be done about it, the cap included."""
        before_cap = {
            ticket_id: every((self.named(row), opposite(self.excepted(row)), opposite(self.cooling(row))))
            for ticket_id, row in self.s0["tickets"].items()
        }
        return before_cap if self.rule["cap"] is None else self._under_cap(before_cap, self.rule["cap"])

    def steps(self, ticket: Row) -> Sequence[Row] | None:
        """The steps for a due ticket: those of the last tier that fits, else the rule's own; None when a tier cannot be decided."""
        for tier in reversed(self.rule["tiers"]):
            fits = self._holds(tier["when"], ticket)
            if fits is None:
                return None
            if fits:
                found: Sequence[Row] = tier["steps"]
                return found
        own: Sequence[Row] = self.rule["steps"]
        return own

    def every_step(self) -> list[Row]:
        """All steps that the rule has, those of its tiers included."""
        return [step for steps in self.step_lists() for step in steps]

    def step_lists(self) -> list[Sequence[Row]]:
        """The rule's own steps and those of each tier."""
        return [self.rule["steps"], *(tier["steps"] for tier in self.rule["tiers"])]

    def person(self, owner_id: Any) -> Row:
        """The person with that id at the request.

        Raises:
            VerifierFailed: there is none.
        """
        row = self.s0["owners"].get(owner_id)
        if row is None:
            raise VerifierFailed(f"the first state names the person {owner_id!r}, whom it does not have")
        found: Row = row
        return found

    def contact(self, to: str, owner_id: Any) -> Any:
        """The id of the owner, of the owner's manager, or of the desk's lead, who stands in for a manager that nobody named."""
        if to == "owner":
            return owner_id
        manager = self.person(owner_id).get("manager_id") if to == "manager" else None
        return self.s0.get("desk", {}).get("lead_id") if manager is None else manager

    def _holds(self, node: Row, ticket: Row) -> Truth:
        kind = node["kind"]
        if kind == "All":
            return every(self._holds(item, ticket) for item in node["of"])
        if kind == "AnyOf":
            return some(self._holds(item, ticket) for item in node["of"])
        if kind == "Not":
            return opposite(self._holds(node["of"], ticket))
        if kind in ("Priority", "Status"):
            return ticket.get(kind.lower()) in node["values"]
        if kind == "Tagged":
            return node["tag"] in ticket.get("tags", ())
        if kind == "Reminded":
            return ticket.get("last_reminded_at") is not None
        if kind == "Age":
            return self._age(node, ticket)
        if kind == "MonthEnd":
            return self._month(node, ticket)
        owner = self.person(ticket.get("owner_id"))
        if kind == "Team":
            return bool(owner.get("team", "") == node["team"])
        if kind == "Away":
            return bool(owner.get("away", False))
        if kind == "Load":
            loads = Counter(row.get("owner_id") for row in self.s0["tickets"].values() if row.get("status") == "open")
            return _compare(loads[ticket.get("owner_id")], node["bound"], node["limit"])
        raise VerifierFailed(f"the rule holds a condition of kind {kind!r}, which this verifier does not know")

    def _age(self, node: Row, ticket: Row) -> Truth:
        handed = ticket.get("assigned_at") if node["clock"] == "assigned" else None
        since = moment(ticket.get("opened_at") if handed is None else handed)
        if since is None:
            return None
        if node["unit"] == "elapsed":
            return _compare((self.start - since).total_seconds(), node["bound"], node["limit"] * _DAY)
        first, last = (at.astimezone(self._zone(node, ticket)).date().toordinal() for at in (since, self.start))
        days = last - first
        if node["unit"] == "business":
            # Ordinal 1 was a Monday, so multiples of seven are Sundays.
            free = {date.fromisoformat(day).toordinal() for day in self.s0.get("desk", {}).get("holidays", ())}
            days = len([day for day in range(first + 1, last + 1) if day % 7 not in (6, 0) and day not in free])
        return _compare(days, node["bound"], node["limit"])

    def _month(self, node: Row, ticket: Row) -> Truth:
        since = moment(ticket.get("opened_at"))
        if since is None:
            return None
        opened, today = (at.astimezone(self._zone(node, ticket)).date() for at in (since, self.start))
        if node["which"] == "earlier_month":
            return opened < today.replace(day=1)
        return date.fromordinal(opened.toordinal() + 1).month != opened.month

    def _zone(self, node: Row, ticket: Row) -> ZoneInfo:
        holder = self.s0.get("desk", {}) if node["zone"] == "desk" else self.person(ticket.get("owner_id"))
        return ZoneInfo(holder.get("time_zone", "UTC"))

    def _under_cap(self, due: Mapping[str, Truth], cap: Row) -> dict[str, Truth]:
        """A due ticket stays when fewer than the cap's number of its owner's due tickets come before it."""
        rows = self.s0["tickets"]

        def ahead(other: str, ticket_id: str) -> bool:
            one, two = ((rows[name]["opened_at"], name) for name in (other, ticket_id))
            if cap["order"] == "most_urgent":
                return bool((_URGENCY[rows[other]["priority"]], *one) < (_URGENCY[rows[ticket_id]["priority"]], *two))
            return bool(one > two if cap["order"] == "newest" else one < two)

        kept: dict[str, Truth] = {}
        for ticket_id, truth in due.items():
            rivals = [name for name in due if name != ticket_id and rows[name]["owner_id"] == rows[ticket_id]["owner_id"]]
            sure = sum(due[name] is True and ahead(name, ticket_id) for name in rivals)
            maybe = sum(due[name] is None and ahead(name, ticket_id) for name in rivals)
            kept[ticket_id] = False if sure >= cap["count"] else None if truth is not False and sure + maybe >= cap["count"] else truth
        return kept


def _compare(seen: float, bound: str, limit: float) -> bool:
    if seen == limit:
        return bound in ("at_least", "at_most")
    return (seen > limit) == (bound in ("over", "at_least"))
