"""Difficulty: what a level lets a rule, a request and a state hold, and at which level a rule first appears. Pure."""

from dataclasses import dataclass
from typing import Literal

from ledger.errors import BundleError
from training.worlds.ticket_desk.rules import (
    Age,
    AnyOf,
    Away,
    Cooldown,
    HandTo,
    Load,
    Mail,
    MonthEnd,
    Not,
    Priority,
    Reminded,
    Rule,
    SetReminded,
    Status,
    Tagged,
    Tier,
    nodes,
)


@dataclass(frozen=True)
class Level:
    """The knobs of one level.

    Attributes:
        due: fewest and most tickets that are due, where the rule's boundaries do not ask for more.
        distractors: tickets beside them that only distract.
        form: `walk`, ids first and then one ticket a call, or `table`, rows with all columns.
        whole: numbers are few and whole: days, quarters of days, and two digits of a ticket's id; else a minute lies beside a boundary.
        omission: share of requests that leave a constant to an earlier turn or a note of the desk.
        ambiguity: share of requests with two readings, which the user settles.
        user_errors: share of those in which the user errs.
        wordings: how many of the training wordings are used.
    """

    due: tuple[int, int]
    distractors: int
    form: Literal["walk", "table"] = "table"
    whole: bool = False
    omission: float = 0.0
    ambiguity: float = 0.0
    user_errors: float = 0.0
    wordings: int = 3


LEVELS = (
    Level((1, 3), 3, form="walk", whole=True, wordings=1),
    Level((1, 4), 4, form="walk"),
    Level((1, 4), 3, omission=0.25),
    Level((2, 5), 3, omission=0.3, ambiguity=0.3),
    Level((2, 6), 4, omission=0.3, ambiguity=0.3),
    Level((3, 7), 5, omission=0.35, ambiguity=0.35),
    Level((4, 9), 8, omission=0.4, ambiguity=0.5, user_errors=0.4),
)
TOP_RULE = 5
"""The level at which the last rules appear; those above it have the same rules with more of everything else."""


def level_at(number: int) -> Level:
    """The level of that number.

    Raises:
        BundleError: there is none.
    """
    if not 0 <= number < len(LEVELS):
        raise BundleError(f"level is {number}; allowed: 0 to {len(LEVELS) - 1}")
    return LEVELS[number]


def level_of(rule: Rule) -> int:
    """The lowest level at which the rule may appear, 0 to `TOP_RULE`."""
    several = rule.cap is not None or rule.digest or len(rule.tiers) > 1
    return max(5 if several else 0, *(_level(node) for node in nodes(rule)), 1 if rule.unless is not None else 0)


def _level(node: object) -> int:
    match node:
        case Priority() | Status() | SetReminded() | Mail("owner") | Cooldown() | Rule() | Age("opened", "elapsed") | Not(Status()):
            return 0
        case Tagged() | Away():
            return 1
        case AnyOf() | MonthEnd() | Age() | Load():
            return 3
        case Mail() | HandTo() | Tier():
            return 4
        case Reminded():
            return 2
    return 0 if type(node).__name__ in ("All", "Not") else 2
