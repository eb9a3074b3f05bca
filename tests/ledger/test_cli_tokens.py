"""`tally pack`: says what it did, and which calls it had to leave."""

from collections.abc import Callable

import psycopg
import pytest

from ledger.cli import run
from ledger.ledger import LedgerHandle
from ledger.settings import Settings


def test_pack_says_what_it_packed_and_what_it_left(
    ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(database_url=ledger.url, project=ledger.project, actor="tester")
    sealed(ledger)
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute(
            "UPDATE token_live SET logprobs = logprobs || '\\x00' WHERE event_id = (SELECT min(event_id::text)::uuid FROM token_live)"
        )
    assert run(["pack"], settings=settings) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("packed 0 calls into 0 packs: 0 bytes staged, 0 packed\nleft staged: call ")
    assert "logprobs has 0 entries" in " ".join(shown.split())
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute(
            "UPDATE token_live SET logprobs = substr(logprobs, 1, octet_length(logprobs) - 1)"
            " WHERE event_id = (SELECT min(event_id::text)::uuid FROM token_live)"
        )
    assert run(["pack"], settings=settings) == 0
    assert capsys.readouterr().out.startswith("packed 2 calls into 1 packs: 232 bytes staged, ")
    assert run(["pack"], settings=settings) == 0
    assert capsys.readouterr().out.endswith("packed 0 calls into 0 packs: 0 bytes staged, 0 packed\n")
