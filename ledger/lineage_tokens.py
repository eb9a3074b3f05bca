"""The tokens of a model call as a trace shows them, and what does not fit among them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.events import ModelCalled, TokenArray
from ledger.token_reading import Tokens


@dataclass(frozen=True)
class CallTokens:
    """A call's arrays, None where not captured, damaged or without a key, what does not fit among them, and how many were checked."""

    prompt_ids: tuple[int, ...] | None = None
    sampled_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    faults: tuple[str, ...] = ()
    checked: int = 0


def call_tokens(call: ModelCalled, event_id: str, tokens: Tokens) -> CallTokens:
    """The tokens of a call, with what does not fit among them, their counts and those that the upstream reported.

    Args:
        call: a model call.
        event_id: of its event.
        tokens: of its stream, as read and checked.
    """
    read = tokens.calls.get(event_id)
    arrays_read = (None, None, None) if read is None else (read.prompt, read.sampled, read.logprobs)
    prompt, sampled, logprobs = (None if array is None else tuple(array.tolist()) for array in arrays_read)
    faults = [fault for of, fault in tokens.faults if of == event_id]
    stated = arrays(call)
    for name, counted in (("prompt_ids", "prompt_tokens"), ("sampled_ids", "completion_tokens")):
        held, reported = stated.get(name), call.usage.get(counted)
        if call.status == "completed" and held is not None and reported is not None and held.count != reported:
            faults.append(f"{name}: {held.count} recorded, {counted} says {reported}")
    if call.logprobs is not None and call.sampled_ids is not None and call.logprobs.count != call.sampled_ids.count:
        faults.append(f"logprobs: {call.logprobs.count} for {call.sampled_ids.count} sampled tokens")
    return CallTokens(prompt, sampled, logprobs, tuple(faults), 0 if event_id in tokens.shredded else len(stated))


def stream_faults(tokens: Tokens) -> Sequence[str]:
    """What does not fit in the stored tokens of a stream and is of no call in particular."""
    return [fault for event_id, fault in tokens.faults if event_id is None]


def arrays(call: ModelCalled) -> dict[str, TokenArray]:
    """Name to token array, of those that were captured."""
    named = {"prompt_ids": call.prompt_ids, "sampled_ids": call.sampled_ids, "logprobs": call.logprobs}
    return {name: array for name, array in named.items() if array is not None}
