"""Events of two ledgers in one log: whichever comes in first, the read models are the same up to their positions."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.blobs import pending
from ledger.events import BundleSealed, EventBody
from ledger.ledger import LedgerHandle, open_ledger
from ledger.projections import MODELS, catch_up
from tests.conftest import Cluster
from tests.ledger.projections.histories import D, bodies, reference, table
from tests.ledger.projections.test_fold import PHASES, PROJECTS

BLOB = pending(b"content", media="text/plain")
ONE, OTHER = "019a0000-0000-7000-8000-000000000001", "019a0000-0000-7000-8000-000000000002"


@pytest.fixture
def two_databases(cluster: Cluster) -> Iterator[tuple[LedgerHandle, LedgerHandle]]:
    urls = [cluster.migrated_database() for _ in range(2)]
    with (
        open_ledger(urls[0], project="test", actor_id="a") as first,
        open_ledger(urls[1], project="test", actor_id="a") as second,
    ):
        yield first, second
    for url in urls:
        cluster.drop(url)


def take_in(database: LedgerHandle, project: str, history: list[tuple[str, EventBody]]) -> LedgerHandle:
    """A handle of the project after events of the ledgers that are named beside them were taken in, in this order."""
    for ledger_id, body in history:
        own = LedgerHandle(database.url, database.pool, ledger_id=ledger_id, project=project, actor_id="a", clock=database.clock)
        own.append([own.new(body, BLOB)])
    database.barrier()
    catch_up(own, batch=7)
    return own


def renamed(history: list[EventBody]) -> list[EventBody]:
    """The same with other names for what only one ledger may name; what is named by its digest stays."""
    return [type(body).model_validate_json(re.sub(r'"([xr])(\d)"', r'"other-\1\2"', body.model_dump_json())) for body in history]


def distinct(history: list[EventBody]) -> list[EventBody]:
    return list({(body.stream(), body.key()): body for body in history}.values())


@settings(max_examples=15, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_read_models_do_not_depend_on_which_ledger_was_taken_in_first(two_databases: tuple[LedgerHandle, LedgerHandle], data: Any) -> None:
    project = f"two{next(PROJECTS)}"
    one, other = (distinct(data.draw(st.lists(bodies(BLOB.ref), min_size=1, max_size=12))) for _ in range(2))
    other = renamed(other)
    apart = [*((ONE, body) for body in one), *((OTHER, body) for body in other)]
    turns = data.draw(st.permutations([ONE] * len(one) + [OTHER] * len(other)))
    left = {ONE: iter(one), OTHER: iter(other)}
    mixed = [(ledger_id, next(left[ledger_id])) for ledger_id in turns]
    first, second = (take_in(database, project, history) for database, history in zip(two_databases, (apart, mixed), strict=True))
    assert {name: table(first, name, positions=False) for name in MODELS} == {name: table(second, name, positions=False) for name in MODELS}
    for handle in (first, second):
        assert {name: table(handle, name) for name in MODELS} == {name: reference(handle, name) for name in MODELS}


@pytest.mark.parametrize("order", [[ONE, OTHER], [OTHER, ONE]])
def test_of_two_statements_about_one_bundle_the_least_event_id_wins(ledger: LedgerHandle, order: list[str]) -> None:
    history: list[tuple[str, EventBody]] = [
        (ledger_id, BundleSealed(
            bundle_id=D[0], name=ledger_id, world="w", parts={}, world_id=D[0], verifier_id=D[0], harness_id=D[0], split="train",
            draft=BLOB.ref, reference=None, provenance=BLOB.ref, proposer="p",
        ))
        for ledger_id in order
    ]  # fmt: skip
    own = take_in(ledger, "test", history)
    least = min(own.read(), key=lambda event: event.event_id)
    with ledger.connection() as conn:
        assert conn.execute("SELECT name, event_id::text FROM bundle_view").fetchall() == [(least.ledger_id, least.event_id)]
