"""Read models depend on events alone: their SQL asks no clock, no chance and no sequence, and their tables have no defaults."""

import re

import pytest

from ledger.ledger import LedgerHandle
from ledger.projections import MODELS
from ledger.projections.read_model import fold_statement
from ledger.tables import METADATA

# The catalogue calls them stable: conversions can be replaced, and what an object is built of could be dates. Between UTF-8 and UTF-8
# there is nothing to convert, and steps build objects of jsonb alone.
HARMLESS = {"convert_from", "jsonb_build_object"}
KEYWORDS = r"\b(current_\w+|localtime\w*|session_user|user|timestamptz|timestamp|date|time|interval|tablesample)\b"


def impurities(ledger: LedgerHandle, sql: str) -> set[str]:
    """What in a statement may give another value the next time: functions that the catalogue says are not immutable, and key words."""
    bare = re.sub(r"'[^']*'", "''", sql).lower()
    called = set(re.findall(r"\b([a-z_]\w*)\s*\(", bare)) | set(re.findall(r"::([a-z_]\w*)", bare))
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT DISTINCT proname FROM pg_proc WHERE proname = ANY (%s) AND provolatile <> 'i' AND prokind <> 'a'", (list(called),)
        ).fetchall()
    return {name for (name,) in rows} - HARMLESS | set(re.findall(KEYWORDS, bare))


@pytest.mark.parametrize("name", list(MODELS))
def test_the_sql_of_a_read_model_asks_for_nothing_but_events(ledger: LedgerHandle, name: str) -> None:
    assert impurities(ledger, fold_statement({"t": MODELS[name]})) == set()


@pytest.mark.parametrize("impure", ["now()", "clock_timestamp()", "random()", "nextval('event_id_seq')", "gen_random_uuid()", "current_date",
                                    "('2026-01-01'::timestamptz)", "txid_current()", "pg_backend_pid()", "current_setting('x')"])  # fmt: skip
def test_what_is_not_an_event_is_found(ledger: LedgerHandle, impure: str) -> None:
    statement = fold_statement({"t": MODELS["rewards"]}).replace("b->>'reason'", impure, 1)
    assert impurities(ledger, statement) != set()


@pytest.mark.parametrize("name", list(MODELS))
def test_a_table_of_a_read_model_has_no_defaults_and_no_serials(name: str) -> None:
    table = METADATA.tables[MODELS[name].VIEW]
    assert table.info == {"read_model": True}
    assert [column.name for column in table.columns if column.server_default is not None and column.computed is None] == []
    assert [column.name for column in table.columns if column.identity is not None] == []
