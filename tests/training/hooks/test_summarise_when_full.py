"""A full conversation goes on with a summary of its middle."""

import pytest

from ledger.errors import MethodError
from tests.training.hooks.passing import CONVERSATION, Asked, passed
from training.hooks.summarise_when_full import HEAD, INSTRUCTION


async def test_the_middle_of_six_messages_becomes_one_summary() -> None:
    ask = Asked()
    hooked = await passed("summarise_when_full", "before_model", prompt_tokens=100, at_tokens=100, keep=2, ask=ask)
    assert hooked.payload.messages == (*CONVERSATION[:2], {"role": "user", "content": HEAD + "T1 is Ann's."}, *CONVERSATION[4:])
    assert [(r.dropped, r.kept, r.reason, r.summary) for r in hooked.rewrites] == [(2, 4, "compaction", "T1 is Ann's.")]
    assert ask.asked == [((*CONVERSATION[:4], {"role": "user", "content": INSTRUCTION}), "summary")]


async def test_a_tools_result_never_stands_without_its_call() -> None:
    hooked = await passed("summarise_when_full", "context_full", keep=1)
    assert [m["role"] for m in hooked.payload.messages] == ["system", "user", "user", "assistant", "tool"]


async def test_an_earlier_summary_is_summed_up_with_the_rest() -> None:
    first = await passed("summarise_when_full", "context_full", keep=2)
    later = (*first.payload.messages, {"role": "assistant", "content": "get_ticket T2"}, {"role": "tool", "content": "T2"})
    second = await passed("summarise_when_full", "context_full", keep=2, messages=later, ask=Asked("Both."))
    assert [m["content"] for m in second.payload.messages[:3]] == [*(m["content"] for m in CONVERSATION[:2]), HEAD + "Both."]
    assert second.rewrites[0].dropped == 3


async def test_a_conversation_that_is_not_full_or_has_no_middle_stays_and_nobody_is_asked() -> None:
    ask = Asked()
    for tokens in (99, None):
        hooked = await passed("summarise_when_full", "before_model", prompt_tokens=tokens, at_tokens=100, ask=ask)
        assert (hooked.payload.messages, hooked.rewrites) == (CONVERSATION, ())
    for keep in (4, 5, 6, 60):
        assert (await passed("summarise_when_full", "context_full", keep=keep, ask=ask)).rewrites == ()
    assert (await passed("summarise_when_full", "before_model", prompt_tokens=10**9, ask=ask)).rewrites == ()
    assert ask.asked == []


async def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(MethodError, match="keep is -1 and at_tokens None"):
        await passed("summarise_when_full", "before_model", keep=-1)
    with pytest.raises(MethodError, match="keep is 4 and at_tokens 0"):
        await passed("summarise_when_full", "before_model", at_tokens=0)
