"""Draws tokens from logits with keyed noise: a token depends on its logits, its call's seed and its place, and on nothing else. Pure."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from training.rollout.sampling_calls import SamplingSettings


class Sampler:
    """Draws for the rows of one batch; row i has `settings[i]` and the noise of `seeds[i]`.

    The noise is Gumbel noise from numpy's Philox generator with the seed as its key: the n-th token of an answer takes the n-th block of
    one uniform float64 a vocabulary entry. The largest noisy log-probability is a draw from the distribution.
    """

    def __init__(self, settings: Sequence[SamplingSettings], seeds: Sequence[int]) -> None:
        self.settings = list(settings)
        self._streams = [
            None if row.temperature == 0.0 else np.random.Generator(np.random.Philox(key=seed))
            for row, seed in zip(settings, seeds, strict=True)
        ]
        self._filtered = [n for n, row in enumerate(settings) if row.filtered]
        self._divisor = torch.tensor([row.temperature or 1.0 for row in settings])[:, None]

    def draw(self, logits: Tensor, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Token ids and their log-probabilities in nats, for the batch's rows that are still open.

        Args:
            logits: float32, shape (n, vocabulary), n at least the number of rows; row i of it belongs to row `rows[i]`.
        Returns:
            int64 and float32, shape (number of rows,). Log-probabilities are those of the distribution that was drawn from; at
            temperature 0 those of the plain one.
        """
        count, size = len(rows), logits.shape[-1]
        logprobs = torch.log_softmax(self._processed(logits[:count] / self._divisor[list(rows)], rows), -1)
        noisy = logprobs.double() + self._noise(rows, size)
        chosen = noisy.argmax(-1)
        return chosen, logprobs.gather(1, chosen[:, None])[:, 0]

    def _noise(self, rows: Sequence[int], size: int) -> Tensor:
        uniform = np.empty((len(rows), size))
        drawn = np.ones(len(rows), bool)
        for n, row in enumerate(rows):
            stream = self._streams[row]
            if stream is None:
                drawn[n] = False
            else:
                stream.random(out=uniform[n])
        if not drawn.any():
            return torch.zeros(())
        noise = -torch.log(-torch.log(torch.from_numpy(uniform)))
        return noise if drawn.all() else torch.where(torch.from_numpy(drawn)[:, None], noise, 0.0)

    def _processed(self, logits: Tensor, rows: Sequence[int]) -> Tensor:
        if not self._filtered:
            return logits
        places = {row: n for n, row in enumerate(rows)}
        for row in self._filtered:
            if row in places:
                logits[places[row]] = kept(logits[places[row]], self.settings[row])
        return logits


def kept(logits: Tensor, settings: SamplingSettings) -> Tensor:
    """Logits of one row with -inf for the tokens that `min_p`, `top_k` and `top_p` leave out, in that order.

    Source: the order and the treatment of ties are vLLM's (v1/sample/ops/topk_topp_sampler.py).
    """
    if settings.min_p > 0.0:
        probabilities = torch.softmax(logits, -1)
        logits = logits.masked_fill(probabilities < settings.min_p * probabilities.max(), -torch.inf)
    if 0 < settings.top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(settings.top_k).values[-1], -torch.inf)
    if settings.top_p < 1.0:
        ascending, order = logits.sort()
        dropped = torch.softmax(ascending, -1).cumsum(-1) <= 1.0 - settings.top_p
        dropped[-1] = False
        logits = logits.masked_fill(torch.zeros_like(dropped).scatter(0, order, dropped), -torch.inf)
    return logits
