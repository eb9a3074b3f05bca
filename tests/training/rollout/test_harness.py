"""The tool loop: what ends a rollout, and what it does with calls that are wrong."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from training.bundles import Harness
from training.rollout.harness import Act, Answer, End, Episode, Hear, SampledCall, drive, nobody, tool_loop
from training.worlds.asynchronous import as_async
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

DRAFT = generate(1, seed=3)[0]


def says(text: str, finish: str = "stop") -> Answer:
    return Answer(text, (), finish, "call", 1.0)


def calls(name: str, arguments: str, finish: str = "tool_calls") -> Answer:
    return Answer(None, (SampledCall("c1", name, arguments),), finish, "call", 1.0)


class Player:
    """Answers from a list, and remembers what it was asked and what was recorded."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked, self.acts = list(answers), list[list[Mapping[str, Any]]](), list[Act]()

    async def ask(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], index: int) -> Answer:
        self.asked.append(list(messages))
        return self.answers[index] if index < len(self.answers) else self.answers[-1]

    async def record(self, act: Act) -> None:
        self.acts.append(act)


async def play(player: Player, harness: Harness | None = None, hear: Hear = nobody) -> tuple[End, Episode]:
    with ThreadPoolExecutor(1) as pool:
        world = as_async(TicketDesk(), pool)
        episode = Episode(world, DRAFT, await world.reset(DRAFT, seed=0))
        clock = iter(range(10_000)).__next__
        return await drive(episode, harness or tool_loop(), player.ask, player.record, hear=hear, clock=clock), episode


async def test_a_text_answer_ends_the_only_user_turn() -> None:
    end, episode = await play(Player(says("Done.")))
    assert (end.ended_by, end.boundary) == ("finished", "policy")
    assert (episode.model_calls, episode.tool_calls) == (1, 0)


async def test_an_answer_cut_by_its_token_limit_is_not_an_answer() -> None:
    end, _ = await play(Player(says("I will now", "length")))
    assert end.ended_by == "token_limit"


async def test_a_policy_that_never_stops_ends_at_the_limit_of_a_turn_or_of_the_rollout() -> None:
    end, episode = await play(Player(calls("query_tickets", "{}")), tool_loop(calls_per_turn=3))
    assert (end.ended_by, episode.model_calls, episode.tool_calls) == ("turn_limit", 3, 3)
    end, episode = await play(Player(calls("query_tickets", "{}")), tool_loop(calls_per_turn=9, calls=4))
    assert (end.ended_by, episode.model_calls) == ("turn_limit", 4)


async def test_wall_clock_counts_sampling_and_tools() -> None:
    end, episode = await play(Player(calls("query_tickets", "{}")), tool_loop(wall_s=3.5))
    assert end.ended_by == "wall_clock"
    assert episode.sampling_s + episode.tool_s == 4.0


@pytest.mark.parametrize("arguments", ['{"id": ', "[1]", '"text"', '{"a": NaN}', '{"a": 1, "a": 2}', "", "\x00"])
async def test_arguments_that_are_no_object_never_reach_the_world(arguments: str) -> None:
    player = Player(calls("query_tickets", arguments), says("Done."))
    end, _ = await play(player)
    assert (end.ended_by, player.acts[0].parsed, player.acts[0].observation.error_class) == ("finished", None, "malformed_arguments")
    assert player.acts[0].state_before == player.acts[0].state_after == TicketDesk().digest(TicketDesk().reset(DRAFT, seed=0))
    assert player.acts[0].sampled.arguments == arguments
    assert set(json.loads(player.asked[1][-1]["content"])) == {"error"}


async def test_a_tool_that_was_not_offered_is_refused_and_the_policy_told() -> None:
    player = Player(calls("drop_tables", "{}"), says("Done."))
    await play(player)
    assert player.acts[0].observation.error_class == "unknown_tool"
    assert "send_email" in player.asked[1][-1]["content"]


async def test_the_conversation_holds_every_message_in_order() -> None:
    player = Player(calls("query_tickets", '{"priority": "P1"}'), says("Done."))
    await play(player)
    assert [message["role"] for message in player.asked[1]] == ["system", "user", "assistant", "tool"]
    assert player.asked[1][2]["tool_calls"][0]["function"] == {"name": "query_tickets", "arguments": '{"priority": "P1"}'}
    assert player.asked[1][3]["tool_call_id"] == "c1"


async def test_what_the_user_says_between_steps_is_appended_and_starts_no_user_turn() -> None:
    player = Player(calls("query_tickets", "{}"), calls("query_tickets", "{}"), says("Done."))
    await play(player, hear=lambda step, ended: [{"role": "user", "content": "one more thing"}] if step == 1 and not ended else [])
    assert [message["role"] for message in player.asked[1]] == ["system", "user", "assistant", "tool", "user"]
    assert player.asked[2][: len(player.asked[1])] == player.asked[1]
    assert [act.turn for act in player.acts] == [0, 0]


async def test_a_user_who_speaks_up_at_the_end_is_answered_before_the_rollout_finishes() -> None:
    due = [{"role": "user", "content": "wait"}]
    player = Player(says("Done."), says("Done again."))
    end, episode = await play(player, hear=lambda step, ended: [due.pop()] if ended and due else [])
    assert (end.ended_by, episode.model_calls) == ("finished", 2)
    assert [message["role"] for message in player.asked[1]] == ["system", "user", "assistant", "user"]


def test_a_harness_is_its_source_and_its_limits() -> None:
    assert tool_loop().harness_id == tool_loop().harness_id
    assert tool_loop().harness_id != tool_loop(calls=41).harness_id
