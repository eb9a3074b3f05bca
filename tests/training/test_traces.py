"""Supervised rows of recorded conversations: masks by hand, the compact form, and what is refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ledger.errors import TraceError
from training.traces import Message, Trace, compact_messages, trace_row
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.synthesis import slice_tasks

TOOLS = TicketDesk().tools(slice_tasks(1, 0, "train")[0], turn=0)
SAID = (
    {"role": "user", "content": "mail T4"},
    {"role": "assistant", "content": "get T4"},
    {"role": "tool", "content": "ann"},
    {"role": "assistant", "content": "DONE"},
)


class Letters:
    """A template whose tokens are single characters: each role is one capital letter, each answer ends with a full stop."""

    def __init__(self, *, forgets_first: bool = False, pairs: bool = False) -> None:
        self.forgets_first, self.pairs = forgets_first, pairs
        self.messages = 0

    def rendered(self, messages: Sequence[Message], *, answering: bool) -> str:
        self.messages += len(messages)
        kept = messages[1:] if self.forgets_first and len(messages) > 2 else messages
        text = "".join(m["role"][0].upper() + str(m["content"]) + ("." if m["role"] == "assistant" else "") for m in kept)
        return text + ("A" if answering else "")

    def encoded(self, rendered: str) -> tuple[list[int], list[tuple[int, int]]]:
        width = 2 if self.pairs else 1
        places = [(at, min(at + width, len(rendered))) for at in range(0, len(rendered), width)]
        return [ord(rendered[first]) for first, _ in places], places


def test_the_mask_is_on_every_answer_with_its_end_and_on_nothing_else() -> None:
    row = trace_row(Trace("r1", "agent", SAID), Letters())
    text = "Umail T4Aget T4.TannADONE."
    assert "".join(map(chr, row.ids_T)) == text
    assert "".join(letter if kept else "_" for letter, kept in zip(text, row.mask_T, strict=True)) == "_________get T4._____DONE."
    assert row.step_T.tolist() == [-1] * 9 + [0] * 7 + [-1] * 5 + [1] * 5
    assert row.text_only and row.call_ids == () and row.open_reason == "start"
    assert np.isnan(row.logprob_T).all()


class Numbered(Letters):
    """A template in which a message does not render by itself as it does among others, though it goes on from each beginning."""

    def rendered(self, messages: Sequence[Message], *, answering: bool) -> str:
        self.messages += len(messages)
        if messages[0]["role"] != "user":
            raise TraceError("a conversation begins with its user")
        return "".join(f"{at}{Letters.rendered(self, [m], answering=False)}" for at, m in enumerate(messages)) + (
            f"{len(messages)}A" if answering else ""
        )


class Marked(Letters):
    """A template that opens the last answers otherwise than the others."""

    def rendered(self, messages: Sequence[Message], *, answering: bool) -> str:
        text = super().rendered(messages, answering=False)
        return text + ("" if not answering else "A" if len(messages) < 3 else "A?")


def test_a_conversation_of_which_each_message_renders_by_itself_is_rendered_a_few_times() -> None:
    said = [SAID[0], *(SAID[1], SAID[2]) * 20, SAID[3]]
    once = Letters()
    row = trace_row(Trace("r1", "agent", tuple(said)), once)
    assert once.messages < 4 * len(said)
    assert int(row.mask_T.sum()) == 20 * len("get T4.") + len("DONE.")
    assert row.step_T.max() == 20


def test_a_message_that_renders_otherwise_by_itself_is_looked_for_in_its_conversation() -> None:
    row = trace_row(Trace("r1", "agent", SAID), Numbered())
    text = "0Umail T41Aget T4.2Tann3ADONE."
    assert "".join(map(chr, row.ids_T)) == text
    assert [text[at] for at in range(len(text)) if row.step_T[at] == 0] == list("get T4.")
    assert [text[at] for at in range(len(text)) if row.step_T[at] == 1] == list("DONE.")


def test_an_answer_that_does_not_begin_as_its_prompt_ends_is_refused() -> None:
    with pytest.raises(TraceError, match="an append-only one is needed"):
        trace_row(Trace("r1", "agent", SAID), Marked())


def test_a_template_that_renders_the_beginning_otherwise_is_refused() -> None:
    with pytest.raises(TraceError, match="an append-only one is needed"):
        trace_row(Trace("r1", "agent", SAID), Letters(forgets_first=True))


def test_a_token_that_lies_half_in_an_answer_is_refused() -> None:
    with pytest.raises(TraceError, match="rollout r1: answer 0 does not begin and end with a token of its own"):
        trace_row(Trace("r1", "agent", SAID), Letters(pairs=True))


def test_a_conversation_without_an_answer_is_refused() -> None:
    with pytest.raises(TraceError, match="no message of role assistant among 1"):
        trace_row(Trace("r1", "agent", SAID[:1]), Letters())


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "call_0", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_calls_become_lines_and_results_their_values() -> None:
    said = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call("mail", '{"to": "ann@x.example", "ticket": "T46"}')]},
        {"role": "tool", "tool_call_id": "call_0", "content": '{"sent":"M001"}'},
        {"role": "assistant", "content": "DONE"},
    ]
    compact = compact_messages(said, TOOLS)
    assert [message["content"] for message in compact] == ["go", "mail ann@x.example T46", "M001", "DONE"]
    assert all(set(message) == {"role", "content"} for message in compact)
    assert compact_messages(compact, TOOLS) == compact


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        ([call("mail", "{}"), call("mail", "{}")], "an answer with 2 tool calls"),
        ([call("fly", "{}")], "no tool 'fly'"),
        ([call("mail", '{"to": ')], "has no compact form"),
        ([call("mail", '{"cc": "x"}')], "takes no argument 'cc'"),
    ],
)
def test_what_has_no_compact_form_is_refused(calls: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(TraceError, match=why):
        compact_messages([{"role": "assistant", "content": None, "tool_calls": calls}], TOOLS)
