"""Thinking is taken out of earlier answers, and nothing else is."""

import pytest

from ledger.errors import MethodError
from tests.training.hooks.passing import CONVERSATION, passed
from training.hooks import POINTS


async def test_two_answers_lose_their_thinking_and_the_rewriting_says_two() -> None:
    hooked = await passed("strip_thinking", "before_model")
    assert [m["content"] for m in hooked.payload.messages if m["role"] == "assistant"] == ["get_ticket T1", "mail ann@x.example T1"]
    assert [(r.dropped, r.kept, r.reason, r.summary) for r in hooked.rewrites] == [(2, 4, "thinking_stripped", None)]


async def test_what_is_no_answer_stays_and_a_second_passage_changes_nothing() -> None:
    hooked = await passed("strip_thinking", "before_model")
    for new, old in zip(hooked.payload.messages, CONVERSATION, strict=True):
        assert new is old or old["role"] == "assistant"
    again = await passed("strip_thinking", "before_model", messages=hooked.payload.messages)
    assert (again.payload.messages, again.rewrites) == (hooked.payload.messages, ())
    for point in POINTS[1:]:
        assert (await passed("strip_thinking", point)).payload.messages == CONVERSATION


async def test_the_newest_answers_keep_their_thinking_and_a_cut_thought_stays() -> None:
    hooked = await passed("strip_thinking", "before_model", keep=1)
    assert hooked.payload.messages[2]["content"] == "get_ticket T1" and hooked.payload.messages[4] == CONVERSATION[4]
    cut = ({"role": "assistant", "content": "<think>and so on"},)
    assert (await passed("strip_thinking", "before_model", messages=cut)).payload.messages == cut


async def test_a_negative_number_is_refused() -> None:
    with pytest.raises(MethodError, match="keep is -1; allowed: 0 or more"):
        await passed("strip_thinking", "before_model", keep=-1)
