"""Conditions over many rows at once: which rows satisfy one, as the bits of a whole number, each condition worked out once. Pure."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from training.worlds.ticket_desk.meaning import Facts, cooling, holds
from training.worlds.ticket_desk.rules import All, AnyOf, Condition, Cooldown, Not, Rule
from training.worlds.ticket_desk.state import Ticket


class Rows:
    """Rows, each with the facts of its state; bit i of every answer stands for row i."""

    def __init__(self, rows: Sequence[tuple[Ticket, Facts]]) -> None:
        self.rows = rows
        self.everyone = (1 << len(rows)) - 1
        self._known: dict[Condition | Cooldown, int] = {}

    def where(self, condition: Condition) -> int:
        """The rows for which the condition holds."""
        match condition:
            case Not(of):
                return self.everyone & ~self.where(of)
            case All(of):
                kept = self.everyone
                for item in of:
                    kept &= self.where(item)
                return kept
            case AnyOf(of):
                found = 0
                for item in of:
                    found |= self.where(item)
                return found
        if condition not in self._known:
            self._known[condition] = sum(1 << place for place, (row, facts) in enumerate(self.rows) if holds(condition, row, facts))
        return self._known[condition]

    def outcomes(self, rule: Rule) -> tuple[int, ...]:
        """The due rows of the rule's own steps, and then those of each tier; the cap aside."""
        due = self.where(rule.when) & ~(0 if rule.unless is None else self.where(rule.unless)) & ~self._cooling(rule)
        tiers: list[int] = []
        for tier in reversed(rule.tiers):
            tiers.insert(0, due & self.where(tier.when))
            due &= ~tiers[0]
        return (due, *tiers)

    def apart(self, rule: Rule, other: Rule) -> list[int]:
        """The places of the rows that the two rules treat otherwise; without their tiers when they have not equally many."""
        mine, theirs = self.outcomes(rule), self.outcomes(other)
        if len(mine) != len(theirs):
            mine, theirs = (sum(mine),), (sum(theirs),)
        return self.places(reduce(or_, (a ^ b for a, b in zip(mine, theirs, strict=True))))

    def places(self, mask: int) -> list[int]:
        """The places of the bits that are set."""
        return [place for place, bit in enumerate(f"{mask:b}"[::-1]) if bit == "1"]

    def _cooling(self, rule: Rule) -> int:
        if rule.cooldown is None:
            return 0
        if rule.cooldown not in self._known:
            self._known[rule.cooldown] = sum(1 << place for place, (row, facts) in enumerate(self.rows) if cooling(rule, row, facts))
        return self._known[rule.cooldown]
