"""Limits: each names what was seen and what is allowed, and leaves nothing behind."""

import dataclasses

import pytest

from ledger.errors import LimitExceeded, StatementTimeout
from ledger.events import Edge, RunConfigured
from ledger.ledger import Guards, LedgerHandle, open_ledger
from ledger.limits import LIMITS, Limits

SMALL = Limits(body_bytes=600, blob_bytes=100, events=3, append_bytes=1500, edges=2, name_length=40)


class Crowded(RunConfigured):
    """A body that states as many edges as its seed says."""

    def edges(self) -> list[Edge]:
        return [Edge(self.stream(), f"node-{n}", "names") for n in range(self.root_seed)]


@pytest.fixture
def limited(ledger_url: str) -> "LedgerHandle":
    return open_ledger(ledger_url, project="test", actor_id="t", guards=Guards(limits=SMALL))


def body(ledger: LedgerHandle, ident: str, *, edges: int = 0, name: str = "n") -> tuple[Crowded, object]:
    blob = ledger.pending("x")
    return Crowded(run_id=ident, experiment_id="e", name=name, config=blob.ref, config_digest="0" * 64, root_seed=edges), blob


def events_of(ledger: LedgerHandle) -> tuple[int, int]:
    with ledger.connection() as conn:
        row = conn.execute("SELECT (SELECT count(*) FROM event WHERE kind <> 'LedgerCreated'), (SELECT count(*) FROM blob)").fetchone()
    assert row is not None
    return row[0], row[1]


def test_each_limit_names_seen_and_allowed_and_nothing_is_written(limited: LedgerHandle) -> None:
    with limited as ledger:
        fine, blob = body(ledger, "fine")
        with pytest.raises(LimitExceeded, match="blob of 101 bytes; allowed: up to 100"):
            ledger.pending("x" * 101)
        for given, told in (
            ([body(ledger, "a", edges=3)], "Crowded: 3 edges; allowed: up to 2 an event"),
            ([body(ledger, f"e{n}") for n in range(4)], "5 events in one append; allowed: up to 3"),
        ):
            with pytest.raises(LimitExceeded, match=told):
                ledger.append([ledger.new(fine, blob), *(ledger.new(one, two) for one, two in given)])  # type: ignore[arg-type]
        assert events_of(ledger) == (0, 0)
        assert ledger.append([ledger.new(fine, blob)]).events[0].created  # type: ignore[arg-type]


def test_bodies_and_appends_have_byte_limits(ledger_url: str) -> None:
    for limits, told in (
        (dataclasses.replace(LIMITS, body_bytes=100), r"Crowded: body of \d{3} bytes; allowed: up to 100"),
        (dataclasses.replace(LIMITS, append_bytes=500), r"\d{3} bytes in one append; allowed: up to 500"),
    ):
        with open_ledger(ledger_url, project="test", actor_id="t", guards=Guards(limits=limits)) as ledger:
            given = [body(ledger, f"r{n}") for n in range(3)]
            with pytest.raises(LimitExceeded, match=told):
                ledger.append([ledger.new(one, two) for one, two in given])  # type: ignore[arg-type]
            assert events_of(ledger) == (0, 0)


def test_the_most_edges_an_event_may_state_are_stored(ledger: LedgerHandle) -> None:
    given, blob = body(ledger, "many", edges=LIMITS.edges)
    ledger.append([ledger.new(given, blob)])  # type: ignore[arg-type]
    with ledger.connection() as conn:
        assert conn.execute("SELECT count(*), max(n) FROM edge").fetchone() == (LIMITS.edges, LIMITS.edges - 1)


def test_a_statement_that_takes_too_long_says_which_setting_allows_more(ledger_url: str) -> None:
    with open_ledger(ledger_url, project="test", actor_id="t", guards=Guards(statement_s=0.05)) as ledger:
        with pytest.raises(StatementTimeout, match=r"longer than 0.05 s; allowed: TALLY_STATEMENT_TIMEOUT_S"), ledger.connection() as conn:
            conn.execute("SELECT pg_sleep(5)")
        with ledger.connection() as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
