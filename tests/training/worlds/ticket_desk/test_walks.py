"""Scripted policies for walk tasks: what each does, and that it fails by that alone."""

import json
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError
from training.verifiers import JudgeTask
from training.verifiers.desk_conditions import desk_conditions
from training.worlds import ToolCall
from training.worlds.source import with_params
from training.worlds.ticket_desk import SOURCE, TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.meaning import facts_of, holds, plan
from training.worlds.ticket_desk.rules import rule_of
from training.worlds.ticket_desk.scripts import oracle
from training.worlds.ticket_desk.synthesis import slice_tasks
from training.worlds.ticket_desk.walks import WALKS, noisy_teacher

DESK = TicketDesk()
WINDOW = slice_tasks(24, 5, "train", judging=["cooldown"])
MIXED = slice_tasks(24, 5, "train")


def played(draft: BundleDraft, name: str, **params: Any) -> tuple[Any, Any, list[tuple[str, Any]]]:
    """First and last state, and the calls."""
    start = state = DESK.reset(draft, seed=0)
    calls = [(tool, json.loads(raw)) for turn in WALKS[name](draft, **params) for tool, raw in turn.tool_calls]
    for tool, arguments in calls:
        state, observation = DESK.call(state, ToolCall(tool, arguments))
        assert observation.error_class is None
    return start, state, calls


def failed(draft: BundleDraft, name: str, **params: Any) -> set[str]:
    start, end, _ = played(draft, name, **params)
    verdict = desk_conditions(DESK.view(start), DESK.view(end), (), JudgeTask(draft, DESK.material))
    return {condition.name for condition in verdict.conditions if condition.in_basis and condition.status != "passed"}


def test_without_noise_the_teacher_is_the_oracle() -> None:
    assert [noisy_teacher(draft, noise=0.0) for draft in MIXED] == [oracle(draft) for draft in MIXED]


def test_with_all_noise_the_teacher_mails_everyone() -> None:
    assert [noisy_teacher(draft, noise=1.0) for draft in MIXED] == [WALKS["mails_everyone"](draft) for draft in MIXED]


def test_the_teacher_does_all_that_is_asked_and_errs_on_listed_tickets_as_often_as_it_is_told() -> None:
    wrong = idle = 0
    for draft in MIXED:
        due = {duty.ticket_id for duty in plan(rule_of(draft.spec["rule"]), DESK.reset(draft, seed=0))}
        for tries in range(1, 9):
            calls = played(draft, "noisy_teacher", noise=0.4, tries=tries)[2]
            opened, mailed = ({a["ticket"] for tool, a in calls if tool == name} for name in ("get_ticket", "mail"))
            assert due <= mailed <= opened
            wrong, idle = wrong + len(mailed - due), idle + len(opened - due)
    assert idle > 200
    assert abs(wrong / idle - 0.4) < 0.08


def test_a_teacher_with_lapses_leaves_due_tickets_alone_as_often_as_it_is_told_and_opens_them_all_the_same() -> None:
    missed = wanted = 0
    for draft in MIXED:
        due = {duty.ticket_id for duty in plan(rule_of(draft.spec["rule"]), DESK.reset(draft, seed=0))}
        for tries in range(1, 9):
            calls = played(draft, "noisy_teacher", noise=0.0, lapse=0.3, tries=tries)[2]
            opened, mailed = ({a["ticket"] for tool, a in calls if tool == name} for name in ("get_ticket", "mail"))
            assert mailed <= due <= opened
            missed, wanted = missed + len(due - mailed), wanted + len(due)
    assert wanted > 200
    assert abs(missed / wanted - 0.3) < 0.06


def test_the_teacher_repeats_itself_and_another_try_errs_otherwise() -> None:
    one, two = ([noisy_teacher(draft, noise=0.5, tries=tries) for draft in MIXED] for tries in (1, 2))
    assert one == [noisy_teacher(draft, noise=0.5) for draft in MIXED]
    assert one != two


def test_no_fixed_rule_solves_tasks_whose_window_must_be_read_but_the_one_that_reads_it() -> None:
    solved = {name: sum(not failed(draft, name) for draft in WINDOW) for name in WALKS if name != "noisy_teacher"}
    assert solved.pop("window_alone") == len(WINDOW)
    assert solved.pop("fixed_window") < len(WINDOW) / 2
    assert set(solved.values()) <= {0, 1, 2, 3, 4, 5, 6}
    assert solved["mails_nobody"] == solved["mails_everyone"] == solved["ignores_the_window"] == 0


def test_each_rule_fails_by_what_it_does_not_read() -> None:
    assert {name for draft in WINDOW for name in failed(draft, "mails_everyone")} == {"cooldown"}
    assert {name for draft in WINDOW for name in failed(draft, "mails_nobody")} <= {"mailed", "written"}
    assert {name for draft in WINDOW for name in failed(draft, "only_never_reminded")} <= {"mailed", "written"}
    assert {name for draft in MIXED for name in failed(draft, "window_alone")} == {"matching"}
    assert {name for draft in MIXED for name in failed(draft, "mails_everyone")} == {"matching", "cooldown"}


def test_ignoring_the_window_follows_every_other_condition() -> None:
    for draft in MIXED:
        start, _, calls = played(draft, "ignores_the_window")
        rule, facts = rule_of(draft.spec["rule"]), facts_of(start)
        matching = {ticket.id for ticket in start.tickets if holds(rule.when, ticket, facts)}
        assert {arguments["ticket"] for tool, arguments in calls if tool == "mail"} == matching


@pytest.mark.parametrize("name", sorted(WALKS))
def test_a_task_that_is_no_walk_is_refused(name: str) -> None:
    with pytest.raises(BundleError, match="is no walk"):
        WALKS[name](generate(1, seed=0)[0])


def test_noise_out_of_range_is_refused_and_parameters_are_checked_before_anything_runs() -> None:
    with pytest.raises(BundleError, match="noise is 1.5"):
        noisy_teacher(WINDOW[0], noise=1.5)
    with pytest.raises(BundleError, match="lapse is -0.5"):
        noisy_teacher(WINDOW[0], lapse=-0.5)
    bound = with_params(SOURCE.scripts["noisy_teacher"], {"noise": 1.0})
    assert bound(WINDOW[0]) == noisy_teacher(WINDOW[0], noise=1.0)
    assert with_params(SOURCE.scripts["oracle"], {}) is SOURCE.scripts["oracle"]
    with pytest.raises(SettingsError, match="noisy_teacher takes no parameter 'p'; it takes noise, lapse, tries"):
        with_params(SOURCE.scripts["noisy_teacher"], {"p": 0.6})
    with pytest.raises(SettingsError, match="takes no parameter 'noise'; it takes none"):
        with_params(SOURCE.scripts["oracle"], {"noise": 0.6})
