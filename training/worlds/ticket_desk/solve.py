"""Ways to do what a rule asks for, as tool calls: the reference, other right ways, and wrong ones with the conditions they break. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from training.worlds.ticket_desk.meaning import Duty, plan
from training.worlds.ticket_desk.mutants import broken, mutants
from training.worlds.ticket_desk.readings import Elsewhere, OpenPoint
from training.worlds.ticket_desk.rules import (
    AddTag,
    Age,
    All,
    Away,
    Condition,
    HandTo,
    Load,
    Mail,
    MonthEnd,
    Priority,
    Rule,
    SetNote,
    SetPriority,
    SetReminded,
    SetStatus,
    Status,
    Team,
    nodes,
)
from training.worlds.ticket_desk.state import DURING_ROLLOUT, PRIORITIES, STATUSES, DeskState, format_time, parse_time

Call = dict[str, Any]
_COLUMNS = {
    SetReminded: "last_reminded_at", SetStatus: "status", SetPriority: "priority", HandTo: "owner_id", AddTag: "tags", SetNote: "note",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One task as its solver sees it.

    Attributes:
        rule: the true rule.
        state: the first state.
        form: `walk` or `table`.
        point: the point that the request leaves open, or None.
        left_out: the constant that it leaves out, or None.
    """

    rule: Rule
    state: DeskState
    form: str
    point: OpenPoint | None = None
    left_out: Elsewhere | None = None

    @property
    def turns_before(self) -> int:
        """User turns in which nothing is to be done yet."""
        return 1 if self.left_out is not None and self.left_out.way == "earlier" else 0


def reference(job: Job) -> list[list[Call]]:
    """The calls of the plainest right way, turn by turn."""
    duties = plan(job.rule, job.state)
    if job.form == "table":
        return _turns(job, [*_reads(job, duties), *_writes(job, duties)])
    wanted = {duty.ticket_id: duty for duty in duties}
    calls = [_call("list_tickets", **_filters(job.rule, ("priority", "older_than_days")))]
    for ticket_id in listed(job):
        calls.append(_call("get_ticket", ticket=ticket_id))
        calls += _writes(job, [wanted[ticket_id]]) if ticket_id in wanted else []
    return _turns(job, calls)


def equivalents(job: Job) -> list[dict[str, Any]]:
    """Other right ways by name: another order, everything batched by kind, and with reads that were not needed."""
    duties = plan(job.rule, job.state)
    everything = [_call("list_tickets") if job.form == "walk" else _call("query_tickets")]
    look = [_call("get_ticket", ticket=ticket.id) for ticket in job.state.tickets] if job.form == "walk" else _owner_reads(job.state)
    turned = sorted(_writes(job, duties[::-1]), key=lambda call: call["name"] not in ("update_ticket", "mark_reminded"))
    loud = [replace_argument(call, "to", lambda to: f" {to.upper()}") for call in turned]
    batched = sorted(_writes(job, duties), key=lambda call: call["name"] in ("update_ticket", "mark_reminded"))
    done = reference(job)[-1]
    return [
        {"name": "other_order", "turns": _turns(job, [*everything, *look, *loud])},
        {"name": "batched", "turns": _turns(job, [*everything, *look, *batched])},
        {"name": "extra_reads", "turns": _turns(job, [*everything, *look, *done, *everything])},
    ]


def wrongs(job: Job) -> list[dict[str, Any]]:
    """Known wrong ways by name, with the conditions that each breaks; a way that ends like the right one is left out."""
    found: list[dict[str, Any]] = []
    seen: set[tuple[Duty, ...]] = set()
    for name, other in [*_other_rules(job), *mutants(job.rule)]:
        duties = plan(other, job.state)
        breaks = broken(job.rule, job.state, duties)
        if breaks and duties not in seen:
            seen.add(duties)
            found.append({"name": name, "turns": _turns(job, _writes(job, duties)), "breaks": breaks})
    for name, calls, breaks in _slips(job):
        found.append({"name": name, "turns": _turns(job, calls), "breaks": breaks})
    numbers = {name: iter(range(2, 99)) for name in {way["name"] for way in found}}
    names: set[str] = set()
    for way in found:
        if way["name"] in names:
            way["name"] = f"{way['name']}_{next(numbers[way['name']])}"
        names.add(way["name"])
    return found


def replace_argument(call: Call, name: str, change: Callable[[Any], Any]) -> Call:
    """The call with one of its arguments changed, where it has that argument."""
    arguments = {key: change(value) if key == name else value for key, value in call["arguments"].items()}
    return {"name": call["name"], "arguments": arguments}


def settable(rule: Rule) -> frozenset[str]:
    """Columns that some step of the rule writes."""
    return frozenset(_COLUMNS[type(node)] for node in nodes(rule) if type(node) in _COLUMNS)


def _other_rules(job: Job) -> Iterator[tuple[str, Rule]]:
    if job.point is not None:
        yield "other_reading", job.point.other_rule
    if job.left_out is not None:
        yield "stale_limit", job.left_out.stale


def _slips(job: Job) -> Iterator[tuple[str, list[Call], list[str]]]:
    """Ways that follow the true rule and slip in carrying it out."""
    duties = plan(job.rule, job.state)
    calls = _writes(job, duties)
    mailing = next((place for place, call in enumerate(calls) if "to" in call["arguments"]), None)
    missed = broken(job.rule, job.state, duties[1:])
    if missed:
        yield "misses_one", _writes(job, duties[1:]), missed
    if mailing is not None:
        known = {mail for duty in duties for mail in duty.mails}
        stranger = next((owner.email for owner in job.state.owners if owner.email not in known), "somebody@else.example")
        wrong = replace_argument(calls[mailing], "to", lambda _: stranger)
        yield "wrong_recipient", [*calls[:mailing], wrong, *calls[mailing + 1 :]], ["mailed", "recipients"]
        yield "duplicate", [*calls, calls[mailing]], ["cooldown"]
        mails = [call for call in calls if "to" in call["arguments"]]
        breaks = broken(job.rule, job.state, tuple(replace(duty, acts=tuple(a for a in duty.acts if a[0] == "mail")) for duty in duties))
        if breaks:
            yield "forgets_fields", mails, breaks
    if job.rule.digest and any("to" in call["arguments"] and len(call["arguments"]["ticket_ids"]) > 1 for call in calls):
        yield "splits_digest", _writes(replace(job, rule=replace(job.rule, digest=False)), duties), ["limit"]
    idle = [ticket.id for ticket in job.state.tickets if ticket.id not in {duty.ticket_id for duty in duties}]
    free = [(duties[0].ticket_id, column) for column in ("note", "tags", "status", "priority") if column not in settable(job.rule)]
    place = next(iter([*free, *((ticket_id, "note") for ticket_id in idle)]), None)
    if place is not None:
        yield "over_writer", [*calls, _stray(job, *place)], ["side_effects"]
    fixed = next(((d.ticket_id, column) for d in duties for column in d.fields if column in ("status", "priority", "note")), None)
    if fixed is not None:
        yield "wrong_value", [*calls, _stray(job, *fixed)], ["written"]


def _stray(job: Job, ticket_id: str, column: str) -> Call:
    """An update that gives a column a value that the ticket neither has nor is to have."""
    ticket = job.state.ticket(ticket_id)
    assert ticket is not None
    told = {getattr(ticket, column), *(duty.fields.get(column) for duty in plan(job.rule, job.state) if duty.ticket_id == ticket_id)}
    value: Any = "written by mistake"
    if column in ("status", "priority"):
        value = next(item for item in (STATUSES if column == "status" else PRIORITIES) if item not in told)
    return _call("update_ticket", id=ticket_id, fields={column: ["mistake"] if column == "tags" else value})


def _call(name: str, **arguments: Any) -> Call:
    return {"name": name, "arguments": arguments}


def _turns(job: Job, calls: Sequence[Call]) -> list[list[Call]]:
    """The calls in the last turn, each reminder time that is to be written set to the last mail's before it, one second a call."""
    start = parse_time(job.state.clock.started_at)
    mailed_at, timed = start, []
    for number, call in enumerate(calls, start=1):
        if "to" in call["arguments"]:
            mailed_at = start + timedelta(seconds=number)
        timed.append(replace_argument(call, "fields", partial(_timed, at=format_time(mailed_at))))
    return [*([[]] * job.turns_before), timed]


def _timed(fields: dict[str, Any], *, at: str) -> dict[str, Any]:
    return {column: at if value == DURING_ROLLOUT else value for column, value in fields.items()}


def _writes(job: Job, duties: Sequence[Duty]) -> list[Call]:
    """The calls that do the duties; a digest's mails come first, since what they say is settled by then."""
    if not job.rule.digest:
        return [call for duty in duties for call in _acts(job, duty, mails=True)]
    recipients: dict[str, list[str]] = {}
    for duty in duties:
        for address in sorted(duty.mails):
            recipients.setdefault(address, []).append(duty.ticket_id)
    text = "Please look at these tickets: {}."
    mails = [
        _call("send_digest", to=address, subject="Your tickets", body=text.format(", ".join(ids)), ticket_ids=ids)
        for address, ids in recipients.items()
    ]
    return [*mails, *(call for duty in duties for call in _acts(job, duty, mails=False))]


def _acts(job: Job, duty: Duty, *, mails: bool) -> Iterator[Call]:
    """The calls of one duty: a call a mail, and one for all columns that are written in a row."""
    fields: dict[str, Any] = {}
    for kind, column, value in duty.acts:
        if kind == "set":
            fields[column] = list(value) if isinstance(value, tuple) else value
        elif mails:
            yield from _update(job, duty.ticket_id, fields)
            fields = {}
            yield _mail(job, duty.ticket_id, value)
    yield from _update(job, duty.ticket_id, fields)


def _mail(job: Job, ticket_id: str, to: str) -> Call:
    if job.form == "walk":
        return _call("mail", to=to, ticket=ticket_id)
    return _call("send_email", to=to, subject=f"Reminder: {ticket_id}", body=f"Please look at {ticket_id}.", ticket_id=ticket_id)


def _update(job: Job, ticket_id: str, fields: dict[str, Any]) -> Iterator[Call]:
    if job.form == "walk" and list(fields) == ["last_reminded_at"]:
        yield _call("mark_reminded", ticket=ticket_id)
    elif fields:
        yield _call("update_ticket", id=ticket_id, fields=fields)


def _reads(job: Job, duties: Sequence[Duty]) -> Iterator[Call]:
    """What a careful policy looks up before it acts in the table form."""
    rule, found = job.rule, list(nodes(job.rule))
    in_notes = job.left_out is not None and job.left_out.way != "earlier"
    dated = any(isinstance(node, MonthEnd) or (isinstance(node, Age) and node.unit != "elapsed") for node in found)
    if in_notes or dated or any(isinstance(node, Mail | HandTo) and node.to == "lead" for node in found):
        yield _call("get_desk")
    if job.point is not None:
        yield _call("ask_user", question=job.point.question)
    yield _call("query_tickets", **_filters(rule, ("priority", "status", "older_than_days")))
    tickets = {ticket.id: ticket for ticket in job.state.tickets}
    needs_owners = any(isinstance(node, Team | Away | Load) for node in found) or dated
    owners = [tickets[ticket_id].owner_id for ticket_id in (listed(job) if needs_owners else [duty.ticket_id for duty in duties])]
    by_address = {owner.email.casefold(): owner.id for owner in job.state.owners}
    owners += [by_address[mail] for duty in duties for mail in sorted(duty.mails)]
    yield from (_call("get_owner", owner_id=owner_id) for owner_id in dict.fromkeys(owners))


def _owner_reads(state: DeskState) -> list[Call]:
    return [_call("get_owner", owner_id=owner.id) for owner in state.owners]


def _filters(rule: Rule, allowed: Sequence[str]) -> dict[str, Any]:
    """Filters of a query that no due ticket fails."""
    parts: tuple[Condition, ...] = rule.when.of if isinstance(rule.when, All) else (rule.when,)
    filters: dict[str, Any] = {}
    for part in parts:
        match part:
            case Priority((value,)):
                filters["priority"] = value
            case Status((value,)):
                filters["status"] = value
            case Age("opened", "elapsed", _, "over", limit):
                filters["older_than_days"] = limit
    if any(isinstance(node, Load) for node in nodes(rule)):
        return {}
    return {name: value for name, value in filters.items() if name in allowed}


def listed(job: Job) -> list[str]:
    """Ids of the tickets that the reference's query lists."""
    filters = _filters(job.rule, ("priority", "older_than_days") if job.form == "walk" else ("priority", "status", "older_than_days"))
    start = parse_time(job.state.clock.started_at)
    return [
        ticket.id
        for ticket in job.state.tickets
        if filters.get("priority", ticket.priority) == ticket.priority
        and filters.get("status", ticket.status) == ticket.status
        and ("older_than_days" not in filters or start - parse_time(ticket.opened_at) > timedelta(days=filters["older_than_days"]))
    ]
