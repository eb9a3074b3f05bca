"""Durability: whatever is killed, no acknowledged event is lost and the log only grows; the control that does not wait for the disk loses."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from ledger import embedded, tree
from ledger.embedded.home import layout_of
from ledger.embedded.process import find_children, find_postmaster
from ledger.ledger import open_ledger
from ledger.lineage_checks import event_fault
from ledger.migrate import upgrade
from ledger.order import read_all

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]


@dataclass
class Rig:
    """A server of its own with writers and a sequencer, all of which are killed."""

    home: Path
    acknowledged: Path
    commit: str = "on"
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)
    sizes: list[tuple[int, bytes]] = field(default_factory=list)

    def start(self) -> str:
        """URL of the running server."""
        return embedded.ensure_database(embedded.start(self.home, say=lambda _: None), "kills")

    def spawn(self, program: str, *arguments: str) -> None:
        """Start a program of this folder."""
        command = [sys.executable, str(HERE / program), *arguments]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        self.processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True))

    def kill(self, what: str) -> None:
        """Kill -9 of the writers, of the sequencer, or of every process of the server."""
        self.kills[what] = self.kills.get(what, 0) + 1
        if what == "server":
            layout = layout_of(self.home)
            assert layout is not None
            postmaster = find_postmaster(layout.data_dir)
            assert postmaster is not None
            for pid in (postmaster, *find_children(layout.data_dir)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        else:
            for process in self.processes[:-1] if what == "writers" else self.processes[-1:]:
                process.kill()

    def end(self) -> None:
        """End every program that still runs."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()

    def told(self) -> list[str]:
        """Ids of all events that a writer got a receipt for."""
        return self.acknowledged.read_text().split() if self.acknowledged.exists() else []

    def lost(self, url: str) -> list[str]:
        """Acknowledged events that the ledger does not hold."""
        with psycopg.connect(url) as conn:
            held = {str(row[0]) for row in conn.execute("SELECT k.event_id FROM event_key AS k JOIN event AS e USING (id)")}
        return [event_id for event_id in self.told() if event_id not in held]

    def check_log(self, url: str) -> int:
        """Number of ordered events, after every leaf was derived again, positions found dense and earlier roots found unchanged."""
        with open_ledger(url, project="test", actor_id="checker") as ledger:
            ledger.barrier()
            edge, roots = tree.Edge(), {size for size, _ in self.sizes}
            seen: dict[int, bytes] = {}
            for place, event in enumerate(read_all(ledger.pool, "test"), 2):
                assert (event.position, event_fault(event)) == (place, None)
                edge, _ = tree.extend(edge, [event.leaf])
                if edge.size in roots:
                    seen[edge.size] = tree.edge_root(edge)
            assert [(size, seen[size]) for size, _ in self.sizes] == self.sizes
            self.sizes.append((edge.size, tree.edge_root(edge)))
            with ledger.connection() as conn:
                unordered = conn.execute("SELECT count(*) FROM recorded_event WHERE position IS NULL").fetchone()
            assert unordered == (0,)
        return edge.size


@pytest.fixture
def rig() -> Iterator[Rig]:
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tally-kills-", dir=folder) as place:
        Path(place).chmod(0o755)
        rig = Rig(Path(place) / "postgres", Path(place) / "acknowledged")
        try:
            upgrade(rig.start())
            yield rig
        finally:
            rig.end()
            embedded.destroy(rig.home, say=lambda _: None)


def rounds(rig: Rig, number: int, seed: int) -> int:
    """Number of acknowledged events after so many rounds, none of them lost, each round ended by a kill of something."""
    rng = random.Random(seed)
    url = rig.start()
    for n in range(number):
        before = len(rig.told())
        for writer in range(3):
            rig.spawn("writer.py", url, str(rig.acknowledged), str(seed * 1000 + n * 10 + writer), rig.commit)
        rig.spawn("sequencer.py", url)
        deadline = time.monotonic() + 60
        while len(rig.told()) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(rng.random() * 0.5)
        what = ("server", "writers", "sequencer")[n % 3] if n < 3 else rng.choice(("server", "server", "writers", "sequencer"))
        rig.kill(what)
        if what == "sequencer":
            rig.spawn("sequencer.py", url)
            time.sleep(rng.random() * 0.3)
        rig.end()
        url = rig.start()
        assert rig.lost(url) == []
        assert rig.check_log(url) >= len(set(rig.told()))
    return len(set(rig.told()))


def test_no_acknowledged_event_is_lost_to_a_few_kills(rig: Rig) -> None:
    assert rounds(rig, 3, seed=1) > 0
    assert rig.kills == {"server": 1, "writers": 1, "sequencer": 1}


@pytest.mark.slow
def test_no_acknowledged_event_is_lost_to_a_hundred_kills(rig: Rig) -> None:
    acknowledged = rounds(rig, int(os.environ.get("TALLY_KILLS", "100")), seed=int(os.environ.get("TALLY_SEED", "7")))
    print(f"\n{acknowledged} events acknowledged, 0 lost, kills: {rig.kills}")
    assert acknowledged > 1000


def test_the_control_that_does_not_wait_for_the_disk_loses_acknowledged_events(rig: Rig) -> None:
    rig.commit = "off"
    for attempt in range(12):
        url = rig.start()
        before = len(rig.told())
        for writer in range(3):
            rig.spawn("writer.py", url, str(rig.acknowledged), str(attempt * 10 + writer), "off")
        deadline = time.monotonic() + 60
        while len(rig.told()) < before + 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        rig.kill("server")
        rig.end()
        if rig.lost(rig.start()):
            return
    raise AssertionError("no event was lost with synchronous_commit=off, so the kills prove nothing")
