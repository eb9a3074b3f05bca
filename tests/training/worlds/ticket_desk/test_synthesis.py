"""Tasks of families: the same twice, split without straddling, with requests that leave out what they say they leave out."""

import re
import time
from collections import defaultdict
from dataclasses import asdict
from functools import cache
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import BundleError, SettingsError
from ledger.settings import Settings
from training.worlds import ToolCall
from training.worlds.source import TaskQuery
from training.worlds.ticket_desk import SOURCE, TicketDesk
from training.worlds.ticket_desk.meaning import plan
from training.worlds.ticket_desk.mutants import mutants
from training.worlds.ticket_desk.rules import rule_of
from training.worlds.ticket_desk.situations import NEEDED
from training.worlds.ticket_desk.synthesis import synthesize, tasks

DESK = TicketDesk()


@cache
def some() -> tuple[BundleDraft, ...]:
    return tuple(synthesize(48, seed=3))


def said(draft: BundleDraft) -> str:
    return "\n".join(message["content"] for turn in draft.request["turns"] for message in turn)


def test_the_same_arguments_give_the_same_tasks_and_another_seed_gives_others() -> None:
    assert [digest(asdict(draft)) for draft in synthesize(8, seed=3)] == [digest(asdict(draft)) for draft in some()[:8]]
    contents = [draft.provenance["content"] for draft in (*some()[:8], *synthesize(8, seed=4))]
    assert len(set(contents)) == 16


def test_no_family_wording_name_pool_or_content_straddles_two_splits() -> None:
    splits: dict[tuple[str, str], set[str]] = defaultdict(set)
    for draft in (*some(), *synthesize(12, seed=5)):
        for kind in ("family", "wording", "names", "content"):
            splits[kind, draft.provenance[kind]].add(draft.split)
    assert {draft.split for draft in some()} == {"train", "validation", "test"}
    assert [key for key, seen in splits.items() if len(seen) > 1] == []


def test_every_state_shows_every_misreading_that_it_needs_to_show() -> None:
    for draft in some():
        rule, state = rule_of(draft.spec["rule"]), DESK.reset(draft, seed=0)
        for name, other in mutants(rule):
            if name in NEEDED:
                assert plan(other, state) != plan(rule, state), (draft.name, name)


def test_a_request_says_every_constant_but_the_one_that_stands_elsewhere() -> None:
    seen = set()
    for draft in some():
        text, rule = said(draft), draft.spec["rule"]
        stale = next((way for way in (draft.reference or {})["wrong"] if way["name"] == "stale_limit"), None)
        ages = re.findall(r"'limit': (\d+)", str({key: rule[key] for key in ("when", "unless", "tiers")}))
        left = [number for number in ages if not re.search(rf"\b{number}\b", text)]
        assert len(left) <= 1, (draft.name, text)
        notes = " ".join(draft.initial_state.get("desk", {}).get("notes", []))
        for number in left:
            assert re.search(rf"\b{number} \w*\s?days", notes), (draft.name, notes)
            assert stale is not None
        seen.add("left out" if left else "said")
        if len(draft.request["turns"]) > 1:
            assert (draft.reference or {})["turns"][0] == []
            seen.add("earlier turn")
    assert seen == {"left out", "said", "earlier turn"}


def test_a_mail_after_a_ticket_was_handed_on_goes_to_the_new_owner_and_the_request_says_so() -> None:
    for draft in some():
        for steps in [draft.spec["rule"]["steps"], *(tier["steps"] for tier in draft.spec["rule"]["tiers"])]:
            kinds = [step["kind"] for step in steps]
            if "HandTo" in kinds and "Mail" in kinds[kinds.index("HandTo") :]:
                assert "new owner" in said(draft)


def test_an_open_point_is_settled_by_the_question_of_the_reference() -> None:
    asked = 0
    for draft in some():
        if "readings" not in draft.spec:
            continue
        replies = [reading["reply"] for reading in draft.spec["readings"]]
        question = next(call["arguments"]["question"] for call in (draft.reference or {})["turns"][-1] if call["name"] == "ask_user")
        state, observation = DESK.call(DESK.reset(draft, seed=0), ToolCall("ask_user", {"question": question}))
        assert replies[0] in observation.content
        assert state.user is not None
        assert [entry.error for entry in state.user.log] == [None]
        assert replies[0] not in said(draft)
        asked += 1
    assert asked >= 3


def test_the_lowest_level_is_walked_with_few_rows_and_the_highest_is_not() -> None:
    low, high = tasks(8, 0, level=0), tasks(8, 0, level=6)
    assert all(draft.request["tools"][:2] == ["list_tickets", "get_ticket"] and "desk" not in draft.initial_state for draft in low)
    sizes = [sum(len(draft.initial_state["tickets"]) for draft in drafts) / 8 for drafts in (low, high)]
    steps = [sum(len((draft.reference or {})["turns"][-1]) for draft in drafts) / 8 for drafts in (low, high)]
    assert sizes[0] < 10 < sizes[1]
    assert steps[0] < steps[1]
    assert any(fact["error"] for draft in high for fact in draft.initial_state["user"]["facts"] if "error" in fact)
    assert {draft.provenance["wording"] for draft in low if draft.split == "train"} == {"brief"}


def test_more_tasks_than_families_come_with_other_constants() -> None:
    drafts = tasks(40, 1, level=0)
    assert len({draft.provenance["content"] for draft in drafts}) == 40
    assert len({draft.provenance["family"] for draft in drafts}) < 40


@pytest.mark.parametrize(("count", "level"), [(-1, None), (10_000, None), (1, 99), (1, -1), (500, 0)])
def test_too_many_families_or_no_such_level_is_refused(count: int, level: int | None) -> None:
    with pytest.raises(BundleError, match="allowed"):
        synthesize(count, 0, level=level)


def test_experiments_get_families_by_an_option(tmp_path: Any) -> None:
    settings = Settings(data_dir=tmp_path)
    drafts = SOURCE.tasks(DESK, TaskQuery(5, 7, {"families": True, "level": 2}), settings)
    assert [asdict(draft) for draft in drafts] == [asdict(draft) for draft in tasks(5, 7, level=2)]
    assert SOURCE.tasks(DESK, TaskQuery(2, 7), settings)[1].name == "desk_7_1"
    for options in ({"level": 2}, {"families": 1}, {"families": True, "level": "2"}, {"famlies": True}):
        with pytest.raises(SettingsError):
            SOURCE.tasks(DESK, TaskQuery(1, 7, options), settings)


def test_scripts_play_the_ways_of_the_reference_and_name_what_a_task_does_not_have() -> None:
    draft = next(
        draft
        for draft in some()
        if len(draft.request["turns"]) > 1 and any(w["name"] == "duplicate" for w in (draft.reference or {})["wrong"])
    )
    oracle = SOURCE.scripts["oracle"](draft)
    assert [turn.content for turn in oracle if not turn.tool_calls] == ["DONE", "DONE"]
    assert len(SOURCE.scripts["duplicate_sender"](draft)) > 2
    bare = next(draft for draft in some() if not any(w["name"] == "ignores_cooldown" for w in (draft.reference or {})["wrong"]))
    with pytest.raises(BundleError, match="ignores_cooldown"):
        SOURCE.scripts["ignores_cooldown"](bare)


def test_fork_and_compare_of_a_large_state_take_well_under_fifty_milliseconds() -> None:
    draft = max(some(), key=lambda draft: len(draft.initial_state["tickets"]))
    snapshot = DESK.snapshot(DESK.reset(draft, seed=0))
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        left, right = DESK.fork(snapshot, 2)
        DESK.diff(left, right)
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.05
