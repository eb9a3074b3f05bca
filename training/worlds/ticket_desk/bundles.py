"""Seeded tasks for the ticket desk: a reminder rule with drawn constants, rows on its boundaries, and a reference found by acting."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from ledger.bundle import BundleDraft, Split
from ledger.errors import BundleError
from training.worlds import ToolCall
from training.worlds.ticket_desk.state import PRIORITIES, format_time
from training.worlds.ticket_desk.world import TicketDesk

SYSTEM = "You run a ticket desk with tools. It is {now}; count all ages from then. Use one tool call at a time. Say DONE at the end."
WORDINGS = (
    "Find the open {priority} tickets that were opened more than {days} days ago. For each one, mail its owner and set last_reminded_at"
    " to the time of the mail. Skip tickets reminded less than {hours} hours ago.",
    "Some {priority} tickets have status open and are older than {days} days. Send each ticket's owner one reminder mail, then write the"
    " reminder time to last_reminded_at. If a ticket was reminded less than {hours} hours ago, leave it alone.",
    "Please remind people about {priority} tickets: status open, opened more than {days} days ago, not reminded in the last {hours} hours"
    " (exactly {hours} hours ago counts as due). One mail per ticket to its owner, and record the time in last_reminded_at.",
    "Every {priority} ticket that is still open after more than {days} days needs a reminder to its owner by mail. Note when you sent it in"
    " last_reminded_at. A ticket gets no mail less than {hours} hours after its last one.",
    "Chase the owners of open {priority} tickets opened over {days} days ago. Mail the owner of each, update last_reminded_at, and touch"
    " nothing else. Tickets with a reminder less than {hours} hours old must not be mailed.",
)
_HELD_OUT: dict[Split, int] = {"validation": len(WORDINGS) - 2, "test": len(WORDINGS) - 1}
"""The wordings that no task for training has."""
HINT = (
    "Query the tickets with all three filters first. Compare each last_reminded_at with the cool-down before you mail: a reminder exactly"
    " as old as the cool-down is due again. For each due ticket look up the owner by owner_id, send one mail to that address with the"
    " ticket's id, then write the sending time back to the same ticket. A ticket exactly as old as the limit is not older than it. Change"
    " no other field and no other ticket."
)
DUE_KINDS = ("long_open", "just_over_age", "reminded_at_cooldown", "reminded_long_ago")
SKIP_KINDS = ("cooling", "just_under_cooldown", "exactly_age", "young", "other_priority", "closed", "in_progress")
_FIRST = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jun", "Kim", "Lea", "Max", "Nia", "Omar", "Pia")
_LAST = ("Adler", "Berg", "Costa", "Diaz", "Evans", "Fox", "Gray", "Holt", "Ito", "Jain", "Khan", "Lund", "Moss", "Ng", "Ortiz", "Park")
_NOTES = ("", "", "", "waiting for parts", "customer called", "see last week", "needs a part", "check the cable")
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class _Rule:
    """The constants of one task's rule: ages in days, cool-down in hours."""

    priority: str
    days: int
    hours: int


def generate(count: int, *, seed: int) -> list[BundleDraft]:
    """`count` tasks; task i depends on `seed` and i alone, so a longer list starts with the shorter one.

    Every task has one to three due tickets, one within the cool-down, one opened exactly at the age limit and two or three other rows that
    must be left alone. Every fourth task has the survey's constants (P1, 7 days, 24 hours). Of eight tasks in a row six are for training,
    one for validation and one for test.

    Args:
        count: how many, 0 or more.
        seed: any integer.
    Raises:
        BundleError: `count` is negative.
    """
    if count < 0:
        raise BundleError(f"count is {count}; allowed: 0 or more")
    return [_draft(index, seed) for index in range(count)]


def reminder(ticket_id: str, to: str) -> dict[str, str]:
    """The arguments of the plain mail that reminds `to` of a ticket."""
    return {"to": to, "subject": f"Reminder: {ticket_id}", "body": f"Please look at {ticket_id}.", "ticket_id": ticket_id}


def _draft(index: int, seed: int) -> BundleDraft:
    rng = Random(f"ticket_desk/{seed}/{index}")
    rule = _Rule("P1", 7, 24)
    if index % 4:
        rule = _Rule(rng.choice(PRIORITIES[:3]), rng.choice((3, 5, 7, 10, 14)), rng.choice((12, 24, 36, 48)))
    drawn = rng.randrange(len(WORDINGS))
    now = datetime(2026, 1, 1, 8, tzinfo=UTC) + timedelta(days=rng.randrange(365), minutes=rng.randrange(600))
    initial_state, due = _initial_state(rng, rule, now)
    split: Split = "validation" if index % 8 == 6 else "test" if index % 8 == 7 else "train"
    wording = _HELD_OUT.get(split, drawn % (len(WORDINGS) - len(_HELD_OUT)))
    text = WORDINGS[wording].format(priority=rule.priority, days=rule.days, hours=rule.hours)
    task: dict[str, Any] = {
        "name": f"desk_{seed}_{index}",
        "world": TicketDesk.name,
        "request": {"system": SYSTEM.format(now=format_time(now)), "turns": [[{"role": "user", "content": text}]]},
        "initial_state": initial_state,
    }
    return BundleDraft(
        **task,
        spec={"priority": rule.priority, "status": "open", "older_than_days": rule.days, "cooldown_hours": rule.hours},
        reference=_reference(BundleDraft(**task), rule, due),
        hint=HINT,
        split=split,
        provenance={
            "proposer": "ticket_desk",
            "seed": seed,
            "source": {"index": index},
            "licence": "Apache-2.0",
            "wording": f"reminder-{wording}",
        },
    )


def _initial_state(rng: Random, rule: _Rule, now: datetime) -> tuple[dict[str, Any], list[str]]:
    """The desk at the request, and the ids of the due tickets."""
    owners = _owners(rng)
    due = [rng.choice(DUE_KINDS) for _ in range(rng.randint(1, 3))]
    skipped = ["exactly_age", rng.choice(("cooling", "just_under_cooldown")), *rng.sample(SKIP_KINDS[3:], rng.randint(2, 3))]
    kinds = [*due, *skipped]
    rng.shuffle(kinds)
    first = rng.randrange(101, 900)
    tickets = {f"T{first + offset}": _ticket(rng, kind, rule, now) for offset, kind in enumerate(kinds)}
    for row in tickets.values():
        row["owner_id"] = rng.choice(sorted(owners)[:-1])
    outbox = {}
    reminded = sorted((row["last_reminded_at"], ticket_id) for ticket_id, row in tickets.items() if row["last_reminded_at"] is not None)
    for number, (sent_at, ticket_id) in enumerate(reminded, start=1):
        to = owners[tickets[ticket_id]["owner_id"]]["email"]
        outbox[f"M{number:03d}"] = {**reminder(ticket_id, to), "sent_at": sent_at}
    clock = {"started_at": format_time(now), "now": format_time(now)}
    state = {"tickets": tickets, "owners": owners, "outbox": outbox, "call_log": [], "clock": clock}
    return state, [f"T{first + offset}" for offset, kind in enumerate(kinds) if kind in DUE_KINDS]


def _owners(rng: Random) -> dict[str, Any]:
    """Three to five owners, two of whom share a first name; tickets never belong to the last one."""
    firsts, lasts = rng.sample(_FIRST, 4), rng.sample(_LAST, 5)
    names = [(firsts[0], lasts[0]), (firsts[0], lasts[1]), *zip(firsts[1:], lasts[2:], strict=True)][: rng.randint(3, 5)]
    rng.shuffle(names)
    return {
        f"O{number}": {"name": f"{first} {last}", "email": f"{first}.{last}@desk.example".lower()}
        for number, (first, last) in enumerate(names, start=1)
    }


def _ticket(rng: Random, kind: str, rule: _Rule, now: datetime) -> dict[str, Any]:
    """One row of the named kind, without its owner."""
    limit, cooldown = timedelta(days=rule.days), timedelta(hours=rule.hours)
    opened = {
        "just_over_age": limit + _MINUTE,
        "exactly_age": limit,
        "young": limit - timedelta(days=rng.randint(1, rule.days - 1), minutes=rng.randrange(600)),
    }.get(kind, limit + timedelta(days=rng.randint(8, 20), minutes=rng.randrange(600)))
    reminded = {
        "reminded_at_cooldown": cooldown,
        "reminded_long_ago": cooldown + timedelta(days=rng.randint(1, 5), minutes=rng.randrange(600)),
        "cooling": cooldown - timedelta(hours=rng.randint(1, 10), minutes=rng.randrange(60)),
        "just_under_cooldown": cooldown - _MINUTE,
    }.get(kind)
    others = [priority for priority in PRIORITIES if priority != rule.priority]
    return {
        "priority": rng.choice(others) if kind == "other_priority" else rule.priority,
        "status": kind if kind in ("closed", "in_progress") else "open",
        "opened_at": format_time(now - opened),
        "last_reminded_at": None if reminded is None else format_time(now - reminded),
        "note": rng.choice(_NOTES),
    }


def _reference(draft: BundleDraft, rule: _Rule, due: list[str]) -> dict[str, Any]:
    """The calls that solve the task in the shortest plain order, and the material end state that they lead to."""
    desk = TicketDesk()
    state = desk.reset(draft, seed=0)
    calls: list[dict[str, Any]] = []

    def act(name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        nonlocal state
        calls.append({"name": name, "arguments": arguments})
        state, observation = desk.call(state, ToolCall(name, arguments))
        answer: dict[str, Any] = json.loads(observation.content)
        return answer

    act("query_tickets", {"priority": rule.priority, "older_than_days": rule.days, "status": "open"})
    addresses: dict[str, str] = {}
    for ticket_id in due:
        owner_id = draft.initial_state["tickets"][ticket_id]["owner_id"]
        if owner_id not in addresses:
            addresses[owner_id] = act("get_owner", {"owner_id": owner_id})["email"]
        sent = act("send_email", reminder(ticket_id, addresses[owner_id]))
        act("update_ticket", {"id": ticket_id, "fields": {"last_reminded_at": sent["sent_at"]}})
    return {"turns": [calls], "end_state": desk.material(desk.view(state))}
