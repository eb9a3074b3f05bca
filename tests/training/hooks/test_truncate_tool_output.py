"""Long tool results are cut to their limit, mark included."""

import pytest

from ledger.errors import MethodError
from tests.training.hooks.passing import CONVERSATION, passed


async def test_a_result_of_100_characters_is_cut_to_50_and_says_how_long_it_was() -> None:
    hooked = await passed("truncate_tool_output", "before_model", characters=50)
    text = hooked.payload.messages[3]["content"]
    assert (len(text), text) == (50, "T1 " + "x" * 25 + " [cut: 100 characters]")
    assert [(r.dropped, r.kept, r.reason) for r in hooked.rewrites] == [(1, 5, "truncation")]


async def test_short_results_and_everything_else_stay_and_a_cut_is_not_cut_again() -> None:
    hooked = await passed("truncate_tool_output", "before_model", characters=50)
    assert [new is old for new, old in zip(hooked.payload.messages, CONVERSATION, strict=True)] == [True] * 3 + [False] + [True] * 2
    again = await passed("truncate_tool_output", "before_model", messages=hooked.payload.messages, characters=50)
    assert (again.payload.messages, again.rewrites) == (hooked.payload.messages, ())
    assert (await passed("truncate_tool_output", "before_model", characters=100)).rewrites == ()
    assert (await passed("truncate_tool_output", "after_tool", characters=50)).payload.messages == CONVERSATION


async def test_the_newest_results_are_shown_whole() -> None:
    assert (await passed("truncate_tool_output", "before_model", characters=50, keep=2)).rewrites == ()
    assert (await passed("truncate_tool_output", "before_model", characters=50, keep=1)).rewrites != ()


async def test_a_limit_below_that_of_the_mark_is_refused() -> None:
    with pytest.raises(MethodError, match="characters is 39 and keep 0; allowed: from 40 on"):
        await passed("truncate_tool_output", "before_model", characters=39)
