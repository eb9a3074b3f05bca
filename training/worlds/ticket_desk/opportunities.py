"""Opportunities of the ticket desk: every listed ticket, by why the rule wants its owner reminded or left alone. Pure."""

from collections.abc import Sequence
from datetime import timedelta

from ledger.bundle import BundleDraft
from training.worlds.opportunities import Act, Opportunity
from training.worlds.ticket_desk.meaning import Facts, cooling, facts_of, holds, plan
from training.worlds.ticket_desk.rules import Rule, rule_of
from training.worlds.ticket_desk.solve import Job, listed
from training.worlds.ticket_desk.state import Ticket, parse_time, state_of

BANDS = (0, 12, 24, 36, 48)
"""Hours since the last reminder are told apart at these: they are the cool-downs that rules have."""
_ACTIONS = {"mail": "ticket", "send_email": "ticket_id", "mark_reminded": "ticket", "update_ticket": "id"}


class DeskOpportunities:
    """Tickets of the tasks whose rule is in the spec and whose form is the walk: ids are listed first, then each ticket is opened."""

    def opportunities(self, draft: BundleDraft) -> Sequence[Opportunity]:
        """One opportunity for each ticket that the reference's query lists; acting on it is wanted where the rule is due."""
        if "rule" not in draft.spec or "list_tickets" not in draft.request.get("tools", ()):
            return ()
        rule, state = rule_of(draft.spec["rule"]), state_of(draft.initial_state)
        facts, due = facts_of(state), {duty.ticket_id for duty in plan(rule, state)}
        shown = set(listed(Job(rule, state, "walk")))
        return [
            Opportunity(condition_of(rule, ticket, facts), ticket.id in due, ticket.id) for ticket in state.tickets if ticket.id in shown
        ]

    def acted(self, calls: Sequence[Act]) -> frozenset[str]:
        """Ids of the tickets that were mailed about or written to."""
        found = {str(call.arguments.get(_ACTIONS[call.name])) for call in calls if call.name in _ACTIONS}
        return frozenset(
            found | {str(item) for call in calls if call.name == "send_digest" for item in call.arguments.get("ticket_ids", ())}
        )

    def looked_at(self, calls: Sequence[Act]) -> frozenset[str]:
        """Ids of the tickets that were opened."""
        return frozenset(str(call.arguments.get("ticket")) for call in calls if call.name == "get_ticket")


def condition_of(rule: Rule, ticket: Ticket, facts: Facts) -> str:
    """Why the rule names a listed ticket or not: its match, its exception, and its last reminder beside the rule's cool-down."""
    if not holds(rule.when, ticket, facts):
        return "does not match"
    if rule.unless is not None and holds(rule.unless, ticket, facts):
        return "excepted"
    if ticket.last_reminded_at is None:
        return "never reminded"
    hours = (facts.start - parse_time(ticket.last_reminded_at)) / timedelta(hours=1)
    low = max((band for band in BANDS if band <= hours), default=0)
    high = next((band for band in BANDS if band > low), None)
    band = f"{low} h or longer ago" if high is None else f"{low} to {high} h ago"
    if rule.cooldown is None:
        return f"reminded {band}, no cool-down"
    # On the limit itself the bound decides, and two rules with the same hours want different things.
    edge = f", {'held' if cooling(rule, ticket, facts) else 'due'} on the limit" if hours == rule.cooldown.hours else ""
    return f"reminded {band}, cool-down {rule.cooldown.hours} h{edge}"


OPPORTUNITIES = DeskOpportunities()
