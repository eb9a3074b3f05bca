"""What a request may leave open: a second reading that only the user can settle, or a constant that stands elsewhere. Pure."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from training.worlds.ticket_desk.rules import Age, Cooldown, Mail, MonthEnd, Rule, nodes, rebuilt

_FLIPPED = {"over": "at_least", "at_least": "over", "under": "at_most", "at_most": "under"}
_COUNTS = {
    True: "A ticket that is exactly at the limit counts too.",
    False: "A ticket that is exactly at the limit does not count.",
}
_ZONES = {"desk": "Use the dates of the desk's time zone.", "owner": "Use the dates of the time zone of the ticket's owner."}
_UNITS = {"calendar": "Count every calendar day.", "business": "Count business days only, so no weekends and no holidays of the desk."}
_CONTACTS = {"manager": "Write to the manager of the ticket's owner.", "lead": "Write to the lead of the desk."}


@dataclass(frozen=True)
class OpenPoint:
    """A point on which a request has two readings.

    Attributes:
        topic: `limit`, `zone`, `unit` or `contact`.
        about: words of a question about it.
        question: how a policy may ask.
        node: the part of the rule that the request blurs.
        reply, other: the user's answer for the true reading and for the other one.
        other_rule: the other reading.
    """

    topic: str
    about: tuple[str, ...]
    question: str
    node: Any
    reply: str
    other: str
    other_rule: Rule


@dataclass(frozen=True)
class Elsewhere:
    """A constant that the request leaves out.

    Attributes:
        way: `earlier` in the conversation, in a standing `note` of the desk, or as `last_week` in the desk's log.
        node: the condition or cool-down whose limit it is.
        stale: the rule with the number that a hasty reader takes from the wrong place.
        stale_number: that number.
    """

    way: str
    node: Any
    stale: Rule
    stale_number: int


def open_points(rule: Rule) -> list[OpenPoint]:
    """The points that a request for the rule can leave open, at most one of each topic."""
    found: list[OpenPoint] = []
    ages = [node for node in nodes(rule.when) if isinstance(node, Age)]
    for age in ages[:1]:
        inclusive = age.bound in ("at_least", "at_most")
        found.append(_point(rule, "limit", age, replace(age, bound=_FLIPPED[age.bound]), (_COUNTS[inclusive], _COUNTS[not inclusive])))
        if age.unit != "elapsed":
            unit = "business" if age.unit == "calendar" else "calendar"
            found.append(_point(rule, "unit", age, replace(age, unit=unit), (_UNITS[age.unit], _UNITS[unit])))
    for dated in [node for node in nodes(rule.when) if isinstance(node, MonthEnd) or (isinstance(node, Age) and node.unit != "elapsed")][
        :1
    ]:
        zone = "owner" if dated.zone == "desk" else "desk"
        found.append(_point(rule, "zone", dated, replace(dated, zone=zone), (_ZONES[dated.zone], _ZONES[zone])))
    contacts = {node.to for node in nodes(rule) if isinstance(node, Mail)} - {"owner"}
    if len(contacts) == 1:
        to = contacts.pop()
        other = "lead" if to == "manager" else "manager"
        found.append(_point(rule, "contact", Mail(to), Mail(other), (_CONTACTS[to], _CONTACTS[other])))
    return found


def elsewhere(rule: Rule, rng: Random) -> Elsewhere | None:
    """A constant of the rule to be left out of the request, or None when it has none that can be."""
    options = [node for node in (*nodes(rule.when), rule.cooldown) if isinstance(node, Age | Cooldown)]
    if not options:
        return None
    node = rng.choice(options)
    number = number_of(node)
    stale = number + rng.choice((2, 3)) if isinstance(node, Age) else {12: 24, 24: 48, 36: 12, 48: 24}.get(number, number * 2)
    other = replace(node, limit=stale) if isinstance(node, Age) else replace(node, hours=stale)
    return Elsewhere(rng.choice(("earlier", "note", "last_week")), node, _with(rule, node, other), stale)


def number_of(node: Any) -> int:
    """The limit of an age or a cool-down."""
    return int(node.limit if isinstance(node, Age) else node.hours)


def _point(rule: Rule, topic: str, node: Any, other: Any, replies: tuple[str, str]) -> OpenPoint:
    about, question = _ASKED[topic]
    return OpenPoint(topic, about, question, node, replies[0], replies[1], _with(rule, node, other))


def _with(rule: Rule, node: Any, other: Any) -> Rule:
    changed = rebuilt(rule, lambda seen: other if seen == node else seen)
    assert isinstance(changed, Rule)
    return changed


_ASKED: dict[str, tuple[tuple[str, ...], str]] = {
    "limit": (("exactly", "inclusive", "count", "counts", "boundary", "include"), "Does a ticket exactly at the limit count?"),
    "zone": (("zone", "time zone", "timezone", "local", "whose dates"), "Which time zone makes the dates?"),
    "unit": (("business", "weekend", "weekends", "working", "calendar"), "Do you mean business days or calendar days?"),
    "contact": (("escalate", "escalation", "manager", "lead", "whom", "who"), "Whom should I write to, the manager or the lead?"),
}
