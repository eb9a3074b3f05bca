"""Scripted policies for the ticket desk: a task becomes the assistant messages they would sample, right or wrong in one known way."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError
from training.worlds import AssistantTurn
from training.worlds.ticket_desk.bundles import reminder
from training.worlds.ticket_desk.state import format_time, parse_time

Call = tuple[str, dict[str, Any]]
LOOP_TURNS = 100
_WRITES = ("send_email", "update_ticket")


def oracle(draft: BundleDraft) -> list[AssistantTurn]:
    """The reference, one call a message, then DONE in every user turn. Passes every condition."""
    _reference(draft)
    return way_turns((draft.reference or {})["turns"])


def other_path(draft: BundleDraft) -> list[AssistantTurn]:
    """A right solution by another path: all tickets listed, last ticket first, time written before the mail, address in capitals."""
    if "rule" in draft.spec:
        return _way(draft, "equivalent", "other_order")
    calls: list[Call] = [("query_tickets", {})]
    for mail, update in reversed(_pairs(draft)):
        calls += [("get_owner", {"owner_id": _owner_id(draft, mail)}), update]
        calls.append(("send_email", {**mail[1], "to": f" {mail[1]['to'].upper()}"}))
    return _turns(_at_request(draft, calls))


def wrong_recipient(draft: BundleDraft) -> list[AssistantTurn]:
    """Mails another owner than the ticket's own. Fails C1 and C2."""
    if "rule" in draft.spec:
        return _way(draft, "wrong", "wrong_recipient")

    def stranger(call: Call) -> Call:
        name, arguments = call
        others = [row["email"] for row in draft.initial_state["owners"].values() if row["email"] != arguments.get("to")]
        return (name, {**arguments, "to": others[0]}) if name == "send_email" else call

    return _turns([stranger(call) for call in _reference(draft)])


def duplicate_sender(draft: BundleDraft) -> list[AssistantTurn]:
    """Sends every mail twice. Fails C3."""
    if "rule" in draft.spec:
        return _way(draft, "wrong", "duplicate")
    calls = [call for call in _reference(draft) for _ in range(2 if call[0] == "send_email" else 1)]
    return _turns(_at_request(draft, calls))


def ignores_cooldown(draft: BundleDraft) -> list[AssistantTurn]:
    """Also reminds for the tickets that the rule names and that are within their cool-down. Fails C3."""
    if "rule" in draft.spec:
        return _way(draft, "wrong", "ignores_cooldown")
    spec, limit = draft.spec, _age_limit(draft)
    return _with_extra_reminders(
        draft, lambda row: (row["priority"], row["status"]) == (spec["priority"], spec["status"]) and row["opened_at"] < limit
    )


def mails_on_the_limit(draft: BundleDraft) -> list[AssistantTurn]:
    """Also reminds for the ticket opened exactly at the age limit, which is not older than it. Fails C6."""
    if "rule" in draft.spec:
        return _way(draft, "wrong", "off_by_one")
    limit = _age_limit(draft)
    return _with_extra_reminders(draft, lambda row: row["opened_at"] == limit)


def forgets_reminder_time(draft: BundleDraft) -> list[AssistantTurn]:
    """Mails every owner and writes no reminder time. Fails C4."""
    if "rule" in draft.spec:
        return _way(draft, "wrong", "forgets_fields")
    return _turns([call for call in _reference(draft) if call[0] != "update_ticket"])


def over_writer(draft: BundleDraft) -> list[AssistantTurn]:
    """Solves the task and writes a note that nobody asked for. Fails C5."""
    if "rule" in draft.spec:
        return _way(draft, "wrong", "over_writer")
    noted = [("update_ticket", {"id": mail[1]["ticket_id"], "fields": {"note": "owner was reminded"}}) for mail, _ in _pairs(draft)]
    return _turns([*_reference(draft), *noted])


def loops(draft: BundleDraft) -> list[AssistantTurn]:
    """Repeats its first query for `LOOP_TURNS` messages and never answers. Fails C1."""
    return [_message(_reference(draft)[0])] * LOOP_TURNS


def gives_up(draft: BundleDraft) -> list[AssistantTurn]:
    """Answers without acting. Fails C1."""
    return [AssistantTurn("I am sorry, I cannot do this.")]


def malformed_call(draft: BundleDraft) -> list[AssistantTurn]:
    """Queries, then breaks off inside the arguments of its first mail, so that they are not JSON, and stops. Fails C1."""
    calls = _reference(draft)
    name, arguments = next((call for call in calls if "to" in call[1]), calls[-1])
    raw = json.dumps(arguments)
    return [_message(calls[0]), AssistantTurn(None, ((name, raw[: len(raw) // 2]),)), AssistantTurn("DONE")]


SCRIPTS: dict[str, Callable[[BundleDraft], list[AssistantTurn]]] = {
    script.__name__: script
    for script in (
        oracle, other_path, wrong_recipient, duplicate_sender, ignores_cooldown, mails_on_the_limit, forgets_reminder_time, over_writer,
        loops, gives_up, malformed_call,
    )
}  # fmt: skip


def way_turns(turns: Sequence[Sequence[Mapping[str, Any]]]) -> list[AssistantTurn]:
    """The calls of each user turn, one a message, and DONE after each turn."""
    return [message for calls in turns for message in _turns([(call["name"], dict(call["arguments"])) for call in calls])]


def _way(draft: BundleDraft, kind: str, name: str) -> list[AssistantTurn]:
    """A way that the task's reference holds under that name.

    Raises:
        BundleError: it holds none, since the task's rule has no place for that.
    """
    ways = {way["name"]: way["turns"] for way in (draft.reference or {}).get(kind, [])}
    if name not in ways:
        raise BundleError(f"bundle {draft.name!r} has no {kind} way {name!r}; it has {', '.join(ways)}")
    return way_turns(ways[name])


def _reference(draft: BundleDraft) -> list[Call]:
    if draft.reference is None:
        raise BundleError(f"bundle {draft.name!r} has no reference; a script needs reference.turns")
    return [(call["name"], dict(call["arguments"])) for call in draft.reference["turns"][-1]]


def _pairs(draft: BundleDraft) -> list[tuple[Call, Call]]:
    """Mail and update of each due ticket, in order."""
    writes = [call for call in _reference(draft) if call[0] in _WRITES]
    return list(zip(writes[::2], writes[1::2], strict=True))


def _owner_id(draft: BundleDraft, mail: Call) -> str:
    return str(draft.initial_state["tickets"][mail[1]["ticket_id"]]["owner_id"])


def _age_limit(draft: BundleDraft) -> str:
    """The opening time of a ticket exactly as old as the rule's limit; as text such times sort as they follow each other."""
    return format_time(parse_time(draft.initial_state["clock"]["now"]) - timedelta(days=draft.spec["older_than_days"]))


def _with_extra_reminders(draft: BundleDraft, wanted: Callable[[dict[str, Any]], bool]) -> list[AssistantTurn]:
    """The reference and then a mail and an update for every further ticket that is wanted."""
    calls = _reference(draft)
    done = {arguments.get("ticket_id") for _, arguments in calls}
    for ticket_id, row in draft.initial_state["tickets"].items():
        if ticket_id in done or not wanted(row):
            continue
        mail = reminder(ticket_id, draft.initial_state["owners"][row["owner_id"]]["email"])
        calls += [("send_email", dict(mail)), ("update_ticket", {"id": ticket_id, "fields": {"last_reminded_at": None}})]
    return _turns(_at_request(draft, calls))


def _at_request(draft: BundleDraft, calls: Sequence[Call]) -> list[Call]:
    """The calls with the time of the request as every reminder time, since the reference's times fit its own order alone."""
    now = draft.initial_state["clock"]["now"]
    return [
        (name, {**arguments, "fields": {"last_reminded_at": now}}) if name == "update_ticket" else (name, arguments)
        for name, arguments in calls
    ]


def _message(call: Call) -> AssistantTurn:
    return AssistantTurn(None, ((call[0], json.dumps(call[1])),))


def _turns(calls: Sequence[Call]) -> list[AssistantTurn]:
    return [*(_message(call) for call in calls), AssistantTurn("DONE")]
