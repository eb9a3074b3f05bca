"""Families of rules: trees without their constants, sampled from a grammar, and kept only where their end states tell them apart. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from random import Random
from typing import Any

from ledger.errors import BundleError
from training.worlds.ticket_desk.levels import level_of
from training.worlds.ticket_desk.masks import Rows
from training.worlds.ticket_desk.meaning import Duty, acts, capped, facts_of, steps_of
from training.worlds.ticket_desk.mutants import mutants
from training.worlds.ticket_desk.rules import (
    UNITS,
    AddTag,
    Age,
    All,
    AnyOf,
    Away,
    Cap,
    Condition,
    Cooldown,
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
    Tier,
    family_id,
)
from training.worlds.ticket_desk.scene import any_row, scene_of, state_from
from training.worlds.ticket_desk.state import DeskState

PER_LEVEL = (30, 40, 60, 60, 70, 80)
"""How many families of each level are wanted; a level whose grammar is smaller has fewer."""
_ATTEMPTS = 20
_CROWD = 20
_OLD, _OLDER, _OLDEST, _FRESH = 7, 14, 21, 2
_STEPS: dict[int, tuple[tuple[Step, ...], ...]] = {
    0: ((Mail("owner"), SetReminded()), (Mail("owner"),)),
    2: (
        (Mail("owner"), SetReminded(), SetStatus("in_progress")), (Mail("owner"), AddTag("chased")), (SetPriority("P2"),),
        (SetStatus("closed"), SetNote("closed by the desk")), (Mail("owner"), SetNote("owner was asked"), SetReminded()),
        (SetPriority("P2"), AddTag("chased")), (Mail("owner"), SetReminded(), AddTag("chased"), SetPriority("P2")),
        (SetStatus("in_progress"),),
    ),
    4: (
        (Mail("manager"), SetReminded()), (Mail("lead"), AddTag("chased")), (Mail("owner"), Mail("manager"), SetReminded()),
        (Mail("owner"), HandTo("manager")), (HandTo("manager"), Mail("owner")), (Mail("owner"), HandTo("lead"), SetStatus("in_progress")),
        (HandTo("lead"), Mail("owner"), SetReminded()), (HandTo("manager"), SetNote("handed on")), (Mail("owner"), Mail("lead")),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A rule tree without its constants.

    Attributes:
        family_id: digest of the tree with its constants replaced by holes.
        level: the lowest level at which it appears.
        rule: the tree with sample constants, the same in every family, so that only the tree tells two of them apart.
    """

    family_id: str
    level: int
    rule: Rule


def families() -> tuple[Family, ...]:
    """All families, those of the lower levels first, the same on every machine; any two differ in their end states on some shared state."""
    return families_at(None)


def families_at(level: int | None) -> tuple[Family, ...]:
    """The families that may appear at a level, or all of them for None.

    Raises:
        BundleError: no such level.
    """
    if level is not None and level < 0:
        raise BundleError(f"level is {level}; allowed: 0 or more")
    top = len(PER_LEVEL) - 1 if level is None else min(level, len(PER_LEVEL) - 1)
    return tuple(_found(top).values())


@cache
def _found(top: int) -> dict[str, Family]:
    """The families up to a level by their signatures: a lower level waits for none above it, which take most of the time."""
    found = {} if top == 0 else dict(_found(top - 1))
    names = {family.family_id for family in found.values()}
    wanted = PER_LEVEL[top]
    rng = Random(f"ticket_desk/families/{top}")
    attempts = iter(range(_ATTEMPTS * wanted))
    while wanted and next(attempts, None) is not None:
        rule = _rule(rng, top)
        if level_of(rule) != top or (name := family_id(rule)) in names:
            continue
        if (told := signature(rule)) and told not in found and _every_part_counts(rule, told):
            names.add(name)
            found[told] = Family(name, top, rule)
            wanted -= 1
    return found


def signature(rule: Rule) -> str:
    """A digest of what changes on each of the shared states when the rule is followed; empty when nothing does on any of them.

    For each due ticket its mails and its columns count, and whether mails to one person are one.
    """
    crowds = _shared_rows()
    masks = crowds.outcomes(rule)
    if rule.cap is not None:
        masks = _capped(masks, rule.cap)
    ends: list[str] = []
    recipients: list[tuple[datetime, str]] = []
    for tier, mask in enumerate(masks, start=-1):
        for place in crowds.places(mask):
            end, mails = _end(steps_of(rule, tier), place)
            ends += [f"{place} {end}"] if end else []
            recipients += [(crowds.rows[place][1].start, mail) for mail in mails]
    if not ends:
        return ""
    together = rule.digest and len(set(recipients)) < len(recipients)
    return sha256("\n".join([*sorted(ends), str(together)]).encode()).hexdigest()


def _capped(masks: tuple[int, ...], cap: Cap) -> tuple[int, ...]:
    """The due rows that a cap leaves, state by state."""
    rows = _shared_rows().rows
    kept, due = 0, _shared_rows().places(sum(masks))
    for first in range(0, len(rows), _CROWD):
        places = [place for place in due if first <= place < first + _CROWD]
        left = capped([rows[place][0] for place in places], cap)
        kept |= sum(1 << place for place in places if rows[place][0] in left)
    return tuple(mask & kept for mask in masks)


@cache
def _end(steps: tuple[Step, ...], place: int) -> tuple[str, tuple[str, ...]]:
    """What the steps change about a row of the shared states, and whom they mail."""
    ticket, facts = _shared_rows().rows[place]
    duty = Duty(ticket.id, -1, acts(steps, ticket, facts))
    changed = {name: value for name, value in sorted(duty.fields.items()) if getattr(ticket, name) != value}
    mails = tuple(sorted(duty.mails))
    return f"{mails} {changed}" if mails or changed else "", mails


def _every_part_counts(rule: Rule, told: str) -> bool:
    """Whether each misreading leads to another end on some shared state, so that the rule says nothing in vain."""
    plainer = [replace(rule, steps=()), *([replace(rule, digest=False)] if rule.digest else [])]
    return all(signature(other) != told for other in [*plainer, *(other for name, other in mutants(rule) if name != "wrong_order")])


@cache
def _shared_rows() -> Rows:
    """The rows of all shared states, `_CROWD` of each."""
    return Rows([(ticket, facts) for state in shared_states() for facts in [facts_of(state)] for ticket in state.tickets])


@cache
def shared_states() -> tuple[DeskState, ...]:
    """The states on which families are compared: crowded, with many rows on the boundaries of the sample constants."""
    return tuple(_crowd(Random(f"ticket_desk/shared/{number}")) for number in range(12))


def _crowd(rng: Random) -> DeskState:
    every = Rule(
        All((
            Priority(("P1",)), Status(("open",)), Tagged("parts"), Tagged("hold"), Tagged("vip"), Tagged("chased"),
            *(Age("opened", unit, "desk", "over", limit) for unit in UNITS for limit in (_OLD, _OLDER, _OLDEST)),
            Age("assigned", "elapsed", "desk", "over", _OLD), Age("assigned", "calendar", "owner", "over", _FRESH), Team("Billing"),
            Team("Field"), Away(), MonthEnd("last_day", "owner"), MonthEnd("earlier_month", "desk"),
        )),
        None, Cooldown("under", 24), (Mail("manager"),), (), None, False,
    )  # fmt: skip
    scene = scene_of(every, rng, pool=0, grain=timedelta(minutes=1))
    tickets = []
    for number in range(_CROWD):
        row = any_row(scene, rng)
        usual: dict[str, Any] = {"priority": "P1", "status": "open", "tags": ()}
        kept = {column: value for column, value in usual.items() if rng.random() < 0.5}
        tickets.append(replace(row, id=f"T{100 + number}", **kept))
    return state_from(scene, tickets)


def _rule(rng: Random, level: int) -> Rule:
    """A rule of the grammar with sample constants, with the constructs that the level allows."""
    steps = [option for at, options in _STEPS.items() if at <= level for option in options]
    own = rng.choice(steps)
    age = _age(rng, level)
    tiers: list[Tier] = []
    for _ in range(rng.randint(0, 1 if level == 4 else 2) if level >= 4 else 0):
        tiers.append(Tier(_tier_condition(rng, age, len(tiers)), rng.choice([option for option in steps if option != own])))
    mails = any(isinstance(step, Mail) for option in (own, *(tier.steps for tier in tiers)) for step in option)
    return Rule(
        when=_when(rng, level, age),
        unless=_unless(rng, level) if level >= 1 and rng.random() < 0.6 else None,
        cooldown=Cooldown(rng.choice(("under", "at_most")), 24) if rng.random() < 0.5 else None,
        steps=own,
        tiers=tuple(tiers),
        cap=Cap(rng.choice(("oldest", "newest", "most_urgent")), 1) if level >= 5 and rng.random() < 0.4 else None,
        digest=level >= 5 and mails and rng.random() < 0.4,
    )


def _age(rng: Random, level: int) -> Condition:
    if level < 3:
        return Age(
            "opened", "elapsed", "desk", rng.choice(("over", "at_least") if level < 2 else ("over", "at_least", "over", "under")), _OLD
        )
    if rng.random() < 0.2:
        return MonthEnd(rng.choice(("earlier_month", "last_day")), rng.choice(("desk", "owner")))
    unit = rng.choice(("elapsed", "calendar", "business"))
    zone = "desk" if unit == "elapsed" else rng.choice(("desk", "owner"))
    return Age(
        rng.choice(("opened", "opened", "assigned")), unit, zone, rng.choice(("over", "at_least", "over", "at_least", "at_most")), _OLD
    )


def _when(rng: Random, level: int, age: Condition) -> Condition:
    parts: list[Condition] = [Priority(("P1",))] if rng.random() < 0.8 else []
    if rng.random() < 0.7:
        parts.append(Status(("open",)) if rng.random() < 0.7 else Not(Status(("closed",))))
    parts.append(age)
    further: list[Condition] = [Tagged("parts"), Team("Billing"), Away(), Reminded()]
    further += [Not(item) for item in further]
    if level >= 3:
        further += [
            Load("at_least", 4), Load("over", 4), AnyOf((Tagged("parts"), Away())), AnyOf((Team("Billing"), Not(Reminded()))),
            AnyOf((Tagged("parts"), Load("at_least", 4))),
        ]  # fmt: skip
    if level >= 2:
        parts += rng.sample(further, rng.randint(0, 1 if level < 5 else 2))
    return All(tuple(parts)) if len(parts) > 1 else parts[0]


def _unless(rng: Random, level: int) -> Condition:
    options: list[Condition] = [Tagged("hold"), Away()]
    if level >= 2:
        options += [Team("Field"), Not(Reminded()), All((Tagged("hold"), Away()))]
    if level >= 3:
        options += [
            AnyOf((Tagged("hold"), Away())), Age("assigned", "elapsed", "desk", "under", _FRESH), AnyOf((Team("Field"), Tagged("hold"))),
            Age("assigned", "calendar", "owner", "at_most", _FRESH), All((Tagged("hold"), Not(Reminded()))),
        ]  # fmt: skip
    return rng.choice(options)


def _tier_condition(rng: Random, age: Condition, number: int) -> Condition:
    options: list[Condition] = [Reminded(), Tagged("vip"), Team("Support")]
    if isinstance(age, Age) and age.bound in ("over", "at_least"):
        options += [replace(age, limit=_OLDEST if number else _OLDER)] * 3
    return rng.choice(options)
