"""The sampling engine in this process: many conversations advance one token at a time together. Reads model folders."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ledger.errors import EngineFailed
from training.rollout.sampling import EngineKind, Refreshed, TrainerScore
from training.rollout.sampling_calls import Sample, SampleRequest
from training.rollout.torch_llama import KEYS, ROWS, Llama, read_llama, rounded
from training.rollout.torch_sampler import Sampler
from training.rollout.torch_text import ChatText

_PROBE = "probe"
_PROBE_TOKENS = 96
_CHUNK = 2 * ROWS
_ROOM = 32
"""Tokens for which room is made beside the longest prompt of a batch; more is made when they are used up."""


@dataclass(frozen=True)
class _Kept:
    """A conversation's tokens whose keys and values are in row `row` of `cache`."""

    ids: NDArray[np.int64]
    cache: Tensor
    row: int


class TorchEngineSpec(NamedTuple):
    """How an engine is made: as the arguments of `TorchEngine`."""

    engine_id: str
    dtype: str | None
    threads: int


@dataclass(frozen=True)
class Served:
    """What an engine serves, for another that shall serve the same.

    Attributes:
        folder, version: of the weights.
        scores: the trainer's log-probabilities on the probe; None where it gave none.
        tolerance_nats: largest gap between them and the engine's.
    """

    folder: Path
    version: str
    scores: NDArray[np.float64] | None
    tolerance_nats: float


@dataclass
class _Open:
    """The answers of a batch that are not done.

    Attributes:
        requests: numbers of their requests.
        places: row of each in `cache`; the other rows are padding, or answers that are done.
        cache: keys and values.
        at: next position of each row of `cache`.
    """

    requests: list[int]
    places: Tensor
    cache: Tensor
    at: Tensor

    def keep(self, stay: Sequence[int]) -> None:
        """Let go of all but the n-th of the open answers for n in `stay`; rows are given up when half of them would do.

        What is done stays where it is in the `cache` of now, which those that keep a prefix hold.
        """
        self.requests, self.places = [self.requests[n] for n in stay], self.places[list(stay)]
        rows = rounded(len(stay), ROWS)
        if rows * 2 <= self.cache.shape[2]:
            chosen = torch.zeros(rows, dtype=torch.int64)
            chosen[: len(stay)] = self.places
            self.cache, self.at, self.places = self.cache[:, :, chosen], self.at[chosen], torch.arange(len(stay))


class TorchEngine:
    """Samples with the weights of one model folder at a time; see `training.rollout.sampling_calls.BatchedEngine`.

    Answers are a function of the weights, the prompt with the turns in which it was fed, the settings and the seed. They do not depend
    on which other answers are sampled in the same batch as long as the products that torch calls give a row the same numbers whatever
    stands in the other rows: batches are padded to multiples of 16 rows and 64 keys, for which this holds with one thread.

    Args:
        engine_id: id of its stream of events.
        dtype: float32 or bfloat16; None for what each folder says.
        threads: that a batch is computed with; the setting of the process is put back afterwards.
    """

    kind: EngineKind = "torch"
    logprobs_mode = "processed_logprobs"

    def __init__(self, engine_id: str = "torch", *, dtype: str | None = None, threads: int = 1) -> None:
        self.engine_id, self._dtype, self._threads = engine_id, dtype, threads
        self.version: str | None = None
        self.serving: Served | None = None
        self._served: tuple[Llama, ChatText] | None = None
        self._kept: dict[str, _Kept] = {}

    @property
    def context(self) -> int:
        """Longest prompt and answer together, in tokens."""
        return self._model.context

    def serve(self, folder: Path, version: str, *, score: TrainerScore | None = None, tolerance_nats: float = 1e-3) -> Refreshed:
        """What came of serving the weights in `folder`; every cached prefix is dropped, and with `score` the probe must pass.

        Raises:
            EngineFailed: the folder cannot be served, or the probe's gap is above the tolerance; then nothing is served.
        """
        began = time.monotonic()
        self.close()
        self._load(folder)
        scores: list[NDArray[np.float64]] = []
        gap = None if score is None else self.probe(_kept_scores(score, scores))
        if gap is not None and not gap <= tolerance_nats:
            self.close()
            raise EngineFailed(f"engine and trainer differ by {gap:.3g} nats on the probe of {version}; allowed: {tolerance_nats:g}")
        self.version, self.serving = version, Served(folder, version, scores[0] if scores else None, tolerance_nats)
        return Refreshed(version, True, gap, time.monotonic() - began)

    @property
    def spec(self) -> TorchEngineSpec:
        """How this engine was made."""
        return TorchEngineSpec(self.engine_id, self._dtype, self._threads)

    def close(self) -> None:
        """Let go of the weights and of all that is cached."""
        self.version, self.serving, self._served = None, None, None
        self._kept.clear()

    def serve_as(self, other: Served) -> None:
        """Serve what another engine serves, if this one does not yet, with the same probe.

        Raises:
            EngineFailed: as `serve`.
        """
        if self.version != other.version:
            score = None if other.scores is None else _given(other.scores)
            self.serve(other.folder, other.version, score=score, tolerance_nats=other.tolerance_nats)

    def probe(self, score: TrainerScore) -> float:
        """Largest difference in nats between this engine's and the trainer's log-probabilities of the same random tokens.

        They are scored at once, and token by token over the probe's cached prefix, so that a prefix kept from other weights shows.
        """
        length = min(_PROBE_TOKENS, self.context)
        draws = np.random.Generator(np.random.Philox(key=length))
        ids = [int(token) for token in draws.integers(self._model.vocabulary, size=length)]
        prompt = length * 2 // 3
        wanted = np.asarray(score(ids, prompt), np.float64)
        ways = (self.logprobs(ids, prompt), self.cached_logprobs(ids, prompt, key=_PROBE))
        return float(max(np.abs(way - wanted).max() for way in ways))

    def logprobs(self, ids: Sequence[int], prompt: int) -> NDArray[np.float64]:
        """Log-probabilities of `ids[prompt:]` under the plain distribution, in nats, computed at once and without the cache."""
        self._check_scored(ids, prompt)
        with self._computing() as model:
            length = rounded(len(ids), ROWS)
            given = torch.zeros(1, length, dtype=torch.int64)
            given[0, : len(ids)] = torch.tensor(ids)
            hidden = model.hidden(given, torch.zeros(1, dtype=torch.int64), model.cache(1, rounded(length, KEYS)))
            logprobs = torch.log_softmax(model.logits(hidden[0]), -1)[prompt - 1 : len(ids) - 1]
            return logprobs.gather(1, given[0, prompt : len(ids), None])[:, 0].double().numpy()

    def cached_logprobs(self, ids: Sequence[int], prompt: int, *, key: str) -> NDArray[np.float64]:
        """As `logprobs`, in the way in which answers are sampled: over the prefix kept for `key`, then token by token."""
        self._check_scored(ids, prompt)
        found: list[float] = []
        with self._computing() as model:
            opened, logits, _ = self._prefilled(model, [(key, ids[:prompt])])
            for n, token in enumerate(ids[prompt:], 1):
                found.append(float(torch.log_softmax(logits[0], -1)[token]))
                if prompt + n < len(ids):
                    logits = self._step(model, opened, torch.tensor([token]))
            # What is kept ends inside the prompt, so that the next probe feeds a suffix over it.
            self._kept[key] = _Kept(np.asarray(ids[: prompt // 2]), opened.cache, 0)
        return np.array(found)

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """The answers to all requests, in their order.

        Raises:
            EngineFailed: nothing is served, a prompt leaves no room for its answer, or log-probabilities are not finite.
        """
        began = time.monotonic()
        with self._computing() as model:
            for request in requests:
                if not 0 < len(request.prompt) <= model.context - request.settings.max_tokens:
                    raise EngineFailed(
                        f"a prompt of {len(request.prompt)} tokens and an answer of {request.settings.max_tokens}; allowed: 1 or more, and"
                        f" {model.context} together"
                    )
            found: dict[int, Sample] = {}
            for numbers in self._chunks(requests):
                found.update(zip(numbers, self._sampled(model, [requests[n] for n in numbers], began), strict=True))
            return [found[n] for n in range(len(requests))]

    def release(self, key: str) -> None:
        """Forget a conversation's keys and values."""
        self._kept.pop(key, None)

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the answer begins."""
        return self._text.prompt_ids(messages, tools)

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer, control tokens left out."""
        return self._text.text(ids)

    def token_text(self, token_id: int) -> str:
        """The text of one token by itself."""
        return self._text.token_text(token_id)

    def _load(self, folder: Path) -> None:
        self._served = read_llama(folder, dtype=self._dtype), ChatText(folder)

    @property
    def _model(self) -> Llama:
        return self._both()[0]

    @property
    def _text(self) -> ChatText:
        return self._both()[1]

    def _both(self) -> tuple[Llama, ChatText]:
        if self._served is None:
            raise EngineFailed(f"torch engine {self.engine_id!r} serves nothing; allowed: after a `serve` that succeeded")
        return self._served

    @contextmanager
    def _computing(self) -> Iterator[Llama]:
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                yield self._model
        finally:
            torch.set_num_threads(before)

    def _check_scored(self, ids: Sequence[int], prompt: int) -> None:
        if not 0 < prompt < len(ids) <= self.context:
            raise EngineFailed(f"scoring from token {prompt} of {len(ids)}; allowed: from 1, and up to {self.context} tokens")

    def _chunks(self, requests: Sequence[SampleRequest]) -> list[list[int]]:
        """Numbers of the requests that are computed together: those of like shape, since what is computed is as wide as its widest."""
        shapes = []
        for request in requests:
            known = self._kept.get(request.key)
            new = len(request.prompt) - (0 if known is None else _shared(known.ids, np.asarray(request.prompt, np.int64)))
            shapes.append((rounded(new, ROWS), len(request.prompt)))
        order = sorted(range(len(requests)), key=shapes.__getitem__)
        return [order[first : first + _CHUNK] for first in range(0, len(order), _CHUNK)]

    def _sampled(self, model: Llama, requests: Sequence[SampleRequest], began: float) -> list[Sample]:
        sampler = Sampler([request.settings for request in requests], [request.seed for request in requests])
        opened, logits, cached = self._prefilled(model, [(request.key, request.prompt) for request in requests])
        ids: list[list[int]] = [[] for _ in requests]
        logprobs: list[list[float]] = [[] for _ in requests]
        done: dict[int, Sample] = {}
        while opened.requests:
            drawn, scores = sampler.draw(logits[opened.places], opened.requests)
            if not bool(torch.isfinite(scores).all()):
                raise EngineFailed(f"log-probabilities of a batch of {len(requests)} are not finite; the weights are broken")
            stay: list[int] = []
            for n, (number, token, score) in enumerate(zip(opened.requests, drawn.tolist(), scores.tolist(), strict=True)):
                ids[number].append(token)
                logprobs[number].append(score)
                stopped = token in self._text.stop_ids
                if not stopped and len(ids[number]) < requests[number].settings.max_tokens:
                    stay.append(n)
                    continue
                reason, seconds = "stop" if stopped else "length", time.monotonic() - began
                done[number] = Sample(tuple(ids[number]), np.array(logprobs[number], np.float32), reason, cached[number], seconds)
                # The last token was never fed: the next prompt does that.
                fed = np.array([*requests[number].prompt, *ids[number][:-1]], np.int64)
                self._kept[requests[number].key] = _Kept(fed, opened.cache, int(opened.places[n]))
            if len(stay) < len(opened.requests):
                opened.keep(stay)
            if stay:
                logits = self._step(model, opened, drawn[stay])
        return [done[number] for number in range(len(requests))]

    def _prefilled(self, model: Llama, prompts: Sequence[tuple[str, Sequence[int]]]) -> tuple[_Open, Tensor, list[int]]:
        """The batch after its prompts, the logits of what comes next, and how many tokens of each prompt were there already."""
        given = [np.asarray(prompt, np.int64) for _, prompt in prompts]
        kept = [self._kept.get(key) for key, _ in prompts]
        shared = [0 if known is None else _shared(known.ids, prompt) for known, prompt in zip(kept, given, strict=True)]
        suffix = [len(prompt) - count for prompt, count in zip(given, shared, strict=True)]
        batch, width = rounded(len(prompts), ROWS), rounded(max(suffix), ROWS)
        longest = max(max(map(len, given)) + _ROOM, max(shared) + width)
        cache = model.cache(batch, rounded(longest, KEYS))
        _copy(kept, shared, cache)
        ids, start = np.zeros((batch, width), np.int64), np.zeros(batch, np.int64)
        for n, (prompt, count) in enumerate(zip(given, shared, strict=True)):
            ids[n, : suffix[n]], start[n] = prompt[count:], count
        hidden = model.hidden(torch.from_numpy(ids), torch.from_numpy(start), cache)
        last = torch.zeros(batch, dtype=torch.int64)
        last[: len(prompts)] = torch.tensor(suffix) - 1
        at = torch.zeros(batch, dtype=torch.int64)
        at[: len(prompts)] = torch.tensor([len(prompt) for prompt in given])
        opened = _Open(list(range(len(prompts))), torch.arange(len(prompts)), cache, at)
        return opened, model.logits(hidden[torch.arange(batch), last]), shared

    def _step(self, model: Llama, opened: _Open, tokens: Tensor) -> Tensor:
        """Logits after one more token of each open answer, for all rows of the cache."""
        longest = int(opened.at.max()) + 1
        if longest > opened.cache.shape[4]:
            room = model.cache(opened.cache.shape[2], rounded(longest + _ROOM, KEYS))
            room[:, :, :, :, : opened.cache.shape[4]] = opened.cache
            opened.cache = room
        ids = torch.zeros(opened.cache.shape[2], 1, dtype=torch.int64)
        ids[opened.places, 0] = tokens
        logits = model.logits(model.hidden(ids, opened.at, opened.cache[:, :, :, :, : rounded(longest, KEYS)])[:, 0])
        opened.at[opened.places] += 1
        return logits


def _kept_scores(score: TrainerScore, into: list[NDArray[np.float64]]) -> TrainerScore:
    def kept(ids: Sequence[int], prompt: int) -> NDArray[np.float64]:
        into.append(np.asarray(score(ids, prompt), np.float64))
        return into[-1]

    return kept


def _given(scores: NDArray[np.float64]) -> TrainerScore:
    def known(ids: Sequence[int], prompt: int) -> NDArray[np.float64]:
        return scores

    return known


def _shared(known: NDArray[np.int64], prompt: NDArray[np.int64]) -> int:
    """Number of tokens at the prompt's start that are known; at least one is left to feed."""
    size = min(len(known), len(prompt) - 1)
    same = known[:size] == prompt[:size]
    return size if same.all() else int(same.argmin())


def _copy(kept: Sequence[_Kept | None], shared: Sequence[int], cache: Tensor) -> None:
    """Copy kept prefixes into the rows of a new cache; rows that come from one old cache go together."""
    sources: dict[int, list[int]] = {}
    for n, known in enumerate(kept):
        if known is not None and shared[n]:
            sources.setdefault(id(known.cache), []).append(n)
    for rows in sources.values():
        found = [known for n in rows if (known := kept[n]) is not None]
        length = min(max(shared[n] for n in rows), found[0].cache.shape[4])
        cache[:, :, rows, :, :length] = found[0].cache[:, :, [known.row for known in found], :, :length]
