"""Three styles on one loop: what is appended, what is rewritten, and who else is asked."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from ledger.errors import SettingsError
from ledger.events.model_call import CallRole
from training.bundles import Harness
from training.hooks import Rewrite
from training.rollout.harness import Act, Answer, Ask, CallFailed, End, Episode, SampledCall, drive, tool_loop
from training.worlds.asynchronous import as_async
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

DRAFT = generate(1, seed=3)[0]
Say = Answer | CallFailed


def says(text: str, *, prompt: int | None = None) -> Answer:
    return Answer(text, (), "stop", "call", 1.0, prompt, 1)


def calls(name: str, arguments: str, *, text: str | None = None, prompt: int | None = None) -> Answer:
    return Answer(text, (SampledCall("c1", name, arguments),), "tool_calls", "call", 1.0, prompt, 1)


LOOK = calls("query_tickets", "{}", prompt=100)


class Cast:
    """A policy in several roles, each with its lines, and what was asked, recorded and rewritten."""

    def __init__(self, **lines: Sequence[Say]) -> None:
        self.lines = {role: list(said) for role, said in lines.items()}
        self.asked: list[tuple[str, list[Mapping[str, Any]], list[str], int]] = []
        self.acts: list[Act] = []
        self.rewrites: list[tuple[Rewrite, str, int]] = []

    def asker(self, role: CallRole) -> Ask:
        async def ask(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], index: int) -> Answer:
            self.asked.append((role, list(messages), [tool["function"]["name"] for tool in tools], index))
            said = self.lines[role].pop(0)
            if isinstance(said, CallFailed):
                raise said
            return said

        return ask

    def rewrote(self, rewrite: Rewrite, role: CallRole, index: int) -> None:
        self.rewrites.append((rewrite, role, index))

    async def record(self, act: Act) -> None:
        self.acts.append(act)

    def of(self, role: str) -> list[list[Mapping[str, Any]]]:
        return [messages for who, messages, _, _ in self.asked if who == role]


async def play(cast: Cast, harness: Harness) -> tuple[End, Episode]:
    with ThreadPoolExecutor(1) as pool:
        world = as_async(TicketDesk(), pool)
        episode = Episode(world, DRAFT, await world.reset(DRAFT, seed=0))
        return await drive(episode, harness, cast.asker("agent"), cast.record, beside=cast), episode


async def test_in_a_chat_every_prompt_begins_with_the_one_before() -> None:
    cast = Cast(agent=[LOOK, calls("nothing", "{}"), LOOK, says("Done.")])
    await play(cast, tool_loop(hooks=({"name": "stop_repeats"}, {"name": "remind_format"})))
    prompts = cast.of("agent")
    assert all(after[: len(before)] == before for before, after in pairwise(prompts))
    assert cast.rewrites == []


@pytest.mark.parametrize(
    ("system", "shown"),
    [
        ({}, DRAFT.request["system"]), ({"mode": "replace", "text": "Be brief."}, "Be brief."),
        ({"mode": "append", "text": "Be brief."}, f"{DRAFT.request['system']}\n\nBe brief."),
    ],
)  # fmt: skip
async def test_the_system_prompt_is_the_tasks_own_another_or_both(system: Mapping[str, str], shown: str) -> None:
    cast = Cast(agent=[says("Done.")])
    await play(cast, tool_loop(system=system))
    assert cast.of("agent")[0][0] == {"role": "system", "content": shown}


async def test_a_conversation_may_begin_with_the_user() -> None:
    cast = Cast(agent=[says("Done.")])
    await play(cast, tool_loop(system={"mode": "none"}))
    assert cast.of("agent")[0] == DRAFT.request["turns"][0]


async def test_thinking_and_long_results_leave_the_history_with_their_reasons() -> None:
    thought = calls("query_tickets", "{}", text="<think>All of them.</think>Looking.", prompt=100)
    cast = Cast(agent=[thought, says("Done.")])
    hooks = ({"name": "strip_thinking"}, {"name": "truncate_tool_output", "params": {"characters": 60}})
    _, episode = await play(cast, tool_loop(style="rewritten", hooks=hooks))
    second = cast.of("agent")[1]
    assert second[-2]["content"] == "Looking." and second[-2]["tool_calls"] and len(second[-1]["content"]) == 60
    assert [(rewrite.reason, role, index) for rewrite, role, index in cast.rewrites] == [
        ("thinking_stripped", "agent", 1), ("truncation", "agent", 1),
    ]  # fmt: skip
    assert len(cast.acts[0].observation.content) > 60
    assert (episode.counters["thinking_stripped"], episode.counters["truncation"]) == (1, 1)


SUMMARISE = tool_loop(style="rewritten", hooks=({"name": "summarise_when_full", "params": {"at_tokens": 100, "keep": 2}},))


async def test_a_summary_is_a_call_of_its_own_before_the_call_that_goes_on_with_it() -> None:
    cast = Cast(agent=[LOOK, LOOK, says("Done.", prompt=9)], summary=[says("Two tickets.")])
    end, episode = await play(cast, SUMMARISE)
    assert [(role, index) for role, _, _, index in cast.asked] == [("agent", 0), ("agent", 1), ("summary", 2), ("agent", 3)]
    assert [tools for role, _, tools, _ in cast.asked if role == "summary"] == [[]]
    assert [m["role"] for m in cast.of("agent")[2]] == ["system", "user", "user", "assistant", "tool"]
    assert "Two tickets." in cast.of("agent")[2][2]["content"]
    assert [(rewrite.summary, role, index) for rewrite, role, index in cast.rewrites] == [("Two tickets.", "agent", 3)]
    assert (end.ended_by, episode.model_calls, episode.sampling_s) == ("finished", 4, 4.0)


async def test_a_full_context_is_shortened_once_or_ends_the_rollout() -> None:
    full = CallFailed("context_full", "policy", "too long", "")
    shorten = tool_loop(style="rewritten", hooks=({"name": "summarise_when_full", "params": {"keep": 0}},))
    cast = Cast(agent=[LOOK, full, says("Done.")], summary=[says("One look.")])
    end, _ = await play(cast, shorten)
    assert (end.ended_by, [role for role, *_ in cast.asked]) == ("finished", ["agent", "agent", "summary", "agent"])
    assert len({index for *_, index in cast.asked}) == 4
    with pytest.raises(CallFailed, match="too long"):
        await play(Cast(agent=[LOOK, full, full], summary=[says("One look.")]), shorten)
    with pytest.raises(CallFailed, match="too long"):
        await play(Cast(agent=[LOOK, full]), tool_loop())


async def test_a_declared_context_is_kept() -> None:
    end, episode = await play(Cast(agent=[LOOK, says("Done.")]), tool_loop(context_tokens=101))
    assert (end.ended_by, end.boundary, episode.model_calls) == ("context_full", "policy", 1)
    assert (await play(Cast(agent=[LOOK, says("Done.")]), tool_loop(context_tokens=102)))[0].ended_by == "finished"
    hooks = ({"name": "summarise_when_full", "params": {"keep": 0}},)
    cast = Cast(agent=[LOOK, says("Done.")], summary=[says("One look.")])
    assert (await play(cast, tool_loop(style="rewritten", context_tokens=101, hooks=hooks)))[0].ended_by == "finished"


def _team(**more: Any) -> Harness:
    return tool_loop(style="orchestrator", sub_agent={"main_tools": ["get_owner"], **more})


def _delegate(task: str) -> Answer:
    return calls("delegate", f'{{"task": "{task}"}}')


async def test_a_sub_agent_acts_in_the_same_world_and_its_answer_is_the_tools_result() -> None:
    change = calls("update_ticket", f'{{"id": "{next(iter(DRAFT.initial_state["tickets"]))}", "fields": {{"note": "x"}}}}')
    cast = Cast(agent=[_delegate("Note x."), says("All noted.")], sub_agent=[change, says("Noted.")])
    end, episode = await play(cast, _team(system="You note.", tools=["update_ticket"]))
    assert [(role, tools, index) for role, _, tools, index in cast.asked] == [
        ("agent", ["get_owner", "delegate"], 0), ("sub_agent", ["update_ticket"], 1), ("sub_agent", ["update_ticket"], 2),
        ("agent", ["get_owner", "delegate"], 3),
    ]  # fmt: skip
    assert cast.of("sub_agent")[0] == [{"role": "system", "content": "You note."}, {"role": "user", "content": "Note x."}]
    assert cast.of("agent")[1][-1] == {"role": "tool", "tool_call_id": "c1", "content": "Noted."}
    assert [(act.index, act.sampled.name, act.executed_by, act.observation.error_class) for act in cast.acts] == [
        (0, "update_ticket", "world", None), (1, "delegate", "harness", None),
    ]  # fmt: skip
    assert cast.acts[1].state_before == cast.acts[0].state_before != cast.acts[0].state_after == cast.acts[1].state_after
    assert (end.ended_by, episode.model_calls, episode.counters["sub_agents"]) == ("finished", 4, 1)
    assert episode.tool_s == pytest.approx(cast.acts[0].latency_s)


@pytest.mark.parametrize(
    ("team", "agent", "sub_agent", "error_class", "told"),
    [
        ({"calls": 1}, [_delegate("Look.")], [LOOK], "sub_agent_failed", "1 model calls"),
        ({}, [_delegate("Look.")], [CallFailed("context_full", "policy", "too long", "")], "sub_agent_failed", "context"),
        ({}, [calls("delegate", '{"job": "x"}')], [], "invalid_arguments", "task"),
        ({"starts": 1}, [_delegate("a"), _delegate("b")], [says("a")], "sub_agent_limit", "1 were started"),
        ({}, [_delegate("a")], [_delegate("b"), says("a")], "unknown_tool", "no such tool"),
    ],
)  # fmt: skip
async def test_what_a_sub_agent_cannot_do_is_told_and_the_main_agent_goes_on(
    team: dict[str, Any], agent: list[Say], sub_agent: list[Say], error_class: str, told: str
) -> None:
    cast = Cast(agent=[*agent, says("Enough.")], sub_agent=sub_agent)
    end, _ = await play(cast, _team(**team))
    failed = [act for act in cast.acts if act.observation.error_class == error_class]
    assert end.ended_by == "finished" and len(failed) == 1 and told in failed[0].observation.content


async def test_all_participants_share_the_limits_of_the_rollout() -> None:
    cast = Cast(agent=[_delegate("Look.")], sub_agent=[LOOK, LOOK, LOOK])
    end, episode = await play(cast, tool_loop(style="orchestrator", calls=3, sub_agent={}))
    assert (end.ended_by, episode.model_calls) == ("turn_limit", 3)


async def test_a_failed_sub_agents_engine_ends_the_rollout() -> None:
    with pytest.raises(CallFailed, match="HTTP 500"):
        await play(Cast(agent=[_delegate("x")], sub_agent=[CallFailed("engine_error", "engine", "HTTP 500", "", status=500)]), _team())


def _failing(status: int) -> CallFailed:
    return CallFailed("engine_error", "engine", f"HTTP {status}", "", status=status)


async def test_engine_failures_are_retried_as_declared_and_counted() -> None:
    cast = Cast(agent=[_failing(503), _failing(500), says("Done.")])
    end, episode = await play(cast, tool_loop(retries={"times": 2}))
    assert (end.ended_by, episode.counters["engine_retries"], episode.model_calls) == ("finished", 2, 1)
    assert [index for *_, index in cast.asked] == [0, 0, 0]
    for retries, said in (({}, 503), ({"times": 1}, 400), ({"times": 1, "statuses": [503]}, 500)):
        with pytest.raises(CallFailed, match=f"HTTP {said}"):
            await play(Cast(agent=[_failing(said), says("Done.")]), tool_loop(retries=retries))
    with pytest.raises(CallFailed, match="HTTP 503"):
        await play(Cast(agent=[_failing(503)] * 2), tool_loop(retries={"times": 1}))


async def test_a_refused_repeat_never_reaches_the_world_and_a_reminder_goes_on_with_the_turn() -> None:
    cast = Cast(agent=[LOOK, LOOK, says('{"name": "query_tickets"}'), says("Done.")])
    end, episode = await play(cast, tool_loop(hooks=({"name": "stop_repeats", "params": {"times": 1}}, {"name": "remind_format"})))
    assert [(act.executed_by, act.observation.error_class) for act in cast.acts] == [("world", None), ("harness", "repeated_call")]
    assert cast.acts[1].state_before == cast.acts[1].state_after
    assert [m["role"] for m in cast.of("agent")[-1][-2:]] == ["assistant", "user"]
    assert (end.ended_by, episode.counters["markup_without_call"]) == ("finished", 1)


@pytest.mark.parametrize("make", [lambda: SUMMARISE, lambda: _team()])
async def test_a_harness_that_needs_more_ways_than_one_is_not_driven_without_them(make: Callable[[], Harness]) -> None:
    with ThreadPoolExecutor(1) as pool:
        world = as_async(TicketDesk(), pool)
        episode = Episode(world, DRAFT, await world.reset(DRAFT, seed=0))
        cast = Cast()
        with pytest.raises(SettingsError, match="driven with `beside` alone"):
            await drive(episode, make(), cast.asker("agent"), cast.record)


async def test_a_conversation_that_was_shortened_is_no_longer_full() -> None:
    thought = calls("query_tickets", "{}", text="<think>All of them.</think>Looking.", prompt=100)
    strip = tool_loop(style="rewritten", context_tokens=101, hooks=({"name": "strip_thinking"},))
    assert (await play(Cast(agent=[thought, says("Done.")]), strip))[0].ended_by == "finished"
