"""Pieces of pages: escapes, token chips, state tables, conversations."""

import pytest

from tests.ui.conftest import FOREIGN
from ui.components.clicks import clicked
from ui.components.conversation import conversation
from ui.components.markup import as_json, chip, escape, facts, plain, shown
from ui.components.state_diff import diff_table
from ui.components.token_strip import SIGNALS, Token, strip, tokens_of
from ui.data import CallTrace, StateChange, Trace

WORDS = "say <b>hi</b> & \x00 \ud800 \u202e"


def call(index: int, messages: object, answer: object, participant: str = "agent", call_id: str | None = None) -> CallTrace:
    return CallTrace(
        call_id=call_id or f"c{index}", index=index, participant=participant, role="agent", status="completed", model="m",
        request={"messages": messages}, response=answer and {"choices": [{"message": answer}]}, prompt_ids=None, sampled_ids=None,
        logprobs=None, logprobs_mode=None, tokens_missing=None, finish_reason="stop", model_versions=(), sampling={}, usage={}, error=None,
        error_source=None, retry_of=None, latency_s=0.1, position=index,
    )  # fmt: skip


def trace(*calls: CallTrace) -> Trace:
    return Trace(
        node="rollout-r", reward=None, rewards=(), verdicts=(), reviews=(), rollout=None, bundle=None, group=None, models=(),  # type: ignore[arg-type]
        calls=calls, tools=(), snapshots=(), checks=(),
    )  # fmt: skip


def test_nothing_foreign_becomes_html_or_cannot_be_sent() -> None:
    for built in (escape(WORDS), chip(WORDS), facts({WORDS: WORDS})):
        assert "<b>hi" not in built
        assert "&lt;b&gt;hi&lt;/b&gt; &amp; \\u0000 \\ud800 \\u202e" in built
        built.encode("utf-8")


def test_nothing_foreign_becomes_markdown() -> None:
    assert plain("**a** [b](c) $x$ :material/home:\n# d") == "\\*\\*a\\*\\* \\[b\\]\\(c\\) \\$x\\$ \\:material/home\\: \\# d"


def test_line_ends_and_tabs_stay() -> None:
    assert shown("a\n\tb") == "a\n\tb"


def test_clipped_json_says_what_is_left_out() -> None:
    assert as_json({"a": "x" * 50}, limit=20).endswith("clipped at 20 of 63 characters; the raw JSON holds all")


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_strip_escapes_tokens_and_shows_white_space(signal: str) -> None:
    built = strip(
        [Token(7, "<script>", -0.5), Token(8, " a\n", None), Token(9, None), Token(2, "<|end|>", -float("inf"), special=True)], signal
    )
    assert "<script>" not in built
    assert "&lt;script&gt;" in built
    assert "·a⏎" in built
    assert "<b>?</b><i>9</i>" in built
    assert built.count("tl-special") == 1
    assert built.count('class="tl-token') == 4


def test_a_logprob_colours_from_sure_to_doubtful_and_its_absence_not_at_all() -> None:
    assert 'style="background:hsla(140' in strip([Token(1, "a", 0.0)], "logprob")
    assert 'style="background:hsla(0' in strip([Token(1, "a", -7.0)], "logprob")
    assert "style" not in strip([Token(1, "a", None)], "logprob")


def test_logprobs_of_another_length_are_not_paired() -> None:
    assert [token.logprob for token in tokens_of([1, 2], [-0.1], None)] == [None, None]
    assert [token.logprob for token in tokens_of([1, 2], [-0.1, -0.2], None)] == [-0.1, -0.2]


def test_a_state_table_names_places_and_escapes_values() -> None:
    built = diff_table([StateChange("added", "/outbox/M1", None, {"to": FOREIGN}), StateChange("changed", "/n", None, 1)])
    assert "<script>" not in built
    assert "/outbox/M1" in built
    assert "null" in built


def test_each_message_is_said_once() -> None:
    user, first = {"role": "user", "content": "do it"}, {"role": "assistant", "content": "doing"}
    more, last = {"role": "user", "content": "again"}, {"role": "assistant", "content": "done"}
    said = conversation(trace(call(0, [user], first), call(1, [user, first, more], last)), "agent")
    assert [(m.role, m.text) for m in said] == [("user", "do it"), ("assistant", "doing"), ("user", "again"), ("assistant", "done")]


def test_a_rewritten_history_is_said_so() -> None:
    user, first = {"role": "user", "content": "do it"}, {"role": "assistant", "content": "doing"}
    said = conversation(trace(call(0, [user], first), call(1, [{"role": "user", "content": "summary"}], first)), "agent")
    assert [m.role for m in said] == ["user", "assistant", "note", "user", "assistant"]
    assert "2 earlier messages" in str(said[2].text)


@pytest.mark.parametrize("request_messages", [None, "text", [1, None], [{"content": [{"type": "text", "text": "a"}, 5]}]])
@pytest.mark.parametrize("answer", [None, "text", {}, {"content": None}])
def test_a_conversation_of_any_shape_can_be_shown(request_messages: object, answer: object) -> None:
    assert conversation(trace(call(0, request_messages, answer)), None)[-1].role == "assistant"


def test_a_click_is_a_row_of_the_table_as_it_is_now() -> None:
    assert clicked({"rows": [2], "cells": []}, 3) == 2
    assert clicked({"rows": [], "cells": [(1, "reward")]}, 3) == 1
    assert clicked({"rows": [3], "cells": []}, 3) is None
    assert clicked({"rows": [], "cells": []}, 3) is None
