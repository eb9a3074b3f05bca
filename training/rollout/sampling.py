"""The interface of the engines that sample for training: they serve one model version from a folder at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

EngineKind = Literal["torch", "vllm"]


@dataclass(frozen=True)
class Refreshed:
    """What came of serving a version.

    Attributes:
        version: model version served from now on.
        cache_reset: whether cached prefixes were dropped.
        probe_gap_nats: largest difference between the engine's and the trainer's log-probabilities of the same tokens, over a cached
            prefix too; None where no trainer was given.
        seconds: time that it took.
    """

    version: str
    cache_reset: bool
    probe_gap_nats: float | None
    seconds: float


class TrainerScore(Protocol):
    """The trainer's log-probabilities of `ids[prompt:]` given what stands before each, in nats."""

    def __call__(self, ids: Sequence[int], prompt: int) -> NDArray[np.float64]: ...


class SamplingEngine(Protocol):
    """An engine that rollouts are sampled from.

    Attributes:
        kind: torch or vllm.
        engine_id: id of its stream of `EngineRefreshed` events.
        logprobs_mode: what its log-probabilities are.
    """

    kind: EngineKind
    engine_id: str
    logprobs_mode: str

    def serve(self, folder: Path, version: str, *, score: TrainerScore | None = None, tolerance_nats: float = 1e-3) -> Refreshed:
        """Serve the weights in a Hugging Face folder; caches are reset and, with `score`, a probe compares engine and trainer.

        Raises:
            EngineFailed: the folder cannot be served safely (tied embeddings), or the probe's gap is above the tolerance: no rollout
                may start then.
        """
        ...

    def logprobs(self, ids: Sequence[int], prompt: int) -> NDArray[np.float64]:
        """The engine's log-probabilities of `ids[prompt:]`, in nats."""
        ...

    def close(self) -> None:
        """Let go of the weights; a server is stopped."""
        ...
