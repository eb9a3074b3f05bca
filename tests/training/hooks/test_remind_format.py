"""An answer whose tool call nobody could read is answered with a reminder, a few times."""

from typing import Any

import pytest

from ledger.errors import MethodError
from tests.training.hooks.passing import CONVERSATION, passed
from training.hooks.remind_format import REMINDER

UNREAD = (*CONVERSATION[:2], {"role": "assistant", "content": '<tool_call>{"name": "mail"}'})


async def test_a_conversation_is_reminded_twice_and_no_more() -> None:
    memory: Any = {}
    said = []
    for _ in range(3):
        hooked = await passed("remind_format", "after_model", messages=UNREAD, memory=memory)
        memory = hooked.memory
        said.append(hooked.payload.messages[len(UNREAD) :])
    assert said == [({"role": "user", "content": REMINDER},)] * 2 + [()]


async def test_plain_words_and_calls_that_were_read_and_other_points_pass() -> None:
    read = {**UNREAD[-1], "tool_calls": [{"id": "c", "type": "function", "function": {"name": "mail", "arguments": "{}"}}]}
    for messages in ((*UNREAD[:-1], read), (*UNREAD[:-1], {"role": "assistant", "content": "All done."})):
        assert (await passed("remind_format", "after_model", messages=messages)).payload.messages == messages
    assert (await passed("remind_format", "before_model", messages=UNREAD)).payload.messages == UNREAD


async def test_no_reminder_and_no_words_are_refused() -> None:
    with pytest.raises(MethodError, match="times is 0"):
        await passed("remind_format", "after_model", times=0)
    with pytest.raises(MethodError, match="text ''"):
        await passed("remind_format", "after_model", text="")
