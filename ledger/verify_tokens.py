"""Verification of tokens: every stream's packs and staged rows put together again and checked against their events. Reads the database."""

from collections.abc import Iterator
from typing import Any

import psycopg

from ledger.token_reading import check_streams
from ledger.verify_report import Problem

Connection = psycopg.Connection[Any]


# A push carries events first and tokens after them, and notes the log it has taken over at the end.
_UNDER_WAY = (
    "SELECT k.event_id::text FROM source_position AS p JOIN event_key AS k USING (id)"
    " WHERE NOT EXISTS (SELECT FROM source_log AS l WHERE l.ledger_id = p.ledger_id AND l.size >= p.position)"
)


def check(conn: Connection) -> Iterator[Problem]:
    """Stored tokens that are not what their events committed to; events of a log that is still being taken over are not looked at."""
    under_way = {str(row[0]) for row in conn.execute(_UNDER_WAY)}
    for fault in check_streams(conn):
        if fault.event_id in under_way:
            continue
        subject = f"tokens of stream {fault.stream_id}" if fault.event_id is None else f"tokens of event {fault.event_id}"
        yield Problem(fault.position, subject, fault.fault)
