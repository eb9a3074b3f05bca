"""Generated desk tasks: repeatable, with rows on the rule's boundaries and at least one due ticket."""

import re
from dataclasses import asdict
from datetime import timedelta

import pytest

from ledger.bundle import Bundle, BundleDraft
from ledger.canonical import digest
from ledger.errors import BundleError
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import HINT, generate
from training.worlds.ticket_desk.scripts import SCRIPTS, oracle
from training.worlds.ticket_desk.state import parse_time

PINNED = "2d934b4d6534c81c7233c3b32c279f95dce59d693b9bea304fe85297cade9f27"


def sealed(draft: BundleDraft) -> str:
    return Bundle(draft, TicketDesk().version, "verifier", "harness").bundle_id


def test_a_seed_gives_the_same_tasks_whatever_the_count_and_another_seed_gives_others() -> None:
    first, again, other = generate(12, seed=5), generate(8, seed=5), generate(12, seed=6)
    assert [digest(asdict(draft)) for draft in first[:8]] == [digest(asdict(draft)) for draft in again]
    assert len({sealed(draft) for draft in first + other}) == 24
    assert len({draft.name for draft in first + other}) == 24


def test_one_task_is_known_by_its_digest_on_every_machine() -> None:
    draft = generate(1, seed=0)[0]
    assert draft.spec == {"priority": "P1", "status": "open", "older_than_days": 7, "cooldown_hours": 24}
    assert digest({"request": draft.request, "state": draft.initial_state, "reference": draft.reference}) == PINNED


def test_every_task_has_a_due_ticket_one_exactly_at_the_age_limit_and_one_within_the_cooldown() -> None:
    seen_at_cooldown = seen_just_under = seen_just_over_age = 0
    for draft in generate(64, seed=0):
        now = parse_time(draft.initial_state["clock"]["now"])
        limit, cooldown = timedelta(days=draft.spec["older_than_days"]), timedelta(hours=draft.spec["cooldown_hours"])
        rows = draft.initial_state["tickets"].values()
        named = [row for row in rows if (row["priority"], row["status"]) == (draft.spec["priority"], "open")]
        ages = [now - parse_time(row["opened_at"]) for row in named]
        rests = [now - parse_time(row["last_reminded_at"]) for row in named if row["last_reminded_at"] is not None]
        due = {call["arguments"]["ticket_id"] for call in draft.reference["turns"][0] if call["name"] == "send_email"}  # type: ignore[index]
        assert 1 <= len(due) <= 3
        assert ages.count(limit) == 1
        assert any(rest < cooldown for rest in rests)
        seen_at_cooldown += cooldown in rests
        seen_just_under += cooldown - timedelta(minutes=1) in rests
        seen_just_over_age += limit + timedelta(minutes=1) in ages
    assert min(seen_at_cooldown, seen_just_under, seen_just_over_age) >= 10


def test_sixty_four_tasks_vary_in_constants_wording_and_split() -> None:
    drafts = generate(64, seed=0)
    assert len({(draft.spec["priority"], draft.spec["older_than_days"], draft.spec["cooldown_hours"]) for draft in drafts}) >= 20
    assert len({draft.provenance["wording"] for draft in drafts}) == 5
    assert [draft.split for draft in drafts].count("train") == 48
    assert [draft.split for draft in drafts].count("test") == 8


def test_the_request_states_every_constant_of_the_rule_and_the_time() -> None:
    for draft in generate(64, seed=1):
        text = draft.request["turns"][0][0]["content"]
        assert draft.spec["priority"] in text
        assert re.search(rf"\b{draft.spec['older_than_days']} days", text)
        assert re.search(rf"\b{draft.spec['cooldown_hours']} hours", text)
        assert draft.initial_state["clock"]["now"] in draft.request["system"]


def test_nothing_that_a_policy_sees_names_a_due_ticket_or_an_address() -> None:
    assert not re.search("[0-9@]", HINT)
    assert len(HINT.split()) <= 100
    for draft in generate(16, seed=2):
        shown = str(draft.request)
        assert not any(ticket_id in shown for ticket_id in draft.initial_state["tickets"])
        assert "@" not in shown


def test_a_script_needs_the_reference() -> None:
    draft = BundleDraft(name="bare", world="ticket_desk", request={"turns": [[]]}, initial_state={})
    with pytest.raises(BundleError, match="reference"):
        oracle(draft)


def test_every_script_ends_with_an_answer_but_the_one_that_loops() -> None:
    draft = generate(1, seed=0)[0]
    assert [name for name, script in SCRIPTS.items() if script(draft)[-1].content is None] == ["loops"]


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(BundleError, match="-1"):
        generate(-1, seed=0)
