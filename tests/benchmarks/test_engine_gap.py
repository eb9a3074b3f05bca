"""How far apart the log-probabilities of engine and trainer are for the same sampled tokens, before and after new weights.

Each engine samples rollouts of several turns over kept prefixes in the way in which rounds of training are sampled; the tokens and the
engine's log-probabilities of them are read back from the ledger, and the trainer's scorer says what it thinks of the same rows. The engine
then takes other weights, a server by a refresh in place, and does it again. `TALLY_BENCH_ROLLOUTS` is the number of rollouts an engine and
version (128), at least 16.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ledger.attempts import attempts
from ledger.errors import EngineFailed
from ledger.events import ModelCalled
from ledger.ledger import open_ledger
from tests.benchmarks import desk_policy
from tests.benchmarks.desk_policy import TASKS, Version
from tests.conftest import Cluster
from training.lab import Lab
from training.models.causal_lm import load_model
from training.optimise.logprobs import Agreement, Precision, Scorer, agreement, token_scores, torch_threads
from training.optimise.rounds import RoundSampler
from training.optimise.samplers import TorchRounds, VllmRounds
from training.rollout.collect import Group
from training.rollout.engine import EngineSpec
from training.rollout.policies import Policy
from training.rollout.torch_engine import TorchEngine
from training.rollout.vllm_sampling import VllmEngine
from training.stages import silent
from training.view import RolloutView
from training.view_read import read_round

pytestmark = pytest.mark.bench
GROUP_SIZE = max(1, int(os.environ.get("TALLY_BENCH_ROLLOUTS", "128")) // TASKS)
BOUND_NATS = 1e-3
"""Between an engine and a trainer that both compute in float32."""
ENGINES = ("torch float32", "torch bfloat16", "vllm float32", "vllm bfloat16")
TRAINERS: dict[str, Precision] = {"float32": "weights", "bfloat16": "bfloat16"}


@dataclass(frozen=True)
class Sampled:
    """What an engine sampled by one version.

    Attributes:
        view: the tokens with the engine's log-probabilities.
        calls: model calls a rollout.
        cached: share of the prompt tokens that the engine took from a kept prefix.
    """

    view: RolloutView
    calls: float
    cached: float

    def gap(self, folder: Path, precision: Precision) -> Agreement:
        """Between the engine and a trainer with the weights in `folder`, over every sampled token."""
        view = self.view
        with torch_threads(1):
            scores = token_scores(
                Scorer(load_model(folder), precision=precision), view.id_T, view.row_T, micro_tokens=8192, wanted_T=view.mask_T
            )
        return agreement(view.behaviour_logprob_T[view.mask_T], scores.logprob_T[view.mask_T])


@contextmanager
def opened(name: str, home: Path) -> Iterator[RoundSampler]:
    """The engine of this name, with the collector that rounds of training use; a server is stopped at the end."""
    kind, dtype = name.split()
    if kind == "torch":
        torch_engine = TorchEngine(dtype=dtype)
        yield TorchRounds(torch_engine)
        torch_engine.close()
        return
    # The server says how many tokens of a prompt were cached only when it is told to.
    spec = EngineSpec(
        model=home, served_name="briefly", dtype=dtype, max_model_len=1024, tool_parser=None, more=("--enable-prompt-tokens-details",)
    )
    server = VllmEngine(home, spec)
    try:
        yield VllmRounds(server)
    finally:
        server.close()


def sampled(lab: Lab, sampler: RoundSampler, name: str, version: Version) -> Sampled:
    """What the engine samples by a version that it serves."""
    policy = Policy(name.replace(" ", "-"), version.name, version.name, sampling={"temperature": 1.0}, trainable=True)
    groups = [Group(bundle, policy, GROUP_SIZE) for bundle in lab.bundles]
    sampler.collect(lab, lab.run(), groups, progress=silent)
    ids = [attempt.rollout_id for attempt in attempts(lab.ledger, [lab.run().group_id(group) for group in groups]) if attempt.counts]
    assert len(ids) == GROUP_SIZE * len(groups)
    events = lab.ledger.read_streams([f"rollout-{rollout_id}" for rollout_id in ids])
    calls = [event.body for event in events if isinstance(event.body, ModelCalled)]
    assert {call.status for call in calls} == {"completed"}
    assert {span.model_version for call in calls for span in call.version_spans} == {version.name}
    cached, prompt = (sum(call.usage.get(key) or 0 for call in calls) for key in ("cached_tokens", "prompt_tokens"))
    return Sampled(read_round(lab.ledger, ids).view, len(calls) / len(ids), cached / prompt)


def line(*cells: object) -> str:
    """Cells in columns."""
    widths = (16, 44, 10, 8, 12, 10)
    return "  " + "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def shown(gap: Agreement) -> tuple[int, str, str]:
    """Number of tokens, mean and largest gap."""
    return gap.tokens, f"{gap.mean:.2e}", f"{gap.max:.2e}"


def measured(lab: Lab, home: Path, versions: Sequence[Version], name: str) -> list[Agreement]:
    """The gaps of one engine, float32 against float32 alone; prints all of them."""
    strict: list[Agreement] = []
    before: Version | None = None
    with opened(name, home) as sampler:
        for when, version in zip(("first weights", "after new weights"), versions, strict=True):
            sampler.engine.serve(version.folder, version.name)
            found = sampled(lab, sampler, name, version)
            about = f"{when}, {found.calls:.1f} calls, {found.cached:.0%} cached"
            assert found.calls > 2, "rollouts of one call show no kept prefix"
            assert found.cached > 0, "no prompt went on from a kept prefix"
            for trainer, precision in TRAINERS.items():
                gap = found.gap(version.folder, precision)
                assert gap.tokens and not gap.missing
                print(line(name, about, trainer, *shown(gap)))
                if name.endswith("float32") and trainer == "float32":
                    strict.append(gap)
            if before is not None:
                stale = found.gap(before.folder, "weights")
                print(line(name, "the first weights, now stale", "float32", *shown(stale)))
                assert stale.max > 100 * BOUND_NATS, "the new weights are like the old ones, so that a refresh would not show"
            before = version
    return strict


def test_engine_and_trainer_agree_on_sampled_tokens(disk_cluster: Cluster, tmp_path: Path) -> None:
    strict: dict[str, list[Agreement]] = {}
    with (
        open_ledger(disk_cluster.migrated_database(), project="bench", actor_id="bench") as ledger,
        desk_policy.opened(ledger, tmp_path / "data") as lab,
    ):
        versions = desk_policy.briefly_trained(lab)
        print(f"\n|engine - trainer| of sampled tokens, nats; {GROUP_SIZE * TASKS} rollouts of the desk an engine and version")
        print(line("engine", "rollouts", "trainer", "tokens", "mean", "max"))
        for name in ENGINES:
            try:
                strict[name] = measured(lab, tmp_path / name.replace(" ", "-"), versions, name)
            except EngineFailed as error:
                # A processor or a build may lack bfloat16; float32 has to work.
                if name != "vllm bfloat16":
                    raise
                print(f"  {name}: not measured, {str(error)[:300]}")
    worst = {name: float(np.max([gap.max for gap in gaps])) for name, gaps in strict.items() if gaps}
    assert set(worst) == {"torch float32", "vllm float32"}
    assert all(gap < BOUND_NATS for gap in worst.values()), worst
