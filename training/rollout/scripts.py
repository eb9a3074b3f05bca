"""Scripts of rollouts: what a scripted policy answers to each request, as a chat completion. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ledger.canonical import parse
from ledger.errors import CanonicalError, TallyError
from training.rollout.gateway_stream import dumps
from training.worlds import AssistantTurn


class Unscripted(TallyError):
    """A request that no script answers; carries the HTTP status and the body that say so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = dumps({"error": {"message": message, "type": "scripted", "code": status}})


@dataclass
class _Script:
    """What a rollout is answered, and the bodies of its requests by turn where its turns are told by them."""

    turns: tuple[AssistantTurn, ...]
    final_text: str
    seen: dict[bytes, int] | None

    def turn(self, raw: bytes, assistant_messages: int) -> int:
        """The number of the turn that a request asks for."""
        return assistant_messages if self.seen is None else self.seen.setdefault(raw, len(self.seen))


@dataclass(frozen=True)
class Reply:
    """An answer: the request as it was read, the turn that answers it, and that as a chat completion."""

    request: dict[str, Any]
    turn: AssistantTurn
    response: dict[str, Any]


class Scripts:
    """Answers each rollout from its script: the turn is the number of assistant messages in the request, so a repeated request
    gets the same answer. After the script's end it answers with a final text. A role of a rollout may have a script of its own."""

    def __init__(self, *, final_text: str = "Done.") -> None:
        self.final_text = final_text
        self._scripts: dict[tuple[str | None, str], _Script] = {}

    def script(
        self, rollout_id: str | None, turns: Sequence[AssistantTurn], *, role: str = "", final_text: str | None = None,
        by_request: bool = False,
    ) -> None:  # fmt: skip
        """Set what a rollout is answered.

        Args:
            rollout_id: None is for requests that name no rollout.
            role: for requests in this role alone; "" for those in a role without a script.
            final_text: what follows the script; the one of all scripts when None.
            by_request: each new request is the next turn, for conversations that are rewritten.
        """
        said = self.final_text if final_text is None else final_text
        self._scripts[rollout_id, role] = _Script(tuple(turns), said, {} if by_request else None)

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
        return Reply(request, turn, _completion(request.get("model"), turn, number))


def _completion(model: Any, turn: AssistantTurn, number: int) -> dict[str, Any]:
    calls = [
        {"id": f"call_{number}_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(turn.tool_calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": turn.content, **({"tool_calls": calls} if calls else {})}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": f"scripted-{number}", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]}
