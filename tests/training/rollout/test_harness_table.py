"""The harness as data: every choice is in its digest, and choices that do not fit are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from ledger.blobs import read_many
from ledger.canonical import parse
from ledger.errors import MethodError, SettingsError
from ledger.events import HarnessRegistered
from ledger.ledger import LedgerHandle
from training.bundles import register
from training.rollout.harness import harness_of, tool_loop
from training.rollout.harness_table import HarnessTable, StopRules
from training.worlds.ticket_desk import TicketDesk

CUT = {"name": "truncate_tool_output", "params": {"characters": 50}}
CHOICES: tuple[dict[str, Any], ...] = (
    {}, {"name": "other"}, {"calls_per_turn": 9}, {"calls": 9}, {"max_tokens": 9}, {"wall_s": 9.0}, {"context_tokens": 9},
    {"system": {"mode": "replace", "text": "x"}}, {"system": {"mode": "append", "text": "x"}}, {"system": {"mode": "append", "text": "y"}},
    {"system": {"mode": "none"}},
    {"tool_format": "compact"}, {"tool_format": "json"}, {"tool_format": "json", "tools_in_prompt": True}, {"results": "values"},
    {"stop": {"texts": ["DONE"]}}, {"tool_format": "compact", "stop": {"texts": ["DONE"]}}, {"retries": {"times": 1}},
    {"retries": {"statuses": [503]}}, {"hooks": [{"name": "stop_repeats"}]}, {"hooks": [{"name": "stop_repeats", "params": {"times": 9}}]},
    {"hooks": [{"name": "remind_format"}, {"name": "stop_repeats"}]}, {"hooks": [{"name": "stop_repeats"}, {"name": "remind_format"}]},
    {"style": "rewritten", "hooks": [CUT]}, {"style": "orchestrator", "sub_agent": {}},
    {"style": "orchestrator", "sub_agent": {"system": "x"}}, {"style": "orchestrator", "sub_agent": {"calls": 2}},
    {"style": "orchestrator", "sub_agent": {"starts": 2}}, {"style": "orchestrator", "sub_agent": {"tools": ["mail"]}},
    {"style": "orchestrator", "sub_agent": {"main_tools": ["mail"]}}, {"style": "orchestrator", "sub_agent": {}, "hooks": [CUT]},
)  # fmt: skip


def test_every_choice_makes_another_harness_and_the_same_choices_make_the_same() -> None:
    ids = [harness_of(HarnessTable.model_validate(choice)).harness_id for choice in CHOICES]
    assert len(set(ids)) == len(CHOICES)
    assert ids == [harness_of(HarnessTable.model_validate(choice)).harness_id for choice in CHOICES]
    # What is said outright and is the format's own anyway is no other choice.
    assert tool_loop(stop=StopRules()).harness_id == tool_loop().harness_id


def test_no_key_of_the_table_is_left_out_of_the_choices_above() -> None:
    assert {key for choice in CHOICES for key in choice} == set(HarnessTable.model_fields)


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"style": "orchestrator"}, "'orchestrator' without sub_agent"), ({"sub_agent": {}}, "'chat' with sub_agent"),
        ({"tools_in_prompt": True}, "native tools are sent"), ({"stop": {"texts": ["DONE"], "no_tool_call": False}}, "each line is a call"),
        ({"tool_format": "json", "stop": {"no_tool_call": False}}, "no rule stops the policy"),
        ({"stop": {"texts": ["DONE "]}}, "'DONE '; allowed: one line"), ({"system": {"mode": "append"}}, "'append' with 0 characters"),
        ({"system": {"text": "x"}}, "'task' with 1 characters"), ({"tool_format": "xml"}, "native"), ({"calls": 0}, "calls"),
        ({"thinking": True}, "thinking"),
    ],
)  # fmt: skip
def test_choices_that_do_not_fit_are_refused_with_what_is_allowed(choice: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        HarnessTable.model_validate(choice)


@pytest.mark.parametrize(
    ("choice", "error", "told"),
    [
        ({"hooks": [CUT]}, SettingsError, "'chat' only appends, and hook truncate_tool_output rewrites"),
        ({"style": "rewritten"}, SettingsError, "'rewritten' with hooks \\[\\]"),
        ({"hooks": [{"name": "nothing"}]}, MethodError, "no method 'nothing'; it has remind_format"),
        ({"hooks": [{"name": "stop_repeats", "params": {"time": 1}}]}, MethodError, "takes no parameter 'time'; it takes times"),
    ],
)  # fmt: skip
def test_hooks_that_do_not_fit_are_refused_when_the_harness_is_made(choice: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        harness_of(HarnessTable.model_validate(choice))


def test_a_registration_holds_every_choice(ledger: LedgerHandle) -> None:
    harness = tool_loop(style="rewritten", tool_format="compact", context_tokens=900, hooks=({"name": "strip_thinking"}, CUT))
    assert register(ledger, TicketDesk(), [], harness) == 2
    body = next(event.body for event in ledger.read_stream(f"harness-{harness.harness_id}"))
    assert isinstance(body, HarnessRegistered) and body.choices is not None
    assert (body.style, body.tool_format, body.context_policy) == ("rewritten", "compact", "strip_thinking, truncate_tool_output")
    assert body.limits["context_tokens"] == 900
    with ledger.connection() as conn:
        choices = parse(read_many(conn, [body.choices.blob_id])[body.choices.blob_id])
    assert choices == harness.choices and choices["stop"] == {"texts": ["DONE"], "no_tool_call": False}
    assert choices["hooks"][1]["params"] == {"characters": 50}
