"""What the capture gateway costs a rollout: the same harness, tasks and seeds through it and straight at the same vLLM server, in pairs.

`TALLY_BENCH_PAIRS` is the number of interleaved pairs (10). Each way starts from an empty prefix cache.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from ledger.ledger import open_ledger
from tests.benchmarks import desk_policy
from tests.benchmarks.harness_load import ASKING_IDS, Load, Played, collected, driven
from tests.benchmarks.peers.processes import Serving, serving
from tests.benchmarks.rounds import interleaved, report
from tests.benchmarks.test_gateway import python, shown
from tests.conftest import Cluster
from training.lab import Lab
from training.rollout.collect import Group, Run
from training.rollout.engine_spec import EngineSpec, ask
from training.rollout.gateway import Upstream
from training.rollout.harness import tool_loop
from training.rollout.policies import Policy, version_of
from training.rollout.vllm_sampling import VllmEngine

pytestmark = pytest.mark.bench
PAIRS = int(os.environ.get("TALLY_BENCH_PAIRS", "10"))
GOAL = 0.95
SMOLLM2_TASKS, TINY_TASKS = 4, 16
STRAIGHT, WITH_IDS, THROUGH, COLLECTED = (
    "straight at vLLM (control)", "straight, ids asked for", "through the gateway, a process of its own", "collected, everything recorded",
)  # fmt: skip


@dataclass
class Pairs:
    """The ways that are measured in turn, and what was played on each; `warm` plays count for nothing."""

    load: Load
    name: str
    upstream: Upstream
    played: dict[str, list[Played]] = field(default_factory=dict)

    def arm(self, name: str, play: Callable[[Run], Played]) -> Callable[[], float]:
        """The way as an arm of rounds: rollouts a second; the first play is to warm up, and has seeds of its own."""
        rounds, self.played[name] = count(), []

        def rate() -> float:
            run = Run(f"share-{self.name}", "share", next(rounds), 7)
            # What another way has asked just now would be in the cache.
            assert ask(f"{self.upstream.base_url.removesuffix('/v1')}/reset_prefix_cache", post=True)["success"]
            played = play(run)
            if run.round:
                self.played[name].append(played)
            return self.load.rollouts / played.seconds

        return rate

    def straight(self, run: Run) -> Played:
        """Played without a gateway."""
        return asyncio.run(driven(self.load, run, [self.upstream.base_url] * self.load.rollouts))

    def with_ids(self, run: Run) -> Played:
        """Played without a gateway, token ids asked for."""
        return asyncio.run(driven(self.load, run, [self.upstream.base_url] * self.load.rollouts, more=ASKING_IDS))

    def measure(self, title: str, arms: dict[str, Callable[[], float]]) -> dict[str, float]:
        """Medians of the ratios to the control; prints them and what was sampled."""
        for arm in arms.values():
            arm()
        ratios = report(title, interleaved(arms, PAIRS), STRAIGHT, "rollouts/s")
        for name, played in self.played.items():
            print(f"  {name}: {sum(one.calls for one in played)} calls, {sum(one.sampled for one in played)} sampled tokens")
        return ratios


@contextmanager
def served(folder: Path, version: str, name: str, home: Path, *, tools: bool) -> Iterator[Upstream]:
    """A vLLM server of the weights in a folder, in float32; it is stopped at the end."""
    spec = EngineSpec(model=folder, served_name=name, max_model_len=2048, tool_parser="hermes" if tools else None)
    server = VllmEngine(home, spec)
    try:
        server.serve(folder, version)
        yield server.upstream()
    finally:
        server.close()


@contextmanager
def gateway(url: str, upstream: Upstream, model: str, folder: Path, rollouts: int) -> Iterator[tuple[Serving, Iterator[str]]]:
    """Our gateway's own process, and the base URLs of so many rollouts."""
    command = [*python("drive_tallystick.py"), "--database-url", url, "--upstream", upstream.base_url, "--model", model]
    with serving([*command, "--rollouts", str(rollouts)], folder) as process:
        yield process, (target["url"].removesuffix("/chat/completions") for target in process.ready["targets"])


@pytest.fixture(scope="module")
def desk(disk_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The desk with its tasks, and a ledger."""
    with (
        open_ledger(disk_cluster.migrated_database(), project="bench", actor_id="bench") as ledger,
        desk_policy.opened(ledger, tmp_path_factory.mktemp("desk")) as lab,
    ):
        yield lab


def taken(urls: Iterator[str], number: int) -> list[str]:
    """The next URLs, none of which was used."""
    return [next(urls) for _ in range(number)]


def test_rollouts_of_smollm2_through_the_gateway_and_straight_at_vllm(
    disk_cluster: Cluster, desk: Lab, smollm2_dir: Path, tmp_path: Path
) -> None:
    harness = tool_loop(calls_per_turn=3, calls=3, max_tokens=32)
    sampling = {"temperature": 1.0, "tool_choice": "required", "parallel_tool_calls": False}
    version = version_of("smollm2", smollm2_dir)
    policy = Policy("smollm2", "smollm2", version, sampling=sampling, trainable=True, stream=True, strict_tools=True)
    groups = [Group(replace(bundle, harness_id=harness.harness_id), policy, 1) for bundle in desk.bundles[:SMOLLM2_TASKS]]
    load = Load(desk.worlds["ticket_desk"], harness, groups, callers=SMOLLM2_TASKS)
    with (
        served(smollm2_dir, version, "smollm2", tmp_path / "engine", tools=True) as upstream,
        gateway(disk_cluster.migrated_database(), upstream, "smollm2", tmp_path / "gateway", load.rollouts * (PAIRS + 1)) as (_, urls),
    ):
        pairs = Pairs(load, "smollm2", upstream)
        ratios = pairs.measure(
            f"SmolLM2-135M, {load.rollouts} rollouts of the desk at once, {harness.table.calls} calls of {harness.table.max_tokens} tokens",
            {
                STRAIGHT: pairs.arm(STRAIGHT, pairs.straight),
                WITH_IDS: pairs.arm(WITH_IDS, pairs.with_ids),
                THROUGH: pairs.arm(THROUGH, lambda run: asyncio.run(driven(load, run, taken(urls, load.rollouts)))),
                COLLECTED: pairs.arm(COLLECTED, lambda run: asyncio.run(collected(load, run, desk.ledger, upstream))),
            },
        )
    for name in (THROUGH, COLLECTED):
        print(f"  goal: {name} at least {GOAL} of straight: {'reached' if ratios[name] >= GOAL else 'not reached'} ({ratios[name]:.3f})")


def test_time_that_the_gateway_adds_to_a_call_of_a_tiny_policy(disk_cluster: Cluster, desk: Lab, tmp_path: Path) -> None:
    _, version = desk_policy.briefly_trained(desk)
    policy = Policy("tiny", "tiny", version.name, sampling={"temperature": 1.0}, trainable=True, stream=True)
    groups = [Group(bundle, policy, 1) for bundle in desk.bundles[:TINY_TASKS]]
    with served(version.folder, version.name, "tiny", tmp_path / "engine", tools=False) as upstream:
        for callers in (1, 8):
            load = Load(desk.worlds["ticket_desk"], desk.harness, groups, callers)
            url, folder = disk_cluster.migrated_database(), tmp_path / f"gateway-{callers}"
            with gateway(url, upstream, "tiny", folder, load.rollouts * (PAIRS + 1)) as (process, urls):
                added(Pairs(load, f"tiny-{callers}", upstream), process, urls)


def added(pairs: Pairs, process: Serving, urls: Iterator[str]) -> None:
    """Measure and print what the gateway takes and adds a call."""
    load, cpu_ms = pairs.load, list[float]()

    def through(run: Run) -> Played:
        before = process.cpu_s()
        played = asyncio.run(driven(load, run, taken(urls, load.rollouts)))
        cpu_ms.append(1000 * (process.cpu_s() - before) / played.calls)
        return played

    arms = {STRAIGHT: pairs.straight, WITH_IDS: pairs.with_ids, THROUGH: through}
    title = f"tiny policy through vLLM, {load.rollouts} rollouts of the desk, {load.callers} at once"
    pairs.measure(title, {name: pairs.arm(name, play) for name, play in arms.items()})
    print(f"  gateway process: {shown(cpu_ms[1:])} ms of processor time a call")
    for name in (WITH_IDS, THROUGH):
        for share in (0.5, 0.99):
            ours, control = (column(pairs.played[way], share) for way in (name, STRAIGHT))
            more = [mine - theirs for mine, theirs in zip(ours, control, strict=True)]
            print(f"  {name}: p{100 * share:g} {shown(ours)} ms a call, {shown(more)} more than straight, paired by round")


def column(played: list[Played], share: float) -> list[float]:
    """This quantile of the calls' latencies in each round, ms."""
    return [1000 * float(np.quantile(one.latencies, share)) for one in played]
