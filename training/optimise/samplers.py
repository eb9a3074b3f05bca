"""What an experiment's rounds are sampled by, as its file says. Starts processes for a model server; writes the ledger."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ledger.errors import SettingsError
from training.crew import crew_of
from training.lab import Lab
from training.optimise.rounds import RoundSampler
from training.rollout.collect import Collected, Group, Run, Slot, collect
from training.rollout.engine import EngineSpec
from training.rollout.lockstep import Filled, collect_lockstep, fill_sampled, joined
from training.rollout.torch_engine import Served, TorchEngine, TorchEngineSpec
from training.rollout.vllm_sampling import VllmEngine
from training.stages import Progress

AT_ONCE = 256
"""Most rollouts that advance together."""


class TorchRounds:
    """Rounds sampled in lock-step: in this process, or in several that share them."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine

    def collect(self, lab: Lab, run: Run, groups: Sequence[Group], *, progress: Progress) -> Collected:
        """What was done so that every slot of every group has one counted attempt."""
        total = sum(group.size for group in groups)
        what = f"rollouts of round {run.round}"
        return asyncio.run(self._collect(lab, run, groups, lambda count: progress(what, count, total)))

    async def _collect(self, lab: Lab, run: Run, groups: Sequence[Group], progress: Callable[[int], None]) -> Collected:
        count = sum(group.size for group in groups)
        crew = crew_of(lab, count)

        async def shared(run: Run, slots: Sequence[Slot]) -> Filled:
            assert crew is not None
            assert self.engine.serving is not None
            return joined(await asyncio.to_thread(crew.each, _fill_sampled, slots, run, self.engine.spec, self.engine.serving))

        return await collect_lockstep(
            lab.bare_site(), run, groups, engine=self.engine, concurrency=min(AT_ONCE, count), progress=progress,
            shared=None if crew is None else shared,
        )  # fmt: skip


_engines: dict[TorchEngineSpec, TorchEngine] = {}


def _fill_sampled(lab: Lab, slots: Sequence[Slot], run: Run, spec: TorchEngineSpec, serving: Served) -> Filled:
    """In a process that shares a round."""
    engine = _engines.setdefault(spec, TorchEngine(spec.engine_id, dtype=spec.dtype, threads=spec.threads))
    engine.serve_as(serving)
    return asyncio.run(fill_sampled(lab.bare_site(), run, slots, engine=engine, concurrency=min(AT_ONCE, len(slots))))


class VllmRounds:
    """Rounds sampled by a model server, every call through the capture gateway."""

    def __init__(self, engine: VllmEngine) -> None:
        self.engine = engine

    def collect(self, lab: Lab, run: Run, groups: Sequence[Group], *, progress: Progress) -> Collected:
        """What was done so that every slot of every group has one counted attempt."""
        total = sum(group.size for group in groups)
        what = f"rollouts of round {run.round}"
        return asyncio.run(self._collect(lab, run, groups, lambda count: progress(what, count, total)))

    async def _collect(self, lab: Lab, run: Run, groups: Sequence[Group], progress: Callable[[int], None]) -> Collected:
        serving = self.engine.upstream()
        # The server knows its weights by one name, whatever version they are.
        asked = [replace(group, policy=replace(group.policy, model=self.engine.spec.served_name, stream=True)) for group in groups]
        async with lab.site(asked, upstreams={serving.model_version: serving}) as site:
            return await collect(site, run, asked, concurrency=lab.config.concurrency, progress=progress)


@contextmanager
def open_sampler(lab: Lab) -> Iterator[RoundSampler]:
    """The engine and collector of the experiment's `[train.engine]`; the engine is closed at the end, which stops a model server.

    Raises:
        SettingsError: the experiment trains nothing.
    """
    if lab.config.train is None:
        raise SettingsError(f"experiment {lab.config.name!r} has no [train]; allowed: one with stages")
    table = lab.config.train
    if table.engine.kind == "vllm":
        server = vllm_engine(lab)
        try:
            yield VllmRounds(server)
        finally:
            server.close()
        return
    engine = TorchEngine(f"torch-{lab.run().run_id}", dtype=table.policy.dtype, threads=table.threads)
    try:
        yield TorchRounds(engine)
    finally:
        engine.close()


def vllm_engine(lab: Lab) -> VllmEngine:
    """The deployment's model server for the experiment's policy; nothing runs before it serves."""
    assert lab.config.train is not None
    table = lab.config.train
    home = lab.settings.data_dir / "engine"
    spec = EngineSpec(
        model=home, served_name=lab.config.name, dtype=table.policy.dtype, max_model_len=table.engine.context_tokens,
        tool_parser="hermes" if lab.config.harness.tool_format == "native" else None,
    )  # fmt: skip
    return VllmEngine(home, spec, say=lab.say)
