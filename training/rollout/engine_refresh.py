"""New weights for a running inference server: it is paused, reloads, forgets its cached prefixes and says how far its numbers moved."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ledger.errors import EngineFailed
from training.rollout.engine_spec import Engine, ask

PROBE_BLOCKS = 6
"""Length of a probe's prompt in cache blocks: shorter than one block nothing is cached, and old keys and values would not show."""
PROBE_TOKENS = 8


@dataclass(frozen=True)
class RefreshResult:
    """What a refresh did.

    Attributes:
        version: model version that the server reports from now on.
        previous_version: what it reported before.
        seconds: from the first request to the last.
        paused_s: seconds in which nothing was sampled, waiting for open answers included.
        cache_reset: True when the prefix cache was emptied.
        moved_nats: largest change of a log-probability of the same greedy tokens, before to after; 0 says that nothing changed.
        cache_gap_nats: largest difference, after, between tokens sampled over the cached prefix and the same tokens scored afresh;
            about the noise of the arithmetic (float32 1e-5, bfloat16 0.1) unless old keys and values are in use.
    """

    version: str
    previous_version: str
    seconds: float
    paused_s: float
    cache_reset: bool
    moved_nats: float
    cache_gap_nats: float


def refresh(engine: Engine, weights: Path, version: str, *, timeout_s: float = 600.0) -> RefreshResult:
    """What came of loading the weights in `weights` into the running server under the name `version`.

    Open answers are finished with the old weights before anything is loaded. If a step fails the server stays paused,
    because it may hold a mixture of weights: refresh again, or restart it.

    Args:
        engine: the server.
        weights: folder in Hugging Face form with the architecture that is served and an output layer of its own.
        version: name of the model version.
        timeout_s: longest wait for one step, in seconds.

    Raises:
        EngineFailed: the folder cannot be loaded safely, or a step failed.
    """
    check_weights(weights)
    began = time.monotonic()
    root = engine.root_url
    previous = served_version(engine)
    paused_before = bool(ask(f"{root}/is_paused")["is_paused"])
    prompt = probe_prompt(weights, PROBE_BLOCKS * engine.spec.block_size)
    before = None if paused_before else greedy(engine, prompt)
    paused_at = time.monotonic()
    ask(f"{root}/pause?mode=wait", post=True, timeout_s=timeout_s)
    ask(f"{root}/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(weights.resolve())}}, timeout_s=timeout_s)
    reset = ask(f"{root}/reset_prefix_cache", post=True, timeout_s=timeout_s)
    if not reset["success"]:
        raise EngineFailed(f"the prefix cache of {root} could not be reset; the server stays paused, so refresh again or restart it")
    ask(f"{root}/update_weight_version", {"new_version": version})
    ask(f"{root}/resume", post=True)
    paused_s = time.monotonic() - paused_at
    # The first pass fills the emptied cache and the second one reads it.
    greedy(engine, prompt)
    ids, sampled = greedy(engine, prompt)
    cache_gap = _largest_gap(sampled, score(engine, prompt, ids))
    moved = _largest_gap(before[1], score(engine, prompt, before[0])) if before else float("nan")
    return RefreshResult(version, previous, time.monotonic() - began, paused_s, True, moved, cache_gap)


def check_weights(weights: Path) -> None:
    """Returns when the folder can be loaded into a running server.

    Raises:
        EngineFailed: no configuration, no weights, or an output layer that is tied to the embedding.
    """
    try:
        config = json.loads((weights / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise EngineFailed(f"{weights} has no config.json; expected a model folder in Hugging Face form") from error
    if not any(weights.glob("*.safetensors")):
        raise EngineFailed(f"{weights} has no *.safetensors file; expected a model folder in Hugging Face form")
    if config.get("tie_word_embeddings"):
        raise EngineFailed(
            f"{weights} says tie_word_embeddings: true; a reload would silently keep the old output layer,"
            " so save it with tie_word_embeddings: false and an lm_head.weight of its own"
        )


def served_version(engine: Engine) -> str:
    """The name of the model version that the server says it serves; `default` before any was set."""
    return str(ask(f"{engine.root_url}/weight_info")["weight_version"])


def probe_prompt(folder: Path, tokens: int) -> list[int]:
    """Token ids for a probe: the same for the same vocabulary and length, cut to what the model's context leaves room for."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Random("probe").choices(range(int(config["vocab_size"])), k=max(1, min(tokens, context_of(folder) - PROBE_TOKENS - 1)))


def context_of(folder: Path) -> int:
    """Longest prompt and answer together that the policy in the folder was made for, in tokens.

    Raises:
        EngineFailed: its configuration does not say.
    """
    context = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("max_position_embeddings")
    if not isinstance(context, int) or context < 1:
        raise EngineFailed(f"{folder} has max_position_embeddings {context!r}; allowed: a positive number")
    return context


def greedy(engine: Engine, prompt: Sequence[int]) -> tuple[list[int], list[float]]:
    """The most likely next tokens, with their log-probabilities in nats; prefixes that are cached are used."""
    choice = _complete(engine, prompt, PROBE_TOKENS, {"logprobs": 0, "ignore_eos": True})
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def score(engine: Engine, prompt: Sequence[int], ids: Sequence[int]) -> list[float]:
    """Log-probabilities of `ids` after `prompt` in nats, computed without cached prefixes."""
    # vLLM computes prompt log-probabilities without the prefix cache.
    choice = _complete(engine, [*prompt, *ids], 1, {"prompt_logprobs": 0})
    columns = choice["prompt_logprobs"][len(prompt) :]
    return [column[str(token)]["logprob"] for token, column in zip(ids, columns, strict=True)]


def _complete(engine: Engine, prompt: Sequence[int], max_tokens: int, more: dict[str, Any]) -> dict[str, Any]:
    body = {
        "model": engine.spec.served_name,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "return_token_ids": True,
    }
    answer: dict[str, Any] = ask(f"{engine.base_url}/completions", body | more, timeout_s=600.0)["choices"][0]
    return answer


def _largest_gap(left: Sequence[float], right: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(left, right, strict=True))
