"""Rows that make a rule's conditions hold or fail: a leaf at a time, by trying the values that matter to it. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from training.worlds.ticket_desk.meaning import cooling, holds, outcome
from training.worlds.ticket_desk.rules import Age, All, AnyOf, Condition, MonthEnd, Not, Priority, Reminded, Rule, Status, Tagged
from training.worlds.ticket_desk.scene import Scene, any_row, sound
from training.worlds.ticket_desk.state import Ticket

_ROUNDS = 4


def steered(row: Ticket, condition: Condition, wanted: bool, scene: Scene, rng: Random) -> Ticket:
    """The row with some columns changed so that the condition holds (or fails) where the scene's values allow it."""
    match condition:
        case Not(of):
            return steered(row, of, not wanted, scene, rng)
        case All(of) | AnyOf(of):
            for item in of if isinstance(condition, All) is wanted else (rng.choice(of),):
                row = steered(row, item, wanted, scene, rng)
            return row
    if holds(condition, row, scene.facts) is wanted:
        return row
    column = _column(condition)
    rows = (with_value(row, column, value) for value in rng.sample(scene.values[column], len(scene.values[column])))
    return next((other for other in rows if holds(condition, other, scene.facts) is wanted), row)


def due_row(rule: Rule, tier: int, scene: Scene, rng: Random) -> Ticket | None:
    """A row that is due in the tier (-1 for the rule's own steps), or None when none was found."""
    row = any_row(scene, rng)
    for _ in range(_ROUNDS):
        row = steered(row, rule.when, True, scene, rng)
        if rule.unless is not None:
            row = steered(row, rule.unless, False, scene, rng)
        for number in range(max(tier, 0), len(rule.tiers)):
            row = steered(row, rule.tiers[number].when, number == tier, scene, rng)
        if cooling(rule, row, scene.facts):
            rested = [with_value(row, "last_reminded_at", at) for at in scene.values["last_reminded_at"]]
            row = rng.choice([other for other in rested if not cooling(rule, other, scene.facts)])
        if outcome(rule, row, scene.facts) == tier:
            return row
    return None


def neighbours(row: Ticket, scene: Scene) -> Iterator[Ticket]:
    """The rows that differ from `row` in one column, by every value that is worth trying."""
    for column, values in scene.values.items():
        yield from (other for value in values if (other := with_value(row, column, value)) != row)


def with_value(row: Ticket, column: str, value: Any) -> Ticket:
    """The row with another value in one column, kept sound."""
    changed: dict[str, Any] = {column: value}
    return sound(replace(row, **changed))


def _column(condition: Condition) -> str:
    match condition:
        case Priority():
            return "priority"
        case Status():
            return "status"
        case Tagged():
            return "tags"
        case Reminded():
            return "last_reminded_at"
        case Age("assigned"):
            return "assigned_at"
        case Age() | MonthEnd():
            return "opened_at"
    return "owner_id"
