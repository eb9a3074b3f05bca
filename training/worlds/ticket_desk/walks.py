"""Scripted policies for the desk's walk tasks: a teacher that errs as often as it is told, and fixed rules with perfect tool use. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError
from training.worlds import AssistantTurn
from training.worlds.ticket_desk.meaning import cooling, facts_of, holds
from training.worlds.ticket_desk.rules import Age, All, AnyOf, Condition, Cooldown, Not, Priority, Reminded, Rule, rule_of
from training.worlds.ticket_desk.scripts import way_turns
from training.worlds.ticket_desk.solve import Call, Job, reference
from training.worlds.ticket_desk.state import state_of

FIXED_HOURS = 24


def noisy_teacher(draft: BundleDraft, *, noise: float = 0.5, lapse: float = 0.0, tries: int = 1) -> list[AssistantTurn]:
    """The reference, but each listed ticket that is not due is treated as if it were with probability `noise`, and each that is due is
    left alone with probability `lapse`; traversal and writing are always right, so a policy that imitates it can do everything and only
    has to learn when to.

    Args:
        noise, lapse: from 0 to 1.
        tries: the task's how manieth rollout this is, from 1; with the task's name it decides which tickets are mistreated.

    Raises:
        BundleError: a probability is out of range, or the task is no walk.
    """
    for name, given in (("noise", noise), ("lapse", lapse)):
        if not 0 <= given <= 1:
            raise BundleError(f"{name} is {given}; allowed: 0 to 1")
    job = _job(draft)
    rng = Random(f"noisy_teacher/{draft.name}/{tries}")
    calls = reference(job)[-1]
    treated = {ticket_id for call in calls if call["name"] in ("mail", "mark_reminded") for ticket_id in [call["arguments"]["ticket"]]}
    wrongly = {
        call["arguments"]["ticket"]
        for call in calls
        if call["name"] == "get_ticket" and call["arguments"]["ticket"] not in treated and rng.random() < noise
    }
    missed = {ticket_id for ticket_id in sorted(treated) if rng.random() < lapse}
    always = reference(replace(job, rule=_everything(job.rule)))[-1]
    return way_turns([list(_kept(always, (treated - missed) | wrongly))])


def mails_nobody(draft: BundleDraft) -> list[AssistantTurn]:
    """Lists and looks, and does nothing about any ticket."""
    return way_turns([list(_kept(reference(_job(draft))[-1], set()))])


def mails_everyone(draft: BundleDraft) -> list[AssistantTurn]:
    """Does what is asked about every ticket that the list shows, whatever the request says beside priority and age filter."""
    return _walked(draft, _everything)


def ignores_the_window(draft: BundleDraft) -> list[AssistantTurn]:
    """Follows every condition but the cool-down."""
    return _walked(draft, lambda rule: replace(rule, cooldown=None))


def only_never_reminded(draft: BundleDraft) -> list[AssistantTurn]:
    """Takes every reminder, however old, for a reason to leave a ticket alone."""
    return _walked(draft, lambda rule: replace(rule, when=_and(rule.when, Not(Reminded())), cooldown=None))


def fixed_window(draft: BundleDraft) -> list[AssistantTurn]:
    """Follows every condition, with 24 hours for the cool-down whatever the request says, also where it asks for none."""
    return _walked(draft, lambda rule: replace(rule, cooldown=Cooldown("under", FIXED_HOURS)))


def window_alone(draft: BundleDraft) -> list[AssistantTurn]:
    """Reads the cool-down and nothing else: does what is asked about every listed ticket that is not within it."""
    return _walked(draft, lambda rule: replace(_everything(rule), cooldown=rule.cooldown))


WALKS: dict[str, Callable[..., list[AssistantTurn]]] = {
    script.__name__: script
    for script in (
        noisy_teacher, mails_nobody, mails_everyone, ignores_the_window, only_never_reminded, fixed_window, window_alone,
    )
}  # fmt: skip
"""By name; `noisy_teacher` takes parameters, the others are fixed rules."""


def _walked(draft: BundleDraft, change: Callable[[Rule], Rule]) -> list[AssistantTurn]:
    """The plainest way to follow the task's rule as `change` misreads it, over the list that the true rule asks for."""
    job = _job(draft)
    facts = facts_of(job.state)
    other = change(job.rule)
    due = {ticket.id for ticket in job.state.tickets if holds(other.when, ticket, facts) and not cooling(other, ticket, facts)}
    return way_turns([list(_kept(reference(replace(job, rule=_everything(job.rule)))[-1], due))])


def _kept(calls: Sequence[Call], treated: set[str]) -> Iterator[Call]:
    """The reads, and of the writes those about the tickets that are to be treated."""
    yield from (call for call in calls if call["name"] not in ("mail", "mark_reminded") or call["arguments"]["ticket"] in treated)


def _everything(rule: Rule) -> Rule:
    """The rule with nothing of it left but what the list of tickets filters by."""
    parts: tuple[Condition, ...] = rule.when.of if isinstance(rule.when, All) else (rule.when,)
    kept = tuple(part for part in parts if _is_filter(part))
    every = AnyOf((Reminded(), Not(Reminded())))
    return replace(rule, when=All(kept) if len(kept) > 1 else kept[0] if kept else every, cooldown=None)


def _is_filter(part: Any) -> bool:
    return (isinstance(part, Priority) and len(part.values) == 1) or (isinstance(part, Age) and part.bound == "over")


def _and(condition: Condition, further: Condition) -> Condition:
    return All((*(condition.of if isinstance(condition, All) else (condition,)), further))


def _job(draft: BundleDraft) -> Job:
    if "rule" not in draft.spec or "list_tickets" not in draft.request.get("tools", ()):
        raise BundleError(f"bundle {draft.name!r} is no walk; allowed: tasks of families at a level whose form is walk")
    return Job(rule_of(draft.spec["rule"]), state_of(draft.initial_state), "walk")
