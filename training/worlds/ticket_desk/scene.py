"""What the rows of a generated state are made from: a time, people, and the values that matter to a rule. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from training.worlds.ticket_desk.days import local_date, midnight, turning_points
from training.worlds.ticket_desk.meaning import Facts
from training.worlds.ticket_desk.people import draw_owners
from training.worlds.ticket_desk.rules import AddTag, Age, Away, Cooldown, HandTo, Load, Mail, MonthEnd, Rule, Tagged, Team, nodes
from training.worlds.ticket_desk.state import PRIORITIES, STATUSES, Clock, DeskState, Profile, Ticket, format_time
from training.worlds.ticket_desk.state import Mail as Sent

NOTES = ("", "", "", "waiting for parts", "customer called", "see last week", "needs a part", "check the cable")
_UNITS = (timedelta(days=1), timedelta(hours=6))
_REACH = dict(zip(_UNITS, (20, 16), strict=True))


@dataclass(frozen=True)
class Scene:
    """What rows of a state are made from.

    Attributes:
        facts: time, people and profile, with the loads that owners are to have.
        values: values worth trying for each column: on the boundaries of the rule, beside them, and far from them.
    """

    facts: Facts
    values: dict[str, tuple[Any, ...]]


def scene_of(rule: Rule, rng: Random, *, pool: int, grain: timedelta, plain: bool = False, whole: bool = False) -> Scene:
    """A time, people and the values that matter to the rule.

    Args:
        rng: the only source of randomness.
        pool: number of the pool of names.
        grain: how far beside a boundary in elapsed time a row lies.
        plain: a desk without a profile.
        whole: all ages are whole numbers of days and all reminders of `_UNITS[1]` back, none more than `_REACH` of them, so that
            few numbers occur.
    """
    start = datetime(2026, 2, 2, tzinfo=UTC) + timedelta(days=rng.randrange(300), minutes=rng.randrange(1440))
    teams = sorted({node.team for node in nodes(rule) if isinstance(node, Team)})
    owners = draw_owners(rng, pool=pool, plain=plain, teams=teams[:3])
    workers = [owner for owner in owners if plain or owner.manager_id is not None]
    desk = Profile()
    if not plain:
        holiday = (start - timedelta(days=rng.randint(1, 9))).date().isoformat()
        desk = Profile(owners[-1].time_zone, owners[-1].id, (holiday,))
    zones = sorted({desk.time_zone, *(owner.time_zone for owner in workers)})
    tags = sorted({node.tag for node in nodes(rule) if isinstance(node, Tagged | AddTag)})
    assigned = any(isinstance(node, Age) and node.clock == "assigned" for node in nodes(rule))
    days, hours = _UNITS if whole else (None, None)
    values: dict[str, tuple[Any, ...]] = {
        "priority": PRIORITIES,
        "status": STATUSES,
        "owner_id": tuple(owner.id for owner in workers),
        "tags": ((), *((tag,) for tag in tags), *([tuple(tags[:2])] if len(tags) > 1 else [])),
        "opened_at": _times(_moments(rule, "opened", start, zones, desk), rng, start, grain, unit=days),
        "assigned_at": (None, *(_times(_moments(rule, "assigned", start, zones, desk), rng, start, grain) if assigned else ())),
        "last_reminded_at": _reminders(rule, start, rng, hours or min(grain, timedelta(hours=1)), unit=hours),
    }
    loads = _loads(rule, [owner.id for owner in workers], rng)
    return Scene(Facts(start, desk, {owner.id: owner for owner in owners}, loads), values)


def any_row(scene: Scene, rng: Random) -> Ticket:
    """A row with values that are worth trying, each drawn by itself; its id is empty."""
    drawn = {column: rng.choice(values) for column, values in scene.values.items()}
    return sound(Ticket(id="", note=rng.choice(NOTES), **drawn))


def sound(row: Ticket) -> Ticket:
    """The row with times that can be: nothing happened to it before it was opened."""
    assigned, reminded = (None if at is None or at <= row.opened_at else at for at in (row.assigned_at, row.last_reminded_at))
    return replace(row, assigned_at=assigned, last_reminded_at=reminded)


def state_from(scene: Scene, tickets: Sequence[Ticket]) -> DeskState:
    """The state with these rows and the mails of the reminders that they tell of; a plain scene gives a plain desk."""
    facts = scene.facts
    sent = sorted((row.last_reminded_at, row.id, facts.owners[row.owner_id].email) for row in tickets if row.last_reminded_at is not None)
    outbox = tuple(
        Sent(f"M{number:03d}", row_id, to, f"Reminder: {row_id}", f"Please look at {row_id}.", at)
        for number, (at, row_id, to) in enumerate(sent, start=1)
    )
    now = format_time(facts.start)
    return DeskState(
        tuple(sorted(tickets, key=lambda row: row.id)), tuple(sorted(facts.owners.values(), key=lambda row: row.id)), outbox, (),
        Clock(now, now), None if facts.desk == Profile() else facts.desk,
    )  # fmt: skip


def is_plain(rule: Rule) -> bool:
    """Whether a desk without profile, tags, teams and managers can hold all that the rule looks at."""
    for node in nodes(rule):
        far = isinstance(node, Mail) and node.to != "owner"
        dated = isinstance(node, Age) and (node.unit, node.clock) != ("elapsed", "opened")
        if far or dated or isinstance(node, Tagged | Team | Away | AddTag | HandTo | MonthEnd):
            return False
    return True


def _times(points: Sequence[datetime], rng: Random, start: datetime, grain: timedelta, *, unit: timedelta | None = None) -> tuple[str, ...]:
    """The points, a grain before and after each, and some moments that lie between and beyond them, a whole number of units back."""
    if unit is None:
        far = [start - timedelta(days=rng.randint(0, 40), minutes=rng.randrange(1440)) for _ in range(6)]
    else:
        far = [start - unit * rng.randint(1, _REACH[unit]) for _ in range(6)]
    moments = {*points, *(point + step for point in points for step in (-grain, grain)), *far}
    return tuple(format_time(moment) for moment in sorted(moments) if moment <= start)


def _moments(rule: Rule, clock: str, start: datetime, zones: Sequence[str], desk: Profile) -> list[datetime]:
    """The turning points of every condition on a clock."""
    points: list[datetime] = []
    for node in nodes(rule):
        if isinstance(node, Age) and clock in (node.clock, "opened"):
            for zone in zones if node.unit != "elapsed" else zones[:1]:
                points += turning_points(start, node.unit, node.limit, zone, desk.holidays)
        if isinstance(node, MonthEnd) and clock == "opened":
            for zone in zones:
                first = local_date(start, zone).replace(day=1)
                ends = (first, first - timedelta(days=1), (first - timedelta(days=1)).replace(day=1))
                points += [midnight(day, zone).astimezone(UTC) for day in ends]
    return points


def _reminders(rule: Rule, start: datetime, rng: Random, grain: timedelta, *, unit: timedelta | None) -> tuple[str | None, ...]:
    """Never, on either side of every cool-down and on it, and long ago."""
    points = [start - timedelta(hours=node.hours) for node in nodes(rule) if isinstance(node, Cooldown)]
    return (None, *_times(points, rng, start, grain, unit=unit))


def _loads(rule: Rule, workers: Sequence[str], rng: Random) -> dict[str, int]:
    """How many open tickets each owner is to have: on the limit of a condition that counts them, or beside it."""
    limits = [node.limit for node in nodes(rule) if isinstance(node, Load)]
    return {owner_id: rng.choice((limit - 1, limit, limit + 1)) for owner_id in workers for limit in limits[:1]}
