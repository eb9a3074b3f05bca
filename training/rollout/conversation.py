"""One participant's conversation: its messages, and the hooks that they pass at five points. Awaits the model for a hook that asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.errors import MethodError
from ledger.events.model_call import CallRole
from training.bundles import Harness
from training.hooks import Payload, Point
from training.rollout.episode import Ask, Beside, Episode, Message, Tools


@dataclass
class Conversation:
    """A conversation under way.

    Attributes:
        role: of the participant whose it is.
        ask: its way to the model.
        messages: as the model is shown them.
        told: the tools that its system prompt describes, where a text format describes them.
        prompt_tokens: prompt tokens of its last call; None before the first, after a rewriting, and when nobody counts them.
        tokens: prompt and sampled tokens of its last call, which the next prompt holds at least; None likewise.
        memories: what each hook remembers, by its place.
    """

    role: CallRole
    ask: Ask
    messages: list[Message] = field(default_factory=list)
    told: Tools = ()
    prompt_tokens: int | None = None
    tokens: int | None = None
    memories: dict[int, Mapping[str, Any]] = field(default_factory=dict)


async def pass_point(
    talk: Conversation, point: Point, episode: Episode, harness: Harness, beside: Beside | None, *, tool: Mapping[str, Any] | None = None
) -> tuple[Mapping[str, Any] | None, bool]:
    """The tool as the hooks leave it, and whether one of them rewrote the history; `talk` holds what they made of it.

    Raises:
        MethodError: a hook changed what the conversation already held without saying so, or in a style that only appends.
    """
    rewrote = False
    for place, bound in enumerate(harness.hooks):
        before = tuple(talk.messages)

        async def ask(messages: Any, role: str) -> str:
            return await _aside(episode, beside, messages, role)

        hooked = await bound.call(point, Payload(before, tool, talk.prompt_tokens), talk.memories.get(place, {}), ask)
        talk.memories[place], tool, after = hooked.memory, hooked.payload.tool, hooked.payload.messages
        if after[: len(before)] != before:
            if not hooked.rewrites or harness.table.style == "chat":
                raise MethodError(
                    f"hook {bound.ref.name} changed the history at {point}, said {len(hooked.rewrites)} rewritings in style "
                    f"{harness.table.style!r}; allowed: every change said, and none in style 'chat'"
                )
            talk.prompt_tokens = talk.tokens = None
            rewrote = True
        talk.messages = list(after)
        for rewrite in hooked.rewrites:
            if beside is not None:
                beside.rewrote(rewrite, talk.role, episode.model_calls)
            episode.counters[rewrite.reason] += 1
    return tool, rewrote


async def _aside(episode: Episode, beside: Beside | None, messages: Any, role: str) -> str:
    if beside is None or role != "summary":
        raise MethodError(f"a hook asks the model in role {role!r}; allowed: 'summary', where the harness has a way beside its own")
    answer = await beside.asker("summary")(messages, (), episode.model_calls)
    episode.model_calls += 1
    episode.sampling_s += answer.sampling_s
    return answer.content or ""
