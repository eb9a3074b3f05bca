"""The rule language of the ticket desk: conditions, exceptions, steps, tiers and limits as frozen values, and their JSON form. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from ledger.canonical import canonical_bytes, digest
from ledger.errors import BundleError
from training.worlds.ticket_desk.state import PRIORITIES, STATUSES

BOUNDS = ("over", "at_least", "under", "at_most")
UNITS = ("elapsed", "calendar", "business")
ZONES = ("desk", "owner")
CLOCKS = ("opened", "assigned")
CONTACTS = ("owner", "manager", "lead")
ORDERS = ("oldest", "newest", "most_urgent")
_CONSTANT = {"constant": True}


def _constant(allowed: tuple[str, ...] | type) -> Any:
    """A field that is a constant of a rule and no part of its family; `allowed` are the values or the type that it may have."""
    return field(metadata={**_CONSTANT, "allowed": allowed})


def _choice(allowed: tuple[str, ...]) -> Any:
    return field(metadata={"allowed": allowed})


@dataclass(frozen=True)
class Priority:
    """The ticket has one of these priorities."""

    values: tuple[str, ...] = _constant(PRIORITIES)


@dataclass(frozen=True)
class Status:
    """The ticket has one of these statuses."""

    values: tuple[str, ...] = _constant(STATUSES)


@dataclass(frozen=True)
class Tagged:
    """The ticket carries the tag."""

    tag: str = _constant(str)


@dataclass(frozen=True)
class Team:
    """The ticket's owner is in the team."""

    team: str = _constant(str)


@dataclass(frozen=True)
class Away:
    """The ticket's owner is away."""


@dataclass(frozen=True)
class Reminded:
    """The ticket has a reminder time at all."""


@dataclass(frozen=True)
class Age:
    """The ticket's age, or the time with its present owner, against a limit in days.

    Attributes:
        clock: counted from `opened` or from when it was `assigned` (a ticket never handed on: since it was opened).
        unit: `elapsed` days of 24 hours; `calendar` days, the difference of the two dates; `business` days, the days after the first date
            up to today's that are neither on a weekend nor a holiday of the desk.
        zone: whose time zone makes the dates; it does not matter for elapsed days.
        bound: over and under leave the limit itself out, at_least and at_most take it in.
        limit: in days, a whole number.
    """

    clock: str = _choice(CLOCKS)
    unit: str = _choice(UNITS)
    zone: str = _choice(ZONES)
    bound: str = _choice(BOUNDS)
    limit: int = _constant(int)


@dataclass(frozen=True)
class MonthEnd:
    """The ticket was opened in an `earlier_month` than today's, or on the `last_day` of a month, by the dates of a time zone."""

    which: str = _choice(("earlier_month", "last_day"))
    zone: str = _choice(ZONES)


@dataclass(frozen=True)
class Load:
    """The ticket's owner has this many tickets with status open, counted at the request."""

    bound: str = _choice(("over", "at_least"))
    limit: int = _constant(int)


@dataclass(frozen=True)
class All:
    """Every condition holds."""

    of: "tuple[Condition, ...]"


@dataclass(frozen=True)
class AnyOf:
    """One or more of the conditions hold."""

    of: "tuple[Condition, ...]"


@dataclass(frozen=True)
class Not:
    """The condition does not hold."""

    of: "Condition"


Condition: TypeAlias = Priority | Status | Tagged | Team | Away | Reminded | Age | MonthEnd | Load | All | AnyOf | Not


@dataclass(frozen=True)
class Mail:
    """One mail about the ticket to its owner, that owner's manager, or the desk's lead."""

    to: str = _choice(CONTACTS)


@dataclass(frozen=True)
class SetReminded:
    """Write the time of the reminder to last_reminded_at."""


@dataclass(frozen=True)
class SetStatus:
    """Set the status."""

    value: str = _constant(STATUSES)


@dataclass(frozen=True)
class SetPriority:
    """Set the priority."""

    value: str = _constant(PRIORITIES)


@dataclass(frozen=True)
class HandTo:
    """Make the owner's manager or the desk's lead the ticket's owner; later steps see the new owner."""

    to: str = _choice(CONTACTS[1:])


@dataclass(frozen=True)
class AddTag:
    """Add a tag to those that the ticket has."""

    tag: str = _constant(str)


@dataclass(frozen=True)
class SetNote:
    """Replace the note by this text."""

    text: str = _constant(str)


Step: TypeAlias = Mail | SetReminded | SetStatus | SetPriority | HandTo | AddTag | SetNote


@dataclass(frozen=True)
class Cooldown:
    """Leave out tickets reminded under (or at most) so many hours before the request."""

    bound: str = _choice(("under", "at_most"))
    hours: int = _constant(int)


@dataclass(frozen=True)
class Tier:
    """For due tickets of which `when` holds, these steps instead of the rule's own; the last tier that fits counts."""

    when: Condition
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Cap:
    """At most so many tickets of one owner: the oldest, the newest, or the most urgent (the older first among equals)."""

    order: str = _choice(ORDERS)
    count: int = _constant(int)


@dataclass(frozen=True)
class Rule:
    """What is to be done about which tickets.

    Attributes:
        when: which tickets the rule names.
        unless: tickets left out of them, or None.
        cooldown: tickets left out of them because they were reminded lately, or None.
        steps: what to do with a due ticket, in this order.
        tiers: what to do instead with some of them.
        cap: a limit for each owner, or None.
        digest: one mail a recipient about all tickets, instead of one a ticket.
    """

    when: Condition
    unless: Condition | None
    cooldown: Cooldown | None
    steps: tuple[Step, ...]
    tiers: tuple[Tier, ...]
    cap: Cap | None
    digest: bool


_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Priority, Status, Tagged, Team, Away, Reminded, Age, MonthEnd, Load, All, AnyOf, Not, Mail, SetReminded, SetStatus, SetPriority,
        HandTo, AddTag, SetNote, Cooldown, Tier, Cap, Rule,
    )
}  # fmt: skip
_STEPS = (Mail, SetReminded, SetStatus, SetPriority, HandTo, AddTag, SetNote)
_CONDITIONS = (Priority, Status, Tagged, Team, Away, Reminded, Age, MonthEnd, Load, All, AnyOf, Not)
_PARTS: dict[tuple[type, str], tuple[type, ...]] = {
    (All, "of"): _CONDITIONS, (AnyOf, "of"): _CONDITIONS, (Not, "of"): _CONDITIONS, (Tier, "when"): _CONDITIONS, (Tier, "steps"): _STEPS,
    (Rule, "when"): _CONDITIONS, (Rule, "unless"): (*_CONDITIONS, type(None)), (Rule, "cooldown"): (Cooldown, type(None)),
    (Rule, "steps"): _STEPS, (Rule, "tiers"): (Tier,), (Rule, "cap"): (Cap, type(None)), (Rule, "digest"): (bool,),
}  # fmt: skip
_LISTS = {(All, "of"), (AnyOf, "of"), (Tier, "steps"), (Rule, "steps"), (Rule, "tiers"), (Priority, "values"), (Status, "values")}


def rule_json(rule: Rule) -> dict[str, Any]:
    """The rule as JSON: every node an object with its kind and its fields."""
    written: dict[str, Any] = _written(rule, lambda node, name, value: value)
    return written


def rule_of(value: Any) -> Rule:
    """The rule that `value` writes down.

    Raises:
        BundleError: a kind, field or value is missing, unknown or of the wrong form; the message names place, value and what is allowed.
    """
    rule = _read(value, "rule")
    if not isinstance(rule, Rule):
        raise BundleError(f"rule is of kind {type(rule).__name__}; allowed: Rule")
    return rule


def shape(rule: Rule) -> dict[str, Any]:
    """The rule tree without its constants: each is a hole that names kind and field, and conditions that commute are sorted."""

    def hole(node: Any, name: str, value: Any) -> Any:
        return {"hole": f"{type(node).__name__}.{name}"} if is_constant(node, name) else value

    return {key: _sorted(value) for key, value in _written(rule, hole).items()}


def family_id(rule: Rule) -> str:
    """The first 16 hex digits of the SHA-256 of the rule's shape."""
    return digest(shape(rule))[:16]


def is_constant(node: Any, name: str) -> bool:
    """Whether the field is a constant of the rule, and so no part of its family."""
    return name in _constants(node.__class__)


@cache
def _constants(kind: Any) -> frozenset[str]:
    return frozenset(item.name for item in fields(kind) if "constant" in item.metadata)


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """Names of the fields of a kind of node; None for a kind of leaf."""
    return tuple(item.name for item in fields(kind)) if is_dataclass(kind) else None


def nodes(value: Any) -> Iterator[Any]:
    """Every node of a rule or of a part of it, parents first, in the order of their fields."""
    if isinstance(value, tuple):
        for item in value:
            yield from nodes(item)
    elif (names := _names(value.__class__)) is not None:
        yield value
        for name in names:
            yield from nodes(getattr(value, name))


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with every node replaced by `change(node)`, children first."""
    if isinstance(value, tuple):
        return tuple(rebuilt(item, change) for item in value)
    if (names := _names(value.__class__)) is None:
        return value
    return change(type(value)(**{name: rebuilt(getattr(value, name), change) for name in names}))


def variants(value: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    """The trees that differ from `value` in one node, which is replaced by what `change` gives for it unless that is None."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from ((*value[:index], other, *value[index + 1 :]) for other in variants(item, change))
    elif (names := _names(value.__class__)) is not None:
        if (other := change(value)) is not None:
            yield other
        for name in names:
            yield from (replace(value, **{name: other}) for other in variants(getattr(value, name), change))


def _written(value: Any, leaf: Callable[[Any, str, Any], Any]) -> Any:
    if isinstance(value, tuple):
        return [_written(item, leaf) for item in value]
    if (names := _names(value.__class__)) is None:
        return value
    parts = {name: _written(leaf(value, name, getattr(value, name)), leaf) for name in names}
    return {"kind": type(value).__name__, **parts}


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    parts = {key: _sorted(item) for key, item in value.items()}
    return {**parts, "of": sorted(parts["of"], key=canonical_bytes)} if value.get("kind") in ("All", "AnyOf") else parts


def _read(value: Any, place: str) -> Any:
    if not isinstance(value, Mapping):
        raise BundleError(f"{place} is {value!r}; allowed: an object with a kind")
    kind = _KINDS.get(str(value.get("kind")))
    if kind is None:
        raise BundleError(f"{place}.kind is {value.get('kind')!r}; allowed: {', '.join(_KINDS)}")
    names = [item.name for item in fields(kind)]
    if set(value) != {"kind", *names}:
        raise BundleError(f"{place} has the fields {sorted(map(str, value))}; allowed: {sorted(['kind', *names])}")
    return kind(**{item.name: _value(kind, item.name, item.metadata.get("allowed"), value[item.name], place) for item in fields(kind)})


def _value(kind: type, name: str, allowed: Any, seen: Any, place: str) -> Any:
    place = f"{place}.{name}"
    if (kind, name) in _LISTS:
        if not isinstance(seen, list | tuple) or not (seen or name == "tiers"):
            raise BundleError(f"{place} is {seen!r}; allowed: a list{'' if name == 'tiers' else ' that is not empty'}")
        return tuple(_item(kind, name, allowed, item, f"{place}[{index}]") for index, item in enumerate(seen))
    return _item(kind, name, allowed, seen, place)


def _item(kind: type, name: str, allowed: Any, seen: Any, place: str) -> Any:
    if (parts := _PARTS.get((kind, name))) is not None:
        value = seen if seen is None or isinstance(seen, bool) else _read(seen, place)
        if not isinstance(value, parts):
            raise BundleError(f"{place} is {type(value).__name__}; allowed: {', '.join(part.__name__ for part in parts)}")
        return value
    if isinstance(allowed, tuple):
        if seen not in allowed:
            raise BundleError(f"{place} is {seen!r}; allowed: {', '.join(allowed)}")
    elif not isinstance(seen, allowed) or isinstance(seen, bool) or (allowed is int and not 0 < seen <= 36500) or seen == "":
        raise BundleError(f"{place} is {seen!r}; allowed: {'a whole number from 1 to 36500' if allowed is int else 'text'}")
    return seen
