"""vLLM as an engine to train from: one managed server, refreshed in place, probed against the trainer before it samples. Runs a process."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ledger.errors import EngineFailed
from training.rollout import engine
from training.rollout.engine_refresh import PROBE_BLOCKS, check_weights, context_of, greedy, probe_prompt
from training.rollout.engine_refresh import score as engine_score
from training.rollout.engine_spec import Engine, EngineSpec
from training.rollout.gateway_upstream import Upstream
from training.rollout.sampling import EngineKind, Refreshed, TrainerScore


class VllmEngine:
    """A vLLM server of a folder, started when it is first asked to serve and again when it has died.

    Args:
        home: folder of the server's state and log; one server a folder.
        spec: how to serve; its model and version are those of the last `serve`.
        say: takes one line of progress.
    """

    kind: EngineKind = "vllm"

    def __init__(self, home: Path, spec: EngineSpec, *, say: Callable[[str], None] = lambda _: None) -> None:
        self.home, self.spec, self.say = home, spec, say
        self.engine_id = f"vllm-{spec.served_name}"
        self.logprobs_mode = spec.logprobs_mode
        self._running: Engine | None = None

    def serve(self, folder: Path, version: str, *, score: TrainerScore | None = None, tolerance_nats: float = 1e-3) -> Refreshed:
        """Serve the weights in `folder`: by a refresh in place where the server runs, by a start where it does not.

        Raises:
            EngineFailed: the folder cannot be served safely, the server did not start, or it disagrees with the trainer by more than the
                tolerance. The server is stopped then, so that nothing samples from it.
        """
        check_weights(folder)
        began = time.monotonic()
        self.spec = replace(self.spec, model=folder, version=version, max_model_len=min(self.spec.max_model_len, context_of(folder)))
        before = engine.status(self.home)
        self._running = engine.start(self.spec, self.home, say=self.say)
        served = engine.served_version(self._running)
        if served != version:
            raise EngineFailed(f"the server of {self.home} says that it serves {served!r}; asked for was {version!r}")
        gap = None if score is None else self.probe(score)
        if gap is not None and gap > tolerance_nats:
            self.close()
            raise EngineFailed(
                f"engine and trainer differ by {gap:.3g} nats on {version}; allowed: {tolerance_nats:g}. The server was stopped: its"
                " weights or its cached prefixes are not those of the version"
            )
        # A server that has served this very version all along keeps its cache, and may.
        kept = before.version == version and before.engine is not None and before.engine.pid == self._running.pid
        return Refreshed(version, not kept, gap, time.monotonic() - began)

    def probe(self, score: TrainerScore) -> float:
        """Largest difference in nats between trainer and engine, over tokens sampled with a cached prefix and the same scored afresh."""
        running, prompt = self._serving(), probe_prompt(self.spec.model, PROBE_BLOCKS * self.spec.block_size)
        # The first pass fills the cache, the second one samples over it.
        greedy(running, prompt)
        ids, sampled = greedy(running, prompt)
        expected = score([*prompt, *ids], len(prompt))
        fresh = self.logprobs([*prompt, *ids], len(prompt))
        return float(max(np.abs(np.asarray(sampled) - expected).max(), np.abs(fresh - expected).max()))

    def logprobs(self, ids: Sequence[int], prompt: int) -> NDArray[np.float64]:
        """The engine's log-probabilities of `ids[prompt:]` in nats, computed without cached prefixes."""
        return np.array(engine_score(self._serving(), ids[:prompt], ids[prompt:]))

    def upstream(self) -> Upstream:
        """The server as an upstream of the gateway.

        Raises:
            EngineFailed: nothing was served yet.
        """
        running = self._serving()
        return Upstream(running.base_url, self.spec.version, kind="vllm", logprobs_mode=self.spec.logprobs_mode)

    def close(self) -> None:
        """Stop the server, if it runs."""
        self._running = None
        engine.stop(self.home)

    def _serving(self) -> Engine:
        if self._running is None:
            raise EngineFailed(f"the engine of {self.home} serves nothing yet; call serve first")
        return self._running
