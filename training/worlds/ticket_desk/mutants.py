"""Misreadings of a rule, each a rule of its own: what a policy does that gets one thing wrong, and which conditions that breaks. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from training.worlds.ticket_desk.meaning import Duty, plan, reasons
from training.worlds.ticket_desk.rules import Age, All, AnyOf, Cap, Cooldown, Load, MonthEnd, Rule, variants
from training.worlds.ticket_desk.state import DeskState, Ticket

_FLIPPED = {"over": "at_least", "at_least": "over", "under": "at_most", "at_most": "under"}
_ORDERS = {"oldest": "newest", "newest": "oldest", "most_urgent": "oldest"}


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Misreadings by name, the most telling first; two may bear the same name when a rule has two places to get wrong."""
    yield from (("off_by_one", other) for other in variants(rule, _off_by_one))
    if rule.unless is not None:
        yield "skips_exception", replace(rule, unless=None)
    if rule.cooldown is not None:
        yield "ignores_cooldown", replace(rule, cooldown=None)
    for number in range(len(rule.tiers)):
        yield "ignores_tier", replace(rule, tiers=rule.tiers[:number] + rule.tiers[number + 1 :])
    if rule.cap is not None:
        yield "ignores_limit", replace(rule, cap=None)
        yield "wrong_end_of_limit", replace(rule, cap=Cap(_ORDERS[rule.cap.order], rule.cap.count))
    if len(rule.steps) > 1:
        turned = tuple(replace(tier, steps=tier.steps[::-1]) for tier in rule.tiers)
        yield "wrong_order", replace(rule, steps=rule.steps[::-1], tiers=turned)
    yield from (("wrong_zone", other) for other in variants(rule, _other_zone))
    yield from (("wrong_clock", other) for other in variants(rule, _other_clock))
    if isinstance(rule.when, All):
        for number in range(len(rule.when.of)):
            rest = rule.when.of[:number] + rule.when.of[number + 1 :]
            yield "ignores_condition", replace(rule, when=All(rest) if len(rest) > 1 else rest[0])
    yield from (("takes_one_of_either", other) for other in variants(rule, lambda node: node.of[0] if isinstance(node, AnyOf) else None))


def broken(rule: Rule, state: DeskState, other: tuple[Duty, ...]) -> list[str]:
    """The conditions that break when the duties in `other` are done instead of the rule's own, sorted."""
    mine, theirs = ({duty.ticket_id: duty for duty in duties} for duties in (plan(rule, state), other))
    found: set[str] = set()
    for ticket in state.tickets:
        own, done = mine.get(ticket.id), theirs.get(ticket.id)
        mails = [frozenset() if duty is None else duty.mails for duty in (own, done)]
        ends = _ends(ticket, own, done)
        if own is None:
            found |= reasons(rule, state, ticket) if mails[1] or ends[0] != ends[1] else set()
            continue
        found |= {
            name
            for name, wrong in (("mailed", mails[0] - mails[1]), ("recipients", mails[1] - mails[0]), ("written", ends[0] != ends[1]))
            if wrong
        }
    return sorted(found)


def _ends(ticket: Ticket, *duties: Duty | None) -> list[dict[str, Any]]:
    """For each duty the values after it of all columns that one of them writes."""
    written = [{} if duty is None else duty.fields for duty in duties]
    columns = {column for fields in written for column in fields}
    return [{column: fields.get(column, getattr(ticket, column)) for column in columns} for fields in written]


def _off_by_one(node: Any) -> Any:
    return replace(node, bound=_FLIPPED[node.bound]) if isinstance(node, Age | Cooldown | Load) else None


def _other_zone(node: Any) -> Any:
    if isinstance(node, MonthEnd) or (isinstance(node, Age) and node.unit != "elapsed"):
        return replace(node, zone="owner" if node.zone == "desk" else "desk")
    return None


def _other_clock(node: Any) -> Any:
    return replace(node, clock="opened" if node.clock == "assigned" else "assigned") if isinstance(node, Age) else None
