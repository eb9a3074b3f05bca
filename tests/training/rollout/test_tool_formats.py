"""Calls read from text, and what a policy is shown: compact lines and JSON beside native tools."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from training.bundles import Harness
from training.rollout.harness import Act, Answer, End, Episode, drive, tool_loop
from training.rollout.harness_table import HarnessTable, StopRules
from training.rollout.tool_formats import as_message, read_answer, tools_text, written
from training.verifiers import JudgeTask, verifiers
from training.worlds import AssistantTurn
from training.worlds.asynchronous import as_async
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.scripts import SCRIPTS
from training.worlds.ticket_desk.synthesis import tasks

WALK = tasks(3, 5, level=0)
TOOLS = TicketDesk().tools(WALK[0], turn=0)
COMPACT, JSON = HarnessTable(tool_format="compact"), HarnessTable(tool_format="json")
PROSE = HarnessTable(tool_format="compact", stop=StopRules())


def says(text: str, finish: str = "stop") -> Answer:
    return Answer(text, (), finish, "call", 1.0)


class Texts:
    """A policy that says a list of texts, and a record of what it was asked and did."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked, self.sent, self.acts = list(texts), list[list[Mapping[str, Any]]](), list[Any](), list[Act]()

    async def ask(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], index: int) -> Answer:
        self.asked.append(list(messages))
        self.sent.append(list(tools))
        return says(self.texts[index])

    async def record(self, act: Act) -> None:
        self.acts.append(act)


async def play(said: Texts, harness: Harness, task: int = 0) -> tuple[End, Episode]:
    with ThreadPoolExecutor(1) as pool:
        world = as_async(TicketDesk(), pool)
        episode = Episode(world, WALK[task], await world.reset(WALK[task], seed=0))
        return await drive(episode, harness, said.ask, said.record), episode


@pytest.mark.parametrize("tool_format", ["compact", "json"])
@pytest.mark.parametrize("task", range(3))
async def test_the_oracle_solves_the_desk_in_every_text_format(tool_format: str, task: int) -> None:
    harness = tool_loop(tool_format=tool_format, calls_per_turn=60, calls=60)
    turns = [written(turn, TOOLS, harness.table) for turn in SCRIPTS["oracle"](WALK[task])]
    assert all(not turn.tool_calls for turn in turns) and turns[-1].content == "DONE"
    said = Texts(*(turn.content or "" for turn in turns))
    end, episode = await play(said, harness, task)
    assert end.ended_by == "finished" and said.sent == [[]] * len(turns)
    assert [act.observation.error_class for act in said.acts] == [None] * len(said.acts) and said.acts
    world = TicketDesk()
    s0, s_end = world.view(world.reset(WALK[task], seed=0)), world.view(episode.state)
    assert verifiers["desk_conditions"](s0, s_end, (), JudgeTask(WALK[task], world.material)).passed is True


async def test_a_conversation_in_text_holds_what_was_sampled_and_results_as_text() -> None:
    said = Texts("  list_tickets P1\n", "DONE")
    await play(said, tool_loop(tool_format="compact", results="values"))
    assert [message["role"] for message in said.asked[1]] == [*[m["role"] for m in said.asked[0]], "assistant", "tool"]
    assert said.asked[1][-2] == {"role": "assistant", "content": "  list_tickets P1\n"}
    assert said.asked[1][-1].keys() == {"role", "content"} and "{" not in said.asked[1][-1]["content"]
    assert said.acts[0].parsed == {"priority": "P1"} and said.acts[0].sampled.arguments == "P1"


@pytest.mark.parametrize(
    ("line", "error_class", "parsed"),
    [
        ("drop_tables now", "unknown_tool", {"_": ["now"]}), ("get_ticket T1 T2", "malformed_arguments", None),
        ("list_tickets P1 soon", "invalid_arguments", {"priority": "P1", "older_than_days": "soon"}),
        ("get_ticket", "invalid_arguments", {}), ("", "malformed_arguments", None),
    ],
)  # fmt: skip
async def test_a_line_that_is_no_valid_call_gets_a_typed_observation(line: str, error_class: str, parsed: Any) -> None:
    said = Texts(line, "DONE")
    end, _ = await play(said, tool_loop(tool_format="compact"))
    assert (end.ended_by, [(act.observation.error_class, act.parsed) for act in said.acts]) == ("finished", [(error_class, parsed)])
    # The desk counts the calls that reach it.
    assert (said.acts[0].state_before == said.acts[0].state_after) == (error_class != "invalid_arguments")
    assert "error" in said.asked[1][-1]["content"]


@pytest.mark.parametrize(
    ("text", "error_class"),
    [
        ('{"name": "drop", "arguments": {}}', "unknown_tool"), ('{"name": "mail", "arguments": [1]}', "malformed_arguments"),
        ('{"name": "mail", "arguments": {"to": NaN}}', "malformed_arguments"), ('{"tool": "mail"}', "malformed_arguments"),
        ("I will mail her.", "malformed_arguments"), ('{"name": "mail", "arguments": {"to": 1}}', "invalid_arguments"),
    ],
)  # fmt: skip
async def test_json_that_is_no_valid_call_gets_the_same_observations(text: str, error_class: str) -> None:
    said = Texts(text, "DONE")
    await play(said, tool_loop(tool_format="json"))
    assert [act.observation.error_class for act in said.acts] == [error_class]


def test_json_calls_stand_in_one_value_or_in_one_a_line() -> None:
    one, two = '{"name":"get_ticket","arguments":{"ticket":"T1"}}', '{"name":"get_ticket","arguments":{"ticket":"T2"}}'
    for text in (f"{one}\n{two}", f"[{one},\n {two}]", json.dumps([json.loads(one), json.loads(two)], indent=1)):
        reading = read_answer(says(text), TOOLS, JSON, 4)
        assert [(call.sampled.call_id, call.parsed) for call in reading.calls] == [
            ("call_4_0", {"ticket": "T1"}),
            ("call_4_1", {"ticket": "T2"}),
        ]


def test_a_stop_text_ends_the_turn_after_the_calls_before_it_and_what_follows_is_counted() -> None:
    reading = read_answer(says("mark_reminded T1\nDONE\nmark_reminded T2\nbye"), TOOLS, COMPACT, 0)
    assert ([call.parsed for call in reading.calls], reading.stopped, reading.after_stop) == ([{"ticket": "T1"}], True, 2)
    assert not read_answer(says("DONE with that"), TOOLS, COMPACT, 0).stopped


def test_where_free_words_may_stop_lines_that_name_no_tool_are_words() -> None:
    reading = read_answer(says("Let me look.\nget_ticket T1"), TOOLS, PROSE, 0)
    assert ([call.sampled.name for call in reading.calls], reading.stopped) == (["get_ticket"], False)
    assert read_answer(says("All owners were mailed."), TOOLS, PROSE, 0).stopped


async def test_markup_that_nobody_reads_is_counted() -> None:
    said = Texts('<tool_call>{"name": "mail"}</tool_call>')
    end, episode = await play(said, tool_loop())
    assert (end.ended_by, episode.counters["markup_without_call"]) == ("finished", 1)
    _, episode = await play(Texts("All done."), tool_loop())
    assert episode.counters["markup_without_call"] == 0


async def test_an_answer_that_was_cut_calls_nothing() -> None:
    class Cut(Texts):
        async def ask(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], index: int) -> Answer:
            return says("mark_reminded T", "length")

    said = Cut()
    end, _ = await play(said, tool_loop(tool_format="compact"))
    assert (end.ended_by, said.acts) == ("token_limit", [])


async def test_tools_are_described_in_the_system_prompt_only_where_the_table_says_so() -> None:
    said = Texts("DONE")
    await play(said, tool_loop(tool_format="compact", tools_in_prompt=True))
    assert "mail to ticket: Mail somebody about a ticket." in said.asked[0][0]["content"]
    assert tools_text(TOOLS, COMPACT).count("\n") == len(TOOLS)
    assert '"name":"mail"' in tools_text(TOOLS, JSON)
    said = Texts("DONE")
    await play(said, tool_loop(tool_format="compact"))
    assert "mark_reminded" not in json.dumps(said.asked[0])


def test_a_scripted_call_that_a_line_cannot_say_stands_as_it_was_scripted() -> None:
    turn = AssistantTurn(None, (("mail", '{"to": '), ("nothing", "{}"), ("mail", '{"cc": 1}')))
    lines = (written(turn, TOOLS, COMPACT).content or "").splitlines()
    assert lines == ['mail {"to": ', "nothing {}", 'mail {"cc": 1}']
    assert written(turn, TOOLS, HarnessTable()) is turn
    assert as_message(says("x"), COMPACT) == {"role": "assistant", "content": "x"}
