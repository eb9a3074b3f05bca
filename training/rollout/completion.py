"""An engine's sample as a chat completion in vLLM's shape, and its refusals. Pure."""

from typing import Any

from ledger.tokens import ids_bytes, logprob_bytes
from training.rollout.capture import TokenTrace
from training.rollout.gateway_stream import dumps
from training.rollout.sampling_calls import BatchedEngine, Sample, SampleRequest


def completion(engine: BatchedEngine, request: SampleRequest, sample: Sample, *, model: str, call_id: str, created: int) -> dict[str, Any]:
    """The answer of a chat completion, with token ids and log-probabilities.

    Args:
        model: name that the request asked for.
        created: seconds since 1970.
    """
    entries = []
    for token, logprob in zip(sample.ids, sample.logprobs.tolist(), strict=True):
        text = engine.token_text(token)
        entries.append({"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace")), "top_logprobs": []})
    choice = {
        "index": 0, "message": {"role": "assistant", "content": engine.text(sample.ids), "tool_calls": []},
        "logprobs": {"content": entries}, "finish_reason": sample.finish_reason, "stop_reason": None, "token_ids": list(sample.ids),
    }  # fmt: skip
    prompt, sampled = len(request.prompt), len(sample.ids)
    usage = {
        "prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled,
        "prompt_tokens_details": {"cached_tokens": sample.cached},
    }  # fmt: skip
    return {
        "id": f"chatcmpl-{call_id}", "object": "chat.completion", "created": created, "model": model, "choices": [choice], "usage": usage,
        "prompt_token_ids": list(request.prompt),
    }  # fmt: skip


def trace_of(request: SampleRequest, sample: Sample) -> TokenTrace:
    """The tokens of an answer as they are recorded."""
    return TokenTrace(ids_bytes(request.prompt), ids_bytes(sample.ids), logprob_bytes(sample.logprobs.tolist()))


def refusal(message: str, *, status: int = 400) -> bytes:
    """The body of an error as vLLM words it."""
    kind = "BadRequestError" if status == 400 else "InternalServerError"
    return dumps({"error": {"message": message, "type": kind, "param": None, "code": status}})


def too_long(prompt: int, answer: int, context: int) -> bytes:
    """The refusal of a prompt that leaves no room for its answer."""
    return refusal(
        f"This model's maximum context length is {context} tokens. However, you requested {answer} output tokens and your prompt contains"
        f" {prompt} input tokens, for a total of {prompt + answer} tokens."
    )
