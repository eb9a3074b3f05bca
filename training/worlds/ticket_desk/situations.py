"""States for a rule: rows on each of its boundaries, rows that one condition alone leaves out, and rows that only distract. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random

from ledger.errors import BundleError
from training.worlds.ticket_desk.levels import Level
from training.worlds.ticket_desk.masks import Rows
from training.worlds.ticket_desk.meaning import outcome, plan
from training.worlds.ticket_desk.mutants import mutants
from training.worlds.ticket_desk.rules import Load, Rule, nodes
from training.worlds.ticket_desk.scene import NOTES, Scene, any_row, is_plain, scene_of, state_from
from training.worlds.ticket_desk.state import DeskState, Ticket, format_time
from training.worlds.ticket_desk.steering import due_row, neighbours, with_value

_TRIES = 60
_DRAWN_ROWS = (2, 5)
_NEVER_REMINDED = 0.4
_LONGEST_AGO = 12
"""In steps of six hours; the longest cool-down has eight of them."""
NEEDED = ("off_by_one", "skips_exception", "ignores_cooldown")
"""Misreadings that every generated state shows."""


def situation(rule: Rule, rng: Random, level: Level, *, pool: int, others: Sequence[Rule] = ()) -> DeskState:
    """A state on which the rule asks for something, and for something else than each of its `NEEDED` misreadings.

    Args:
        rng: the only source of randomness.
        level: how many rows are due and how many distract.
        pool: number of the pool of names.
        others: further rules that must ask for something else.
    Raises:
        BundleError: no such state was found.
    """
    needed = [*(other for name, other in mutants(rule) if name in NEEDED), *others]
    for _ in range(_TRIES):
        state = _attempt(rule, rng, level, pool, needed)
        if state is None:
            continue
        duties = plan(rule, state)
        if duties and all(plan(other, state) != duties for other in needed):
            return state
    raise BundleError(f"no state was found in {_TRIES} tries on which the rule differs from its misreadings: {rule}")


def drawn_situation(rule: Rule, rng: Random, level: Level, *, pool: int) -> DeskState:
    """A state whose rows are drawn as they come: some tickets of those that the list shows were never reminded, the others at any time.

    Nothing is placed on a boundary, so not every state tells the rule from its misreadings; the rule asks for something on each.

    Raises:
        BundleError: no such state was found.
    """
    for _ in range(_TRIES):
        scene = scene_of(rule, rng, pool=pool, grain=timedelta(days=1), plain=level.form == "walk" and is_plain(rule), whole=level.whole)
        bases = [due_row(rule, -1, scene, rng) for _ in range(rng.randint(*_DRAWN_ROWS))]
        rows = [with_value(row, "last_reminded_at", _drawn_reminder(scene, rng)) for row in bases if row is not None]
        rows += [any_row(scene, rng) for _ in range(rng.randint(0, 2))]
        rng.shuffle(rows)
        first = rng.randrange(11, 81)
        state = state_from(scene, [replace(row, id=f"T{first + place}", note=rng.choice(NOTES)) for place, row in enumerate(rows)])
        if plan(rule, state):
            return state
    raise BundleError(f"no state was found in {_TRIES} tries on which the rule asks for something: {rule}")


def _drawn_reminder(scene: Scene, rng: Random) -> str | None:
    if rng.random() < _NEVER_REMINDED:
        return None
    return format_time(scene.facts.start - timedelta(hours=6) * rng.randint(1, _LONGEST_AGO))


def _attempt(rule: Rule, rng: Random, level: Level, pool: int, others: Sequence[Rule]) -> DeskState | None:
    grain = timedelta(days=1) if level.whole else timedelta(minutes=1)
    scene = scene_of(rule, rng, pool=pool, grain=grain, plain=level.form == "walk" and is_plain(rule), whole=level.whole)
    witnesses = [due_row(rule, tier, scene, rng) for tier in range(-1, len(rule.tiers))]
    rows = [row for row in witnesses if row is not None]
    if len(rows) < len(witnesses):
        return None
    if rule.cap is not None:
        rows += [other for owner in scene.values["owner_id"] if _is_due(rule, other := with_value(rows[0], "owner_id", owner), scene)]
    near = Rows([(other, scene.facts) for row in rows for other in neighbours(row, scene)])
    due = near.places(sum(near.outcomes(rule)))
    rows = rows[: len(witnesses)] + _separators(rule, others, near, rng)
    if rule.cap is not None or rule.digest:
        mates = [row for row in (near.rows[place][0] for place in due) if _are_mates(row, rows[0])]
        rows += rng.sample(mates, min(2, len(mates)))
    missing = rng.randint(*level.due) - sum(_is_due(rule, row, scene) for row in rows)
    rows += [near.rows[place][0] for place in rng.sample(due, min(max(missing, 0), len(due)))]
    idle = near.places(near.everyone & ~sum(near.outcomes(rule)))
    for _ in range(rng.randint(1, level.distractors)):
        rows.append(near.rows[rng.choice(idle)][0] if idle and rng.random() < 0.7 else any_row(scene, rng))
    loaded = _loaded(rows, rule, scene, rng)
    if loaded is None:
        return None
    rng.shuffle(loaded)
    first = rng.randrange(11, 81) if level.whole else rng.randrange(101, 900)
    return state_from(scene, [replace(row, id=f"T{first + place}", note=rng.choice(NOTES)) for place, row in enumerate(loaded)])


def _separators(rule: Rule, others: Sequence[Rule], near: Rows, rng: Random) -> list[Ticket]:
    """For each of the other rules a row that it treats otherwise, where there is one among those that are near.

    With a cap, of an owner who has none of them yet, so that no other row takes its place.
    """
    found: dict[int, str] = {}
    for other in others:
        apart = near.apart(rule, other)
        if not apart or (rule.cap is None and any(place in found for place in apart)):
            continue
        free = [place for place in apart if near.rows[place][0].owner_id not in found.values()] if rule.cap is not None else apart
        place = rng.choice(free or apart)
        found[place] = near.rows[place][0].owner_id
    return [near.rows[place][0] for place in found]


def _is_due(rule: Rule, row: Ticket, scene: Scene) -> bool:
    return outcome(rule, row, scene.facts) is not None


def _are_mates(row: Ticket, other: Ticket) -> bool:
    return row.owner_id == other.owner_id and row.opened_at != other.opened_at


def _loaded(rows: Sequence[Ticket], rule: Rule, scene: Scene, rng: Random) -> list[Ticket] | None:
    """The rows and as many more as give every owner the open tickets that the scene wants; None when somebody has too many already."""
    full = list(rows)
    if not any(isinstance(node, Load) for node in nodes(rule)):
        return full
    counts = Counter(row.owner_id for row in rows if row.status == "open")
    for owner_id, wanted in scene.facts.loads.items():
        if counts[owner_id] > wanted:
            return None
        for _ in range(wanted - counts[owner_id]):
            full.append(with_value(with_value(any_row(scene, rng), "owner_id", owner_id), "status", "open"))
    return full
