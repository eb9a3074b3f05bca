"""The gateway against the same upstream asked directly and against its peers: interleaved rounds, every server and the load a process of its own."""

import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.peers.environments import HERE, PeerUnavailable, driver, measured, peer_python
from tests.benchmarks.peers.processes import Serving, serving
from tests.conftest import Cluster

pytestmark = pytest.mark.bench
ROUNDS = int(os.environ.get("TALLY_BENCH_ROUNDS", "5"))
SECONDS = float(os.environ.get("TALLY_BENCH_SECONDS", "2"))
MANY_CALLS = int(os.environ.get("TALLY_BENCH_CALLS", "100000"))
CALLERS, TURNS, KILL_AFTER = 16, 20, 1000
OURS, STUB, PEERS = "tallystick", "stub", ("agentlightning", "verifiers")
# Memory of a gateway that has done its work may differ by this much between its first tenth and its last.
FLAT_MB = 30.0


@dataclass
class Contestant:
    """A server that load is sent to; `used` counts the rollouts that were played on it."""

    name: str
    serving: Serving
    targets: Path | None
    ask_ids: bool = False
    used: int = 0
    calls: int = 0

    def play(self, *options: str | int | float) -> dict[str, Any]:
        """What a load on new rollouts measured; any failed call fails the benchmark."""
        result = self._load(*options)
        assert result["calls"] and result["errors"] == 0 and not result["exhausted"], f"{self.name}: {result}"
        return result

    def kill(self, answers: int, *, acknowledged: Path) -> dict[str, Any]:
        """What a load measured that ended the server with SIGKILL after so many answers."""
        options = ("--calls", 10 * answers, "--kill", self.serving.pid, "--kill-after", answers, "--acknowledged", acknowledged)
        result = self._load(*options)
        assert result["killed"] and result["errors"] == 0, f"{self.name}: {result}"
        return result

    def _load(self, *options: object) -> dict[str, Any]:
        where = ["--url", f"{self.serving.ready['url']}/chat/completions"] if self.targets is None else ["--targets", str(self.targets)]
        asking = ["--ask-ids"] if self.ask_ids else []
        command = [*python("load.py"), *where, "--first", str(self.used), "--turns", str(TURNS), *asking, *map(str, options)]
        before = self.serving.cpu_s()
        result = measured(command)
        if not result["killed"]:
            result["cpu_ms"] = 1000 * (self.serving.cpu_s() - before) / max(1, result["calls"])
        self.used += result["rollouts"]
        self.calls += result["calls"]
        return result


def python(script: str) -> list[str]:
    """The command of one of our own scripts."""
    return [sys.executable, str(HERE / script)]


def commands(database_url: str, upstream: str, rollouts: int) -> dict[str, list[str]]:
    """Every server that can be measured here; a peer that cannot says why, once, in its own test below."""
    asked = ["--upstream", upstream, "--rollouts", str(rollouts)]
    found = {OURS: [*python("drive_tallystick.py"), "--database-url", database_url, *asked]}
    for name in PEERS:
        try:
            found[name] = driver(name, *asked)
        except PeerUnavailable as error:
            print(f"\n{name} is left out: {error}")
    return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends the servers of a test."""
    with ExitStack() as servers:
        yield servers


def start(
    stack: ExitStack, folder: Path, database_url: str, *, rollouts: int, names: Sequence[str] = (OURS, *PEERS)
) -> dict[str, Contestant]:
    """The stub and the named servers in front of it, each with this many rollouts."""
    stub = stack.enter_context(serving(python("stub_upstream.py"), folder / STUB))
    contestants = {STUB: Contestant(STUB, stub, None)}
    for name, command in commands(database_url, stub.ready["url"], rollouts).items():
        if name in names:
            server = stack.enter_context(serving(command, folder / name))
            targets = folder / f"{name}.json"
            targets.write_text(json.dumps(server.ready.pop("targets")))
            contestants[name] = Contestant(name, server, targets)
    return contestants


def column(rounds: Sequence[dict[str, Any]], name: str) -> list[float]:
    """One figure of every round."""
    return [played[name] for played in rounds]


def shown(values: Sequence[float]) -> str:
    """Median and spread."""
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Median and spread of the ratios of the rounds."""
    return shown([a / b for a, b in zip(ours, theirs, strict=True)])


@pytest.mark.parametrize("name", PEERS)
def test_the_peer_can_be_installed(name: str) -> None:
    try:
        peer_python(name)
    except PeerUnavailable as error:
        pytest.skip(str(error))


def test_calls_a_second_of_many_callers(disk_cluster: Cluster, tmp_path: Path, stack: ExitStack) -> None:
    url = disk_cluster.migrated_database()
    contestants = start(stack, tmp_path, url, rollouts=round(250 * SECONDS * (ROUNDS + 1)))
    if "verifiers" in contestants:
        # Its relay asks for no ids; a harness that wants them asks itself, and then all its bytes pass through.
        asking = Contestant("verifiers, ids asked for", contestants["verifiers"].serving, contestants["verifiers"].targets, ask_ids=True)
        asking.used = round(125 * SECONDS * (ROUNDS + 1))
        contestants[asking.name] = asking
    before = {}
    for name, contestant in contestants.items():
        contestant.play("--callers", CALLERS, "--seconds", SECONDS / 2)
        before[name] = contestant.serving.resident_mb(), contestant.calls
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, contestant in contestants.items():
            rounds[name].append(contestant.play("--callers", CALLERS, "--seconds", SECONDS))
    print(f"\n{CALLERS} callers, {ROUNDS} interleaved rounds of {SECONDS:g} s, {TURNS} calls a rollout: median [least, most]")
    ours = column(rounds[OURS], "calls_per_s")
    for name, mine in rounds.items():
        contestant = contestants[name]
        grown_kb = 1000 * (contestant.serving.resident_mb() - before[name][0]) / (contestant.calls - before[name][1])
        print(
            f"  {name}: {shown(column(mine, 'calls_per_s'))} calls/s, p50 {shown(column(mine, 'p50_ms'))} ms, p99 {shown(column(mine, 'p99_ms'))} ms,"
            f" CPU {shown(column(mine, 'cpu_ms'))} ms a call; ours is {ratio(ours, column(mine, 'calls_per_s'))} times;"
            f" memory +{grown_kb:.1f} kB a call over {contestant.calls} calls"
        )
    held = measured([*python("drive_tallystick.py"), "--database-url", url, "--found"])
    assert len(held) == len(set(held)) == contestants[OURS].calls


def test_added_latency_of_one_caller(disk_cluster: Cluster, tmp_path: Path, stack: ExitStack) -> None:
    contestants = start(stack, tmp_path, disk_cluster.migrated_database(), rollouts=round(50 * SECONDS * (ROUNDS + 1)))
    for contestant in contestants.values():
        contestant.play("--callers", 1, "--seconds", SECONDS / 2)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, contestant in contestants.items():
            rounds[name].append(contestant.play("--callers", 1, "--seconds", SECONDS))
    direct = column(rounds[STUB], "p50_ms")
    print(f"\n1 caller, {ROUNDS} interleaved rounds of {SECONDS:g} s: median [least, most]")
    for name, mine in rounds.items():
        p50 = column(mine, "p50_ms")
        added = shown([a - b for a, b in zip(p50, direct, strict=True)])
        print(f"  {name}: p50 {shown(p50)} ms, added {added} ms, CPU {shown(column(mine, 'cpu_ms'))} ms a call")


def test_memory_is_flat_over_many_calls(disk_cluster: Cluster, tmp_path: Path, stack: ExitStack) -> None:
    parts = 10
    gateway = start(stack, tmp_path, disk_cluster.migrated_database(), rollouts=MANY_CALLS // TURNS + CALLERS * (parts + 1), names=[OURS])[
        OURS
    ]
    resident = [gateway.serving.resident_mb()]
    for _ in range(parts):
        gateway.play("--callers", CALLERS, "--calls", MANY_CALLS // parts)
        resident.append(gateway.serving.resident_mb())
    print(f"\nmemory over {gateway.calls} calls: {', '.join(f'{mb:.0f}' for mb in resident)} MB")
    assert resident[-1] - resident[1] < FLAT_MB


def test_no_acknowledged_call_is_lost_when_the_server_is_killed(disk_cluster: Cluster, tmp_path: Path, stack: ExitStack) -> None:
    url, rollouts = disk_cluster.migrated_database(), KILL_AFTER // TURNS + 2 * CALLERS
    contestants = start(stack, tmp_path, url, rollouts=rollouts)
    lost: dict[str, tuple[int, int]] = {}
    for name, contestant in contestants.items():
        if name == STUB:
            continue
        listed = tmp_path / f"{name}-acknowledged.json"
        answered = contestant.kill(KILL_AFTER, acknowledged=listed)["calls"]
        kept = set(json.loads(listed.read_text())) & set(measured([*python("drive_tallystick.py"), "--database-url", url, "--found"]))
        lost[name] = answered, answered - (len(kept) if name == OURS else found_after(name, contestant, rollouts, stack))
    print(
        "\nSIGKILL under 16 callers: "
        + "; ".join(f"{name} lost {gone} of {answered} answered calls" for name, (answered, gone) in lost.items())
    )
    assert lost[OURS][1] == 0


def found_after(name: str, contestant: Contestant, rollouts: int, stack: ExitStack) -> int:
    """How many calls a peer still has when it is started again in the same folder."""
    if name == "verifiers":
        return int(measured(driver(name, "--found"), cwd=contestant.serving.folder)["found"])
    command = driver(name, "--upstream", "http://127.0.0.1:9/v1", "--rollouts", 0)
    again = stack.enter_context(serving(command, contestant.serving.folder))
    return int(measured(driver(name, "--found", again.ready["port"], "--rollouts", rollouts))["found"])
