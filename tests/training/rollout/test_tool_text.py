"""Tool calls as compact lines: what is written is read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.rollout.tool_text import call_line, parsed_line, result_text

TOOLS = [
    {"type": "function", "function": {"name": "mail", "parameters": {"type": "object", "properties": {
        "to": {"type": "string"}, "count": {"type": "number"}, "urgent": {"type": "boolean"}, "more": {"type": "object"},
    }}}},
]  # fmt: skip


def test_a_call_is_its_name_and_its_arguments_in_the_order_of_the_schema() -> None:
    assert call_line("mail", {"count": 2, "to": "ann@x.example"}, TOOLS) == "mail ann@x.example 2"
    assert call_line("mail", {"urgent": True}, TOOLS) == "mail - - true"
    assert parsed_line("mail - - true", TOOLS) == ("mail", '{"urgent":true}')


@given(
    to=st.text(max_size=12), count=st.integers(-999, 999) | st.floats(allow_nan=False, allow_infinity=False, width=32), urgent=st.booleans(),
    more=st.dictionaries(st.text("abc _", min_size=1, max_size=4), st.text(max_size=5) | st.booleans() | st.none(), max_size=3),
)  # fmt: skip
def test_every_call_that_can_be_said_is_read_back(to: str, count: float, urgent: bool, more: dict[str, object]) -> None:
    arguments = {"to": to, "count": count, "urgent": urgent, "more": more}
    line = call_line("mail", arguments, TOOLS)
    assert "\n" not in line and len(line.split()) == 5
    name, raw = parsed_line(line, TOOLS)
    assert (name, json.loads(raw)) == ("mail", arguments)


def test_an_argument_that_the_schema_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(LookupError, match="mail takes no argument 'cc'; it takes to, count, urgent, more"):
        call_line("mail", {"cc": "x"}, TOOLS)
    with pytest.raises(LookupError, match="no tool 'post'; there are mail"):
        call_line("post", {}, TOOLS)


def test_a_result_is_its_values_in_order() -> None:
    assert result_text('{"id": "T1", "tags": ["a", true], "at": null, "days": 3.5, "note": ""}') == "T1 a true - 3.5 -"
    assert result_text("no JSON") == "no JSON"
