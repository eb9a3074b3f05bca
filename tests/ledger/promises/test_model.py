"""The ledger against a simple model in memory: appends, idempotency, versions, open transactions, subscriptions and read models, in any order."""

from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from ledger import order, store
from ledger.errors import IdempotencyConflict, VersionConflict
from ledger.events import EngineRefreshed
from ledger.ledger import LedgerHandle, open_ledger
from ledger.projections import MODELS, catch_up, folded, rebuild
from tests.conftest import Cluster

STREAMS = ("a", "b", "c")
Draft = tuple[str, int, int]
"""Stream, key and content of an event."""
DRAFTS = st.lists(st.tuples(st.sampled_from(STREAMS), st.integers(0, 5), st.integers(0, 1)), min_size=1, max_size=6)


def event(ledger: LedgerHandle, draft: Draft) -> store.New:
    """An event of a stream whose key and content are chosen."""
    name, key, content = draft
    body = EngineRefreshed(engine_id=name, model_version=f"m{content}", cache_reset=True, probe_gap=None, refresh=key)
    return ledger.new(body)


@dataclass
class Model:
    """What the ledger must hold: per stream the keys in order with their contents; of each append when it began, when it was acknowledged."""

    streams: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    appends: list[tuple[int, int, list[tuple[str, int]]]] = field(default_factory=list)
    clock: int = 0

    def tick(self) -> int:
        """The next moment."""
        self.clock += 1
        return self.clock

    def content(self, name: str, key: int) -> int | None:
        """Content under a key; None for none."""
        return dict(self.streams[name]).get(key)

    def append(self, drafts: list[Draft], began: int | None = None) -> list[bool] | None:
        """Which of the events are new; None when a key comes with other content, and then nothing changes."""
        trial = {name: list(events) for name, events in self.streams.items()}
        created: list[bool] = []
        for name, key, content in drafts:
            known = dict(trial[name]).get(key)
            if known is not None and known != content:
                return None
            created.append(known is None)
            if known is None:
                trial[name].append((key, content))
        self.streams = trial
        fresh = [(name, key) for (name, key, _), new in zip(drafts, created, strict=True) if new]
        self.appends.append((self.tick() if began is None else began, self.tick(), fresh))
        return created


class LedgerMachine(RuleBasedStateMachine):
    """Random histories; `url` is set by the test."""

    url = ""

    @initialize()
    def open(self) -> None:
        """Start in a project of its own, so that one database serves all histories."""
        type(self).serial = getattr(type(self), "serial", 0) + 1
        self.ledger = open_ledger(self.url, project=f"p{type(self).serial}", actor_id="tester", pool_size=3)
        self.model = Model()
        self.seen: list[tuple[int, str, int]] = []
        self.tail = 0
        self.held: tuple[psycopg.Connection[Any], list[Draft], int] | None = None

    def teardown(self) -> None:
        """Close what is open."""
        if getattr(self, "held", None) is not None:
            assert self.held is not None
            self.held[0].close()
        self.ledger.close()

    def _free(self, drafts: list[Draft]) -> bool:
        busy = set() if self.held is None else {name for name, _, _ in self.held[1]}
        return busy.isdisjoint(name for name, _, _ in drafts)

    @rule(drafts=DRAFTS, times=st.integers(1, 20))
    def append(self, drafts: list[Draft], times: int) -> None:
        """Append a batch; many times over it takes the bulk path."""
        if not self._free(drafts):
            return
        drafts = drafts * times
        created = None
        try:
            created = self.model.append(drafts)
            receipt = self.ledger.append([event(self.ledger, draft) for draft in drafts])
        except IdempotencyConflict:
            assert created is None
            return
        assert created == [item.created for item in receipt.events]
        for (name, key, _), item in zip(drafts, receipt.events, strict=True):
            assert item.version == [known for known, _ in self.model.streams[name]].index(key) + 1

    @rule(draft=st.tuples(st.sampled_from(STREAMS), st.integers(0, 5), st.integers(0, 1)), expected=st.integers(0, 4))
    def append_expecting(self, draft: Draft, expected: int) -> None:
        """Append at an expected version: only an event that is new is held to it."""
        if not self._free([draft]):
            return
        name, key, content = draft
        known, version = self.model.content(name, key), len(self.model.streams[name])
        try:
            receipt = self.ledger.append([event(self.ledger, draft)], expected={f"engine-{name}": expected})
        except VersionConflict:
            assert known is None and version != expected
        except IdempotencyConflict:
            assert known is not None and known != content
        else:
            assert known == content or (known is None and version == expected)
            assert self.model.append([draft]) == [receipt.events[0].created]

    @precondition(lambda self: self.held is None)
    @rule(name=st.sampled_from(STREAMS), key=st.integers(0, 5))
    def hold(self, name: str, key: int) -> None:
        """Write in a transaction that stays open, where that does not conflict."""
        known = self.model.content(name, key)
        draft = (name, key, 0 if known is None else known)
        conn = psycopg.connect(self.url)
        store.append(conn, self.ledger.ledger_id, self.ledger.project, [event(self.ledger, draft)])
        self.held = (conn, [draft], self.model.tick())

    @precondition(lambda self: self.held is not None)
    @rule(commit=st.booleans())
    def let_go(self, commit: bool) -> None:
        """End the open transaction one way or the other."""
        assert self.held is not None
        conn, drafts, began = self.held
        if commit:
            conn.commit()
            self.model.append(drafts, began)
        conn.close()
        self.held = None

    @rule(limit=st.integers(1, 7))
    def follow(self, limit: int) -> None:
        """Read on from where the last read stopped, as a subscription does."""
        order.step(self.ledger.pool, wait=True)
        for found in self.ledger.read(self.tail, limit=limit):
            self.tail = found.position or 0
            self.seen.append((self.tail, found.stream.removeprefix("engine-"), int(found.key.partition(":")[2])))

    @rule(again=st.booleans())
    def fold(self, again: bool) -> None:
        """Fold the read models, or fold them anew: they are what the reference folds make of the same events."""
        (rebuild if again else catch_up)(self.ledger)
        events = list(order.read_all(self.ledger.pool, self.ledger.project))
        for name, model in MODELS.items():
            with self.ledger.connection() as conn:
                rows = conn.execute(f"SELECT count(*) FROM {model.VIEW} WHERE project = %s", (self.ledger.project,)).fetchone()
            assert rows == (len(folded(model, events)),), name

    @invariant()
    def streams_are_those_of_the_model(self) -> None:
        """Own writes are seen at once, versions are dense, an open or undone transaction shows nothing."""
        for name, keys in getattr(self, "model", Model()).streams.items():
            stored = self.ledger.read_stream(f"engine-{name}")
            assert [(found.version, found.key) for found in stored] == [(n, f"refreshed:{key}") for n, (key, _) in enumerate(keys, 1)]

    @invariant()
    def order_keeps_what_was_acknowledged_before(self) -> None:
        """Once everything is ordered, the tail saw a prefix of it, and appends lie in the order of their receipts."""
        if not hasattr(self, "model"):
            return
        self.ledger.barrier()
        ordered = [
            (e.position or 0, e.stream.removeprefix("engine-"), int(e.key.partition(":")[2])) for e in self.ledger.read(limit=10_000)
        ]
        assert self.seen == ordered[: len(self.seen)]
        place = {(name, key): n for n, (_, name, key) in enumerate(ordered)}
        assert len(place) == sum(map(len, self.model.streams.values()))
        for _, acknowledged, earlier in self.model.appends:
            for began, _, later in self.model.appends:
                if acknowledged < began and earlier and later:
                    assert max(place[key] for key in earlier) < min(place[key] for key in later)


@pytest.mark.parametrize("examples", [pytest.param(12, id="short"), pytest.param(300, id="long", marks=pytest.mark.slow)])
def test_random_histories_agree_with_the_model(cluster: Cluster, examples: int) -> None:
    url = cluster.migrated_database()
    machine = type("Machine", (LedgerMachine,), {"url": url})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
    )
    cluster.drop(url)
