"""The tokens of a model call as a trace shows them: the one place that says where they are kept and what does not fit among them. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ledger.errors import BlobError
from ledger.events import ModelCalled, TokenArray
from ledger.tokens import array_of


@dataclass(frozen=True)
class CallTokens:
    """A call's arrays, None where not captured, damaged or without a key, what does not fit among them, and how many were checked."""

    prompt_ids: tuple[int, ...] | None = None
    sampled_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    faults: tuple[str, ...] = ()
    checked: int = 0


def call_tokens(call: ModelCalled, data: Mapping[str, bytes], unreadable: Collection[str] = ()) -> CallTokens:
    """The tokens of a call, checked against their hashes and the counts that the upstream reported.

    Args:
        call: a model call.
        data: blob id to bytes, of the blobs that could be read.
        unreadable: ids of blobs without a key here; nothing is known of them and nothing is wrong with them.
    """
    found: dict[str, tuple[float, ...]] = {}
    faults: list[str] = []
    for name, array in arrays(call).items():
        if array.data.blob_id in unreadable:
            continue
        if array.data.blob_id not in data:
            faults.append(f"{name}: blob {array.data.blob_id[:12]}… cannot be read")
            continue
        try:
            found[name] = tuple(array_of(array, data[array.data.blob_id]).tolist())
        except BlobError as error:
            faults.append(f"{name}: {error}")
    for name, counted in (("prompt_ids", "prompt_tokens"), ("sampled_ids", "completion_tokens")):
        held, reported = arrays(call).get(name), call.usage.get(counted)
        if call.status == "completed" and held is not None and reported is not None and held.count != reported:
            faults.append(f"{name}: {held.count} recorded, {counted} says {reported}")
    if call.logprobs is not None and call.sampled_ids is not None and call.logprobs.count != call.sampled_ids.count:
        faults.append(f"logprobs: {call.logprobs.count} for {call.sampled_ids.count} sampled tokens")
    checked = sum(array.data.blob_id not in unreadable for array in arrays(call).values())
    return CallTokens(found.get("prompt_ids"), found.get("sampled_ids"), found.get("logprobs"), tuple(faults), checked)  # type: ignore[arg-type]


def arrays(call: ModelCalled) -> dict[str, TokenArray]:
    """Name to token array, of those that were captured."""
    named = {"prompt_ids": call.prompt_ids, "sampled_ids": call.sampled_ids, "logprobs": call.logprobs}
    return {name: array for name, array in named.items() if array is not None}
