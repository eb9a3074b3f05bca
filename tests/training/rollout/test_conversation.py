"""Hooks are held to what they declare: no change is silent, and whatever changes the history is noted."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from ledger.errors import MethodError
from ledger.methods import Bound
from training.bundles import Harness
from training.hooks import AskModel, Hook, Hooked, Payload, Point, Rewrite, hooks
from training.rollout.conversation import Conversation, pass_point
from training.rollout.episode import Answer, Ask, Episode
from training.rollout.harness import tool_loop
from training.worlds.asynchronous import as_async
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

DRAFT = generate(1, seed=3)[0]


class Noted:
    """What was rewritten, and a model that says `All of it.`"""

    def __init__(self) -> None:
        self.rewrites: list[tuple[Rewrite, str, int]] = []
        self.roles: list[str] = []

    def rewrote(self, rewrite: Rewrite, role: str, index: int) -> None:
        self.rewrites.append((rewrite, role, index))

    def asker(self, role: str) -> Ask:
        async def ask(messages: Any, tools: Any, index: int) -> Answer:
            self.roles.append(role)
            return Answer("All of it.", (), "stop", "call", 2.0)

        return ask


def dropping(said: tuple[Rewrite, ...]) -> Hook:
    async def drop(point: Point, payload: Payload, memory: Mapping[str, Any], ask: AskModel) -> Hooked:
        return Hooked(replace(payload, messages=payload.messages[1:]), {"times": memory.get("times", 0) + 1}, said)

    return drop


def asking(role: str) -> Hook:
    async def ask_it(point: Point, payload: Payload, memory: Mapping[str, Any], ask: AskModel) -> Hooked:
        return Hooked(replace(payload, messages=(*payload.messages, {"role": "user", "content": await ask(payload.messages, role)})))

    return ask_it


def using(call: Hook, style: str) -> Harness:
    """A harness whose one hook does something else than the file it is named after."""
    table = tool_loop(style="rewritten", hooks=({"name": "strip_thinking"},)).table.model_copy(update={"style": style})
    return Harness("", table, (Bound(call, hooks.bind("strip_thinking").ref, ""),))


async def passed(harness: Harness, noted: Noted | None, times: int = 1) -> tuple[Conversation, Episode, bool]:
    with ThreadPoolExecutor(1) as pool:
        world = as_async(TicketDesk(), pool)
        episode = Episode(world, DRAFT, await world.reset(DRAFT, seed=0), model_calls=4)
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": text} for text in "abc"]
    talk = Conversation("sub_agent", Noted().asker("sub_agent"), messages, prompt_tokens=9, tokens=10)
    rewrote = False
    for _ in range(times):
        _, rewrote = await pass_point(talk, "before_model", episode, harness, noted)
    return talk, episode, rewrote


async def test_a_rewriting_is_noted_with_its_conversation_and_the_call_to_come_and_its_length_is_unknown_then() -> None:
    noted, rewrite = Noted(), Rewrite(1, 2, "dropped_oldest")
    talk, episode, rewrote = await passed(using(dropping((rewrite,)), "rewritten"), noted, times=2)
    assert noted.rewrites == [(rewrite, "sub_agent", 4)] * 2 and rewrote
    assert ([m["content"] for m in talk.messages], talk.prompt_tokens, talk.tokens) == (["c"], None, None)
    assert (episode.counters["dropped_oldest"], talk.memories[0]) == (2, {"times": 2})


@pytest.mark.parametrize(("said", "style"), [((), "rewritten"), ((Rewrite(1, 2, "dropped_oldest"),), "chat"), ((), "chat")])
async def test_a_change_that_is_not_said_or_not_allowed_is_an_error_with_the_hooks_name(said: tuple[Rewrite, ...], style: str) -> None:
    noted = Noted()
    with pytest.raises(MethodError, match="hook strip_thinking changed the history at before_model"):
        await passed(using(dropping(said), style), noted)
    assert noted.rewrites == []


async def test_a_hook_that_appends_rewrites_nothing_and_what_it_asks_is_a_call() -> None:
    noted = Noted()
    talk, episode, rewrote = await passed(using(asking("summary"), "chat"), noted)
    assert (talk.messages[-1]["content"], noted.roles, rewrote, talk.prompt_tokens) == ("All of it.", ["summary"], False, 9)
    assert (episode.model_calls, episode.sampling_s) == (5, 2.0)


async def test_a_hook_asks_for_summaries_alone_and_only_where_there_is_a_way() -> None:
    with pytest.raises(MethodError, match="in role 'judge'; allowed: 'summary'"):
        await passed(using(asking("judge"), "chat"), Noted())
    with pytest.raises(MethodError, match="where the harness has a way beside its own"):
        await passed(using(asking("summary"), "chat"), None)
