"""The SQL of every read model arrives at what its Python fold says, wherever the ranges are cut, and again from the start."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ledger.ledger import LedgerHandle
from ledger.projections import MODELS, catch_up, rebuild
from tests.ledger.projections.histories import bodies, reference, shown, table

PROJECTS = itertools.count(1)
# Every example is a history of its own in the database: making a failing one smaller would take minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def in_new_project(ledger: LedgerHandle) -> LedgerHandle:
    return LedgerHandle(
        ledger.url, ledger.pool, ledger_id=ledger.ledger_id, project=f"p{next(PROJECTS)}", actor_id="tester", clock=ledger.clock
    )


def check_history(ledger: LedgerHandle, data: Any) -> None:
    own = in_new_project(ledger)
    blob = own.pending(b"content")
    taken: set[tuple[str, str]] = set()
    for chunk in data.draw(st.lists(st.lists(bodies(blob.ref), max_size=12), min_size=1, max_size=5)):
        fresh = [body for body in chunk if (body.stream(), body.key()) not in taken and not taken.add((body.stream(), body.key()))]  # type: ignore[func-returns-value]
        if fresh:
            own.append([own.new(body, blob) for body in fresh])
        own.barrier()
        if data.draw(st.booleans()):
            catch_up(own, batch=data.draw(st.integers(1, 9)))
    catch_up(own, batch=data.draw(st.integers(1, 9)))
    expected = {name: reference(own, name) for name in MODELS}
    assert {name: table(own, name) for name in MODELS} == expected
    fed = {name: shown(own, name) for name in MODELS}
    rebuild(own, batch=data.draw(st.sampled_from([7, 5000])))
    assert {name: shown(own, name) for name in MODELS} == fed


@settings(max_examples=25, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_sql_equals_the_python_fold_for_any_history_and_any_cuts(ledger: LedgerHandle, data: Any) -> None:
    check_history(ledger, data)


@settings(max_examples=8, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_sql_equals_the_python_fold_on_the_oldest_server_too(ledger_15: LedgerHandle, data: Any) -> None:
    check_history(ledger_15, data)


@pytest.mark.parametrize("name", list(MODELS))
def test_every_read_model_has_rows_in_the_histories(ledger: LedgerHandle, name: str, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    catch_up(ledger)
    assert table(ledger, name) == reference(ledger, name) != b""
