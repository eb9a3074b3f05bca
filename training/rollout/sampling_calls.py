"""What a batched engine is asked for and what it answers: prompts with their seeds and sampling settings, and sampled tokens. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.errors import SettingsError
from training.rollout.sampling import SamplingEngine

# Fields of a chat completion that say nothing about the distribution of the answer, or whose stated value means nothing.
_PLAIN = {"model", "messages", "tools", "stream", "stream_options", "seed", "max_tokens", "max_completion_tokens", "user"}
_CAPTURE = {"logprobs", "top_logprobs", "return_token_ids"}
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "frequency_penalty": (0, 0.0), "presence_penalty": (0, 0.0), "repetition_penalty": (1, 1.0), "min_tokens": (0,),
    "tool_choice": ("auto", "none"), "parallel_tool_calls": (True, False), "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,), "ignore_eos": (False,), "add_generation_prompt": (True,), "stop": ([],), "logit_bias": ({},),
}  # fmt: skip


@dataclass(frozen=True)
class SamplingSettings:
    """The distribution that a token is drawn from, in the order in which the steps are applied, and how many are drawn.

    Attributes:
        temperature: logits are divided by it; 0 takes the likeliest token.
        min_p: tokens less likely than this share of the likeliest one are left out; 0 leaves none out.
        top_k: only the `top_k` likeliest tokens; 0 and -1 keep all.
        top_p: the smallest set of likeliest tokens with at least this probability; 1 keeps all.
        max_tokens: an answer is cut after so many tokens.
    """

    temperature: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    max_tokens: int = 512

    def __post_init__(self) -> None:
        for name, good, allowed in (
            ("temperature", 0.0 <= self.temperature <= 100.0, "0 to 100"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "0 to 1"),
            ("top_k", self.top_k >= -1, "-1 or 0 for all, or a positive number"),
            ("top_p", 0.0 < self.top_p <= 1.0, "above 0, up to 1"),
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
        ):
            if not good:
                raise SettingsError(f"{name} is {getattr(self, name)}; allowed: {allowed}")

    @property
    def filtered(self) -> bool:
        """Whether tokens are left out before one is drawn."""
        return self.temperature > 0 and (self.min_p > 0.0 or self.top_k > 0 or self.top_p < 1.0)


def settings_of(body: Mapping[str, Any]) -> SamplingSettings:
    """The settings in a chat completion.

    Raises:
        SettingsError: a value outside its range, or a field that this engine does not honour.
    """
    known = {"temperature": float, "min_p": float, "top_k": int, "top_p": float}
    for name, value in body.items():
        if name in _PLAIN or name in _CAPTURE or name in known or value is None:
            continue
        if not any(value == neutral for neutral in _NEUTRAL.get(name, ())):
            honoured = ", ".join([*known, "max_tokens"])
            raise SettingsError(f"{name} is {ascii(value)[:80]}; the torch engine honours {honoured} and no other sampling field")
    given = {name: kind(body[name]) for name, kind in known.items() if body.get(name) is not None}
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    return SamplingSettings(**given, **({} if most is None else {"max_tokens": int(most)}))


@dataclass(frozen=True)
class SampleRequest:
    """One answer to sample.

    Attributes:
        key: the conversation that it belongs to, whose cached prefix may be used.
        prompt: token ids.
        seed: of the noise; the noise of a token is a function of this seed and of the token's place in the answer, of nothing else.
        settings: the distribution.
    """

    key: str
    prompt: Sequence[int]
    seed: int
    settings: SamplingSettings


@dataclass(frozen=True)
class Sample:
    """One sampled answer.

    Attributes:
        ids: sampled token ids, the stop token included.
        logprobs: float32, shape of `ids`: log-probabilities in nats of the distribution that each token was drawn from; of the plain
            one at temperature 0.
        finish_reason: `stop` at a stop token, `length` where it was cut.
        cached: prompt tokens whose keys and values were there already.
        seconds: from the start of the batch until the last token.
    """

    ids: tuple[int, ...]
    logprobs: NDArray[np.float32]
    finish_reason: str
    cached: int
    seconds: float


class BatchedEngine(SamplingEngine, Protocol):
    """A sampling engine in this process that answers many conversations in lock-step.

    Attributes:
        version: model version that is served; None before the first `serve` and after one that failed.
    """

    version: str | None

    @property
    def context(self) -> int:
        """Longest prompt and answer together, in tokens."""
        ...

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """The answers to all requests.

        Raises:
            EngineFailed: nothing is served, or the numbers went wrong.
        """
        ...

    def release(self, key: str) -> None:
        """Forget a conversation."""
        ...

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the answer begins.

        Raises:
            SettingsError: the chat template refuses the messages.
        """
        ...

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer, control tokens left out."""
        ...

    def token_text(self, token_id: int) -> str:
        """The text of one token by itself."""
        ...
