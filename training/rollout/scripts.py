"""Scripts of rollouts: what a scripted policy answers to each request, as a chat completion. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.canonical import parse
from ledger.errors import CanonicalError, TallyError
from training.rollout.gateway_stream import dumps
from training.rollout.scripted_tokens import said, words
from training.worlds import AssistantTurn
from training.worlds.fault_kinds import EngineFault, LengthStop, TemplateDrift

EngineFaults = Callable[[int], EngineFault | None]


class Unscripted(TallyError):
    """A request that no script answers; carries the HTTP status and the body that say so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = dumps({"error": {"message": message, "type": "scripted", "code": status}})


def faultless(index: int) -> None:
    """No fault in any call."""


@dataclass(frozen=True)
class ReadingTurn(AssistantTurn, ABC):
    """An answer that depends on what the conversation holds: `heard` makes it."""

    @abstractmethod
    def heard(self, messages: Sequence[Mapping[str, Any]]) -> AssistantTurn:
        """What is answered to a conversation, as the engine's template shows it."""


@dataclass
class _Script:
    """What a rollout is answered, and the bodies of its requests by turn where its turns are told by them."""

    turns: tuple[AssistantTurn, ...]
    final_text: str
    seen: dict[bytes, int] | None
    faults: EngineFaults = faultless

    def turn(self, raw: bytes, assistant_messages: int) -> int:
        """The number of the turn that a request asks for."""
        return assistant_messages if self.seen is None else self.seen.setdefault(raw, len(self.seen))


@dataclass(frozen=True)
class Reply:
    """An answer: the request as it was read, the turn that answers it, and that as a chat completion.

    Attributes:
        shown: the messages as the engine's template shows them.
        cut: whether the answer was ended by its length; its calls, as far as they were said, are text then.
    """

    request: dict[str, Any]
    turn: AssistantTurn
    response: dict[str, Any]
    shown: Sequence[Mapping[str, Any]]
    cut: bool = False


class Scripts:
    """Answers each rollout from its script: the turn is the number of assistant messages in the request, so a repeated request
    gets the same answer. After the script's end it answers with a final text. A role of a rollout may have a script of its own.

    With `limited`, answers end at the tokens that a request allows, counted as `scripted_tokens` does."""

    def __init__(self, *, final_text: str = "Done.", limited: bool = False) -> None:
        self.final_text, self.limited = final_text, limited
        self._scripts: dict[tuple[str | None, str], _Script] = {}

    def script(
        self, rollout_id: str | None, turns: Sequence[AssistantTurn], *, role: str = "", final_text: str | None = None,
        by_request: bool = False, faults: EngineFaults = faultless,
    ) -> None:  # fmt: skip
        """Set what a rollout is answered.

        Args:
            rollout_id: None is for requests that name no rollout.
            role: for requests in this role alone; "" for those in a role without a script.
            final_text: what follows the script; the one of all scripts when None.
            by_request: each new request is the next turn, for conversations that are rewritten.
            faults: what the engine does wrong in a call.
        """
        final = self.final_text if final_text is None else final_text
        self._scripts[rollout_id, role] = _Script(tuple(turns), final, {} if by_request else None, faults)

    def forget(self, rollout_id: str | None) -> None:
        """Let go of a rollout's scripts."""
        for key in [key for key in self._scripts if key[0] == rollout_id]:
            del self._scripts[key]

    def reply(self, rollout_id: str | None, role: str, raw: bytes) -> Reply:
        """What a request is answered.

        Raises:
            Unscripted: it is no chat completion, or the rollout has no script.
        """
        try:
            request = parse(raw)
            answers = sum(message["role"] == "assistant" for message in request["messages"])
        except (CanonicalError, KeyError, TypeError) as error:
            raise Unscripted(400, f"not a chat completion: {error}") from error
        script = self._scripts.get((rollout_id, role)) or self._scripts.get((rollout_id, ""))
        if script is None:
            raise Unscripted(404, f"no script for rollout {rollout_id!r}; {len(self._scripts)} scripts are known")
        number = script.turn(raw, answers)
        turn = script.turns[number] if number < len(script.turns) else AssistantTurn(script.final_text)
        fault = script.faults(number)
        messages = request["messages"]
        shown = [message for message in messages if message["role"] != "tool"] if isinstance(fault, TemplateDrift) else messages
        if isinstance(turn, ReadingTurn):
            turn = turn.heard(shown)
        limit = request.get("max_tokens") if self.limited else None
        text = words(said(turn)) if limit is not None or isinstance(fault, LengthStop) else []
        kept = len(text) // 2 if isinstance(fault, LengthStop) else len(text) if limit is None else min(len(text), limit)
        cut = isinstance(fault, LengthStop) or kept < len(text)
        if cut:
            turn = AssistantTurn("".join(text[:kept]))
        return Reply(request, turn, _completion(request.get("model"), turn, number, cut=cut), shown, cut)


def _completion(model: Any, turn: AssistantTurn, number: int, *, cut: bool) -> dict[str, Any]:
    calls = [
        {"id": f"call_{number}_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(turn.tool_calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": turn.content, **({"tool_calls": calls} if calls else {})}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "length" if cut else "tool_calls" if calls else "stop"}
    return {"id": f"scripted-{number}", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]}
