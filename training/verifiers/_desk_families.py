"""The eight conditions of a desk rule of any family, each decided from the first state, the last state and the rule alone."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ledger.errors import VerifierFailed
from training.verifiers import Condition, ConditionStatus, JudgeTask, Verdict
from training.verifiers._desk_reader import Reader, Row, Truth, address, every, moment, opposite
from training.worlds.difference import differences, is_within, pointer

CONDITIONS = ("mailed", "recipients", "cooldown", "exceptions", "matching", "limit", "written", "side_effects")
Item = tuple[str, Truth, Mapping[str, Any]]
_TABLES = ("tickets", "owners", "outbox")
_FREE = ("call_log", "clock", "user")
_COLUMN_OF = {
    "SetReminded": "last_reminded_at", "SetStatus": "status", "SetPriority": "priority", "HandTo": "owner_id", "AddTag": "tags",
    "SetNote": "note",
}  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """What is to become of one due ticket: addresses to be mailed, and columns with their values."""

    mails: frozenset[str]
    columns: Mapping[str, Any]


def verdict(s0: Any, s_end: Any, task: JudgeTask, *, without: Collection[str] = (), any_recipient: bool = False) -> Verdict:
    """The verdict on a task whose spec holds a `rule`.

    Where the request left a point open and the user told it wrongly, or not at all, a state that follows another reading that the user
    allowed is no failure of the policy: what fails is then an error, and says so.

    Args:
        without: conditions that are left out, for verifiers that are wrong on purpose.
        any_recipient: whom a mail goes to does not matter, for the same reason.
    Raises:
        VerifierFailed: a view is not a desk's, or the rule holds what this verifier does not know.
    """
    told = _judged(s0, s_end, task.draft.spec["rule"], without, any_recipient)
    log = [row for row in s_end.get("user", {}).get("log", []) if row.get("error") is not None]
    if not log:
        return told
    blamed = [row["topic"] for row in log]
    note = Condition("user_error", "failed", {"log": log}, in_basis=False)
    if told.passed is False and any(
        _judged(s0, s_end, reading["rule"], without, any_recipient).passed for reading in _allowed(task, s_end, blamed)
    ):
        excused = tuple(_excused(condition, log) for condition in told.conditions)
        return Verdict((*excused, note), told.side_effects)
    return Verdict((*told.conditions, note), told.side_effects)


def _allowed(task: JudgeTask, s_end: Row, blamed: Sequence[str]) -> list[Row]:
    """The readings that the user's last word on each topic allows: the one that it states, or any when there was no answer."""
    last = {row["topic"]: row for row in s_end["user"]["log"] if row.get("topic") is not None}
    return [
        reading
        for reading in task.draft.spec.get("readings", [])
        if reading["topic"] in blamed
        and (last[reading["topic"]]["error"] == "silent" or last[reading["topic"]]["reply"] == reading["reply"])
    ]


def _excused(condition: Condition, log: Sequence[Row]) -> Condition:
    if condition.status != "failed":
        return condition
    return Condition(condition.name, "error", {**condition.evidence, "user_error": list(log)}, condition.in_basis)


def _judged(s0: Any, s_end: Any, rule: Row, without: Collection[str], any_recipient: bool) -> Verdict:
    case = _Case(s0, s_end, rule)
    found = case.conditions(any_recipient)
    strays = case.strays if "side_effects" not in without else ()
    return Verdict(tuple(found[name] for name in CONDITIONS if name not in without), strays)


class _Case:
    """One rollout's two states under one rule."""

    def __init__(self, s0: Any, s_end: Any, rule: Row) -> None:
        for side, view in (("first", s0), ("last", s_end)):
            if not isinstance(view, Mapping) or not all(isinstance(view.get(table), Mapping) for table in (*_TABLES, "clock")):
                raise VerifierFailed(f"the {side} state needs {', '.join(_TABLES)} and clock as objects")
        start, end = moment(s0["clock"].get("now")), moment(s_end["clock"].get("now"))
        if start is None or end is None:
            raise VerifierFailed(f"the clock reads {s0['clock'].get('now')!r} and {s_end['clock'].get('now')!r}")
        self.s0, self.s_end, self.rule = s0, s_end, rule
        self.start: datetime = start
        self.end: datetime = end
        self.reader = Reader(rule, s0, start)
        self.mails: dict[str, Row] = {mail_id: mail for mail_id, mail in s_end["outbox"].items() if mail_id not in s0["outbox"]}
        self.due = self.reader.due()
        self.columns = sorted({_COLUMN_OF[step["kind"]] for step in self.reader.every_step() if step["kind"] in _COLUMN_OF})
        self.wanted = {ticket_id: self._wanted(ticket_id) for ticket_id, due in self.due.items() if due is not False}
        self.acted = [ticket_id for ticket_id in s0["tickets"] if self._about(ticket_id) or self._moved(ticket_id)]

    def conditions(self, any_recipient: bool) -> dict[str, Condition]:
        """All conditions by name."""
        found: dict[str, list[Item]] = {
            "mailed": self._mailed(any_recipient),
            "recipients": self._recipients(any_recipient),
            "cooldown": self._cooldown(),
            "exceptions": self._left_alone(self.reader.excepted),
            "matching": self._left_alone(self._unnamed) + self._unknown(),
            "limit": self._limit(),
            "written": self._written(),
            "side_effects": [(str(stray["path"]), False, stray) for stray in self.strays],
        }
        return {name: _condition(name, items) for name, items in found.items()}

    @cached_property
    def strays(self) -> tuple[Mapping[str, Any], ...]:
        """Every change but new mails and what the rule's steps write, wherever they write it."""
        free = [pointer("outbox", mail_id) for mail_id in self.mails]
        for ticket_id in self.s0["tickets"]:
            columns = self.columns if self.due[ticket_id] is not False else self._moved(ticket_id)
            free += [pointer("tickets", ticket_id, column) for column in columns]
        before, after = ({key: value for key, value in view.items() if key not in _FREE} for view in (self.s0, self.s_end))
        return tuple(
            {"path": change.path, "before": change.before, "after": change.after}
            for change in differences(before, after).changes
            if not any(is_within(change.path, place) for place in free)
        )

    def _mailed(self, any_recipient: bool) -> list[Item]:
        """Every mail that the rule asks for was sent."""
        items: list[Item] = []
        for ticket_id, wanted in self.wanted.items():
            sent = [address(mail.get("to")) for mail in self._about(ticket_id)]
            missing = [] if wanted is None or (any_recipient and sent) else sorted(wanted.mails - set(sent))
            truth = None if wanted is None or (missing and self.due[ticket_id] is None) else not missing
            items.append((ticket_id, truth, {"ticket_id": ticket_id, "missing": missing, "sent": sent}))
        return items

    def _recipients(self, any_recipient: bool) -> list[Item]:
        """Every mail goes to somebody whom the rule names for each ticket that it is about; to anybody with `any_recipient`."""
        items: list[Item] = []
        for mail_id, mail in self.mails.items():
            for ticket_id in _tickets_of(mail):
                allowed = self._addresses(ticket_id)
                truth: Truth = None if allowed is None else any_recipient or address(mail.get("to")) in allowed
                evidence = {"mail_id": mail_id, "ticket_id": ticket_id, "to": mail.get("to"), "allowed": sorted(allowed or ())}
                items.append((mail_id, truth, evidence))
        return items

    def _cooldown(self) -> list[Item]:
        """Nobody is mailed twice about a ticket, and nothing is done about one that was reminded lately."""
        items = self._left_alone(self.reader.cooling)
        pairs = Counter((ticket_id, address(mail.get("to"))) for mail in self.mails.values() for ticket_id in _tickets_of(mail))
        items += [(ticket_id, count == 1, {"ticket_id": ticket_id, "to": to, "mails": count}) for (ticket_id, to), count in pairs.items()]
        return items

    def _left_alone(self, left_out: Any) -> list[Item]:
        """No ticket was acted on for which `left_out` holds."""
        found: list[Item] = []
        for ticket_id in self.acted:
            out = left_out(self.s0["tickets"][ticket_id])
            found.append(
                (ticket_id, None if out is None else not out, {"ticket_id": ticket_id, "row": dict(self.s0["tickets"][ticket_id])})
            )
        return found

    def _unnamed(self, ticket: Row) -> Truth:
        named = self.reader.named(ticket)
        return None if named is None else not named

    def _unknown(self) -> list[Item]:
        """Mails about tickets that do not exist."""
        mails = [(mail_id, ticket_id) for mail_id, mail in self.mails.items() for ticket_id in _tickets_of(mail)]
        return [(mail_id, False, {"mail_id": mail_id, "ticket_id": ticket_id}) for mail_id, ticket_id in mails if ticket_id not in self.due]

    def _limit(self) -> list[Item]:
        """The cap of every owner is kept, and with a digest nobody gets two mails about different tickets."""
        items: list[Item] = []
        for ticket_id in self.acted if self.rule["cap"] is not None else ():
            row = self.s0["tickets"][ticket_id]
            else_due = every((self.reader.named(row), opposite(self.reader.excepted(row)), opposite(self.reader.cooling(row))))
            truth = True if else_due is False else None if else_due is None else self.due[ticket_id]
            items.append((ticket_id, truth, {"ticket_id": ticket_id, "owner_id": row.get("owner_id"), "cap": dict(self.rule["cap"])}))
        if self.rule["digest"]:
            sets: dict[Any, set[tuple[str, ...]]] = {}
            for mail in self.mails.values():
                sets.setdefault(address(mail.get("to")), set()).add(tuple(_tickets_of(mail)))
            items += [(str(to), len(found) == 1, {"to": to, "mails": sorted(map(list, found))}) for to, found in sets.items()]
        return items

    def _written(self) -> list[Item]:
        """Each due ticket has the values that the steps ask for, and keeps those of the other columns that steps write."""
        items: list[Item] = []
        for ticket_id, wanted in self.wanted.items():
            before, after = self.s0["tickets"][ticket_id], self.s_end["tickets"].get(ticket_id, {})
            for column in self.columns:
                new = wanted is not None and column in wanted.columns
                value = wanted.columns[column] if wanted is not None and new else _cell(before, column)
                right = self._fresh(before, after) if new and column == "last_reminded_at" else _cell(after, column) == value
                evidence = {"ticket_id": ticket_id, "column": column, "wanted": value, "seen": _cell(after, column)}
                truth: Truth = None if wanted is None or (not right and self.due[ticket_id] is None) else right
                items.append((f"{ticket_id}.{column}", truth, evidence))
        return items

    def _fresh(self, before: Row, after: Row) -> bool:
        written = moment(after.get("last_reminded_at"))
        return written is not None and after != before and self.start <= written <= self.end

    def _wanted(self, ticket_id: str) -> Wanted | None:
        steps = self.reader.steps(self.s0["tickets"][ticket_id])
        return None if steps is None else self._done(steps, self.s0["tickets"][ticket_id])

    def _done(self, steps: Sequence[Row], ticket: Row) -> Wanted:
        """What the steps, one after the other, come to: who owns the ticket changes on the way."""
        owner_id = ticket.get("owner_id")
        mails: set[str] = set()
        columns: dict[str, Any] = {}
        for step in steps:
            kind = step["kind"]
            if kind == "Mail":
                mails.add(str(address(self.reader.person(self.reader.contact(step["to"], owner_id)).get("email"))))
            elif kind == "HandTo":
                owner_id = columns["owner_id"] = self.reader.contact(step["to"], owner_id)
            elif kind == "AddTag":
                columns["tags"] = sorted({*(columns.get("tags") or ticket.get("tags", ())), step["tag"]})
            elif kind == "SetReminded":
                columns["last_reminded_at"] = [self.s0["clock"]["now"], self.s_end["clock"]["now"]]
            elif kind in _COLUMN_OF:
                columns[_COLUMN_OF[kind]] = step["text" if kind == "SetNote" else "value"]
            else:
                raise VerifierFailed(f"the rule holds a step of kind {kind!r}, which this verifier does not know")
        return Wanted(frozenset(mails), columns)

    def _addresses(self, ticket_id: str) -> frozenset[str] | None:
        """Whom a mail about the ticket may go to: for one that is not due whoever any of the rule's steps would mail."""
        if ticket_id not in self.due:
            return frozenset()
        if self.due[ticket_id] is not False:
            wanted = self.wanted[ticket_id]
            return None if wanted is None else wanted.mails
        row = self.s0["tickets"][ticket_id]
        return frozenset(mail for steps in self.reader.step_lists() for mail in self._done(steps, row).mails)

    def _about(self, ticket_id: str) -> list[Row]:
        return [mail for mail in self.mails.values() if ticket_id in _tickets_of(mail)]

    def _moved(self, ticket_id: str) -> list[str]:
        """The columns of a ticket that changed to what some step of the rule writes."""
        before, after = self.s0["tickets"][ticket_id], self.s_end["tickets"].get(ticket_id)
        if after is None:
            return []
        values = [self._done(steps, before).columns for steps in self.reader.step_lists()]
        moved = []
        for column in self.columns:
            if _cell(before, column) == _cell(after, column):
                continue
            fresh = column == "last_reminded_at" and (self._fresh(before, after) or bool(self._about(ticket_id)))
            if fresh or any(column in row and row[column] == _cell(after, column) for row in values):
                moved.append(column)
        return moved


def _cell(row: Row, column: str) -> Any:
    return sorted(row.get("tags", ())) if column == "tags" else row.get(column)


def _tickets_of(mail: Row) -> list[str]:
    return [str(mail.get("ticket_id")), *mail.get("also", ())]


def _condition(name: str, items: Sequence[Item]) -> Condition:
    """A condition over all items: one that fails decides it; else one that cannot be decided makes it an error; no item at all passes."""
    failed = [dict(evidence) for _, truth, evidence in items if truth is False]
    undecided = [dict(evidence) for _, truth, evidence in items if truth is None]
    status: ConditionStatus = "failed" if failed else "error" if undecided else "passed"
    checked = list(dict.fromkeys(key for key, _, _ in items))
    return Condition(name, status, {"checked": checked, "failed": failed, "undecided": undecided, "vacuous": not items})
