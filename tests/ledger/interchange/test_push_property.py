"""Whatever two laptops append, seal and push in whatever order, the centre holds each log as it was, once."""

import itertools
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.events import StateSnapshotted, WorldRegistered
from ledger.interchange import held
from ledger.interchange.push import push
from ledger.ledger import open_ledger
from ledger.verify import verify

SERIAL = itertools.count()
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 60)),
        st.tuples(st.just("shared"), st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.just("seal"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("push"), st.integers(0, 1), st.booleans()),
    ),
    max_size=14,
)


@pytest.fixture(scope="module")
def three(cluster: Any) -> Any:
    """Two laptops and a centre, which every example goes on with."""
    from tests.ledger.interchange.conftest import Sealed

    made = []
    for _ in range(3):
        ledger = open_ledger(cluster.migrated_database(), project="test", actor_id="tester", pool_size=3)
        made.append(Sealed(ledger, Ed25519PrivateKey.generate(), f"tallystick.local/{ledger.ledger_id}"))
    yield made
    for item in made:
        item.ledger.close()
        cluster.drop(item.ledger.url)


def _append(ledger: Any, count: int) -> None:
    number = next(SERIAL)
    events = []
    for n in range(count):
        view = ledger.pending(f"view {number} {n}")
        state = sha256(b"%d" % n).hexdigest()
        body = StateSnapshotted(rollout_id=f"r{number}-{n % 3}", step=n, state=state, view=view.ref, snapshot=view.ref)
        events.append(ledger.new(body, view))
    ledger.append(events)


def _shared(ledger: Any, number: int) -> None:
    digest = sha256(b"shared %d" % number).hexdigest()
    blob = ledger.pending(f"source {number}", subject_id="public")
    ledger.append([ledger.new(WorldRegistered(world_id=digest, name="w", source=blob.ref, fidelity="simulated"), blob)])


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps=STEPS)
def test_the_centre_holds_each_log_as_it_was(three: Any, steps: list[Any]) -> None:
    centre = three[2]
    for name, who, what in [*steps, ("seal", 0, 0), ("seal", 1, 0), ("push", 0, False), ("push", 1, False)]:
        each = three[who]
        if name == "append":
            _append(each.ledger, what)
        elif name == "shared":
            _shared(each.ledger, what)
        elif name == "seal":
            each.seal()
        else:
            _push(each, centre, dry_run=bool(what))
    for each in three[:2]:
        with each.ledger.connection() as conn:
            rows = conn.execute("SELECT leaf FROM ordered_event ORDER BY position").fetchall()
        with centre.ledger.connection() as conn:
            assert list(held.leaves(conn, each.ledger.ledger_id, 0, 2**40)) == [bytes(row[0]) for row in rows]
            assert list(held.faults(conn)) == []
    assert verify(centre.ledger).problems == ()


def _push(each: Any, centre: Any, *, dry_run: bool) -> None:
    with each.ledger.connection() as conn:
        newest = conn.execute("SELECT max(size) FROM checkpoint").fetchone()[0]
    if newest is None:
        return
    with centre.ledger.connection() as conn:
        before = held.reach(conn, each.ledger.ledger_id)
    told = push(each.source(), centre.ledger, key=each.key, dry_run=dry_run)
    assert (told.events, told.held) == (newest - before, before)
    with centre.ledger.connection() as conn:
        assert held.reach(conn, each.ledger.ledger_id) == (before if dry_run else newest)
