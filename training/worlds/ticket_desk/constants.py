"""The constants of one task: a rule with the sample constants of its family becomes one with drawn ones, told apart as before. Pure."""

from dataclasses import replace
from random import Random
from typing import Any

from training.worlds.ticket_desk.people import TEAMS
from training.worlds.ticket_desk.rules import (
    AddTag,
    Age,
    Cap,
    Cooldown,
    Load,
    Priority,
    Rule,
    SetNote,
    SetPriority,
    SetStatus,
    Status,
    Tagged,
    Team,
    nodes,
    rebuilt,
)
from training.worlds.ticket_desk.state import PRIORITIES

TAGS = ("parts", "hold", "vip", "chased", "legal", "loaner", "callback", "onsite")
_NOTES = ("closed by the desk", "owner was asked", "handed on", "second reminder", "seen by the desk", "checked this week")


def drawn(rule: Rule, rng: Random) -> Rule:
    """The rule with other constants; different constants stay different, a longer time limit stays longer.

    Args:
        rng: the only source of randomness.
    """
    base = rng.choice((3, 5, 7, 10))
    days = sorted({node.limit for node in nodes(rule) if isinstance(node, Age)})
    drawn_days = {2: rng.choice((1, 2)), 7: base, 14: base + rng.choice((4, 7)), 21: base + rng.choice((10, 14, 20))}
    known: dict[type, dict[Any, Any]] = {
        Age: {day: drawn_days.get(day, day) for day in days},
        Priority: dict(zip(PRIORITIES, rng.sample(PRIORITIES, len(PRIORITIES)), strict=True)),
        Status: {"open": "in_progress", "in_progress": "open"} if rng.random() < 0.2 else {},
        Tagged: dict(zip(TAGS, rng.sample(TAGS, len(TAGS)), strict=True)),
        Team: dict(zip(TEAMS, rng.sample(TEAMS, len(TEAMS)), strict=True)),
        SetNote: dict(zip(_NOTES, rng.sample(_NOTES, len(_NOTES)), strict=True)),
    }
    hours, load, cap = rng.choice((12, 24, 36, 48)), rng.choice((3, 4, 5)), rng.choice((1, 1, 2))

    def change(node: Any) -> Any:
        match node:
            case Age():
                return replace(node, limit=known[Age][node.limit])
            case Priority(values):
                return Priority(tuple(sorted(known[Priority][value] for value in values)))
            case Status(values):
                return Status(tuple(known[Status].get(value, value) for value in values))
            case SetStatus(value):
                return SetStatus(known[Status].get(value, value))
            case SetPriority(value):
                return SetPriority(known[Priority][value])
            case Tagged(tag) | AddTag(tag):
                return type(node)(known[Tagged][tag])
            case Team(team):
                return Team(known[Team][team])
            case SetNote(text):
                return SetNote(known[SetNote].get(text, text))
            case Cooldown(bound):
                return Cooldown(bound, hours)
            case Load(bound):
                return Load(bound, load)
            case Cap(order):
                return Cap(order, cap)
        return node

    result = rebuilt(rule, change)
    assert isinstance(result, Rule)
    return result
