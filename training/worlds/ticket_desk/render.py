"""A rule as a request: one voice says it, with a point left open or a constant left elsewhere where the task wants that. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.worlds.ticket_desk.phrases import CAPS, CLAUSES, FRAMES, STEPS, ZONES
from training.worlds.ticket_desk.readings import Elsewhere, OpenPoint, number_of
from training.worlds.ticket_desk.rules import (
    AddTag,
    Age,
    All,
    AnyOf,
    Away,
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
    SetStatus,
    Status,
    Step,
    Tagged,
    Team,
)

_UNITS = {"elapsed": "{n} days", "calendar": "{n} calendar days", "business": "{n} business days"}
_REFERRING = 2
"""The voice whose clauses take "the same limit as last week" in the place of "7 days"."""
_ELSEWHERE = {
    "earlier": "the limit that I gave you",
    "note": "the standing limit in the desk's notes",
    "last_week": "the same limit as last week",
}


@dataclass(frozen=True)
class Telling:
    """How a rule is told.

    Attributes:
        voice: number of the voice.
        point: what the request leaves open, or None.
        left_out: the constant that it leaves out, or None.
    """

    voice: int
    point: OpenPoint | None = None
    left_out: Elsewhere | None = None


def request_text(rule: Rule, telling: Telling) -> str:
    """The request for the rule, as that voice says it."""
    frame = FRAMES[telling.voice]
    parts: dict[str, list[str]] = {
        "main": [frame["main"].format(when=_clause(rule.when, telling), steps=_steps(rule.steps, telling))],
        "unless": [] if rule.unless is None else [frame["unless"].format(x=_clause(rule.unless, telling))],
        "cooldown": [],
        "tier": [frame["tier"].format(x=_clause(tier.when, telling), steps=_steps(tier.steps, telling)) for tier in rule.tiers],
        "cap": [] if rule.cap is None else [frame["cap"].format(n=rule.cap.count, order=CAPS[rule.cap.order])],
        "digest": [frame["digest"]] if rule.digest else [],
        "end": [frame["end"]],
    }
    if len(rule.tiers) > 1:
        parts["tier"].append("If several of these fit, the last of them counts.")
    if rule.cooldown is not None:
        voice = _REFERRING if _is_left_out(rule.cooldown, telling) else telling.voice
        clause = CLAUSES[f"cooldown {rule.cooldown.bound}"][voice].format(x=_amount(rule.cooldown, "{n} hours", telling))
        parts["cooldown"].append(frame["unless"].format(x=clause))
    text = ("\n" if "\n" in frame["main"] else " ").join(line for name in frame["order"].split() for line in parts[name])
    return text[0].upper() + text[1:]


def earlier_text(left_out: Elsewhere) -> str:
    """What an earlier turn says when a constant was given there."""
    given = f"the {_what(left_out.node)} is {number_of(left_out.node)} {_unit(left_out.node)}"
    return f"Before we start: today {given}. I come to the request next."


def note_texts(left_out: Elsewhere | None, dates: Sequence[str]) -> tuple[str, ...]:
    """The desk's notes, the newest last: those that the request points to, and others.

    Args:
        dates: two dates, of the week before last and of last week.
    """
    notes = [f"{dates[0]}: the cupboard key is with the front desk."]
    if left_out is None or left_out.way == "earlier":
        return tuple(notes)
    what, unit = _what(left_out.node), _unit(left_out.node)
    if left_out.way == "note":
        return (
            f"{dates[0]}: for the spring clean-up only, the {what} was {left_out.stale_number} {unit}.", *notes,
            f"{dates[1]}: standing rule: the {what} is {number_of(left_out.node)} {unit}.",
        )  # fmt: skip
    return (
        f"{dates[0]}, log of the week: the {what} was {left_out.stale_number} {unit}.", *notes,
        f"{dates[1]}, log of the week: the {what} was {number_of(left_out.node)} {unit}.",
    )  # fmt: skip


def _what(node: Any) -> str:
    return "age limit for tickets" if isinstance(node, Age) else "pause after a reminder"


def _unit(node: Any) -> str:
    return _UNITS[node.unit].removeprefix("{n} ") if isinstance(node, Age) else "hours"


def _amount(node: Any, form: str, telling: Telling) -> str:
    """A limit in words, or the reference to where it stands."""
    if telling.left_out is not None and _is_left_out(node, telling):
        return _ELSEWHERE[telling.left_out.way]
    return form.format(n=number_of(node)) if number_of(node) != 1 else form.format(n=1).removesuffix("s")


def _clause(condition: Condition, telling: Telling) -> str:
    """What tickets do for which the condition holds, after "that"."""
    match condition:
        case All(of):
            return _joined(
                [f"either {text}" if isinstance(item, AnyOf) else text for item in of for text in [_clause(item, telling)]], "and"
            )
        case AnyOf(of):
            return _joined([_clause(item, telling) for item in of], "or")
        case Age():
            return _age(condition, telling)
        case MonthEnd(which, zone):
            return CLAUSES[which][telling.voice] + ("" if _blurred(condition, "zone", telling) else ZONES[zone][telling.voice])
        case Load(bound, limit):
            return CLAUSES[f"load {bound}"][telling.voice].format(x=limit)
        case Not(of):
            key, value = _leaf(of)
            return CLAUSES[f"not {key}"][telling.voice].format(x=value)
    key, value = _leaf(condition)
    return CLAUSES[key][telling.voice].format(x=value)


def _leaf(condition: Condition) -> tuple[str, str]:
    match condition:
        case Priority(values):
            return "priority", " or ".join(values)
        case Status(values):
            return "status", " or ".join(values)
        case Tagged(tag):
            return "tag", tag
        case Team(team):
            return "team", team
        case Away():
            return "away", ""
        case Reminded():
            return "reminded", ""
    raise ValueError(f"no words for {condition}")


def _age(age: Age, telling: Telling) -> str:
    form = "{n} days" if _blurred(age, "unit", telling) else _UNITS[age.unit]
    bound = age.bound
    if _blurred(age, "limit", telling):
        bound = "past" if bound in ("over", "at_least") else "within"
    zone = "" if age.unit == "elapsed" or _blurred(age, "zone", telling) else ZONES[age.zone][telling.voice]
    voice = _REFERRING if _is_left_out(age, telling) else telling.voice
    return CLAUSES[f"{age.clock} {bound}"][voice].format(x=_amount(age, form, telling)) + zone


def _is_left_out(node: Any, telling: Telling) -> bool:
    return telling.left_out is not None and telling.left_out.node == node


def _blurred(node: Any, topic: str, telling: Telling) -> bool:
    return telling.point is not None and telling.point.topic == topic and telling.point.node == node


def _steps(steps: tuple[Step, ...], telling: Telling) -> str:
    words: list[str] = []
    for place, step in enumerate(steps):
        handed = any(isinstance(earlier, HandTo) for earlier in steps[:place])
        text = _step(step, telling)
        words.append(re.sub(r"\b(its|the) owner\b", r"\1 new owner", text) if handed and isinstance(step, Mail) else text)
    return words[0] if len(words) == 1 else f"first {words[0]}, then {', then '.join(words[1:])}"


def _step(step: Step, telling: Telling) -> str:
    match step:
        case Mail(to):
            key, value = "mail someone" if _blurred(step, "contact", telling) else f"mail {to}", ""
        case SetStatus(value):
            key = "status"
        case SetPriority(value):
            key = "priority"
        case HandTo(to):
            key, value = f"hand {to}", ""
        case AddTag(value):
            key = "tag"
        case SetNote(value):
            key = "note"
        case _:
            key, value = "reminded", ""
    return STEPS[key][telling.voice].format(x=value)


def _joined(items: Sequence[str], word: str) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"
