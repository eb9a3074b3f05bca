"""A world behind a prompt: commands in, lines out, the same state behind it."""

import pytest

from tests.tiny_world import Library, library_task
from training.worlds import ToolCall
from training.worlds.command_line import CommandLine, command_of, parsed, plain

PROMPT = CommandLine(Library())


def test_a_command_is_read_by_name_and_value_and_written_back_the_same() -> None:
    call = ToolCall("update", {"id": "T1", "fields": {"note": 'it\'s "odd" $HOME', "count": 3, "text": "3", "none": None, "many": [1, 2]}})
    assert parsed(command_of(call).arguments["command"]) == call
    assert parsed("move book_id=B1 shelf=south") == ToolCall("move", {"book_id": "B1", "shelf": "south"})


@pytest.mark.parametrize("command", ["", "move B1", "move book_id='B1", "move a=1 a.b=2"])
def test_what_is_no_command_is_refused_and_changes_nothing(command: str) -> None:
    state = PROMPT.reset(library_task(), seed=0)
    after, observation = PROMPT.call(state, ToolCall("run", {"command": command}))
    assert observation.error_class == "malformed_arguments"
    assert after == state


def test_answers_are_lines_and_error_classes_are_the_world_s_own() -> None:
    state = PROMPT.reset(library_task(), seed=0)
    _, observation = PROMPT.call(state, ToolCall("run", {"command": "find_reader name=Ada"}))
    assert observation.content == "reader_id: R1"
    assert PROMPT.call(state, ToolCall("run", {"command": "lend book_id=B9 reader_id=R1"}))[1].error_class == "not_found"
    assert PROMPT.call(state, ToolCall("lend", {}))[1].error_class == "unknown_tool"
    assert plain("not JSON") == "not JSON"
    assert plain('{"a": [{"b": 1}, {"b": 2}]}') == "a.0.b: 1\na.1.b: 2"


def test_the_prompt_says_which_commands_there_are() -> None:
    (tool,) = PROMPT.tools(library_task(), turn=0)
    assert "lend book_id=... reader_id=...: Lend a book to a reader." in tool["function"]["description"]
    assert PROMPT.version != Library().version
