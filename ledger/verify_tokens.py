"""Verification of tokens: every stream's packs and staged rows put together again and checked against their events. Reads the database."""

from collections.abc import Iterator
from typing import Any

import psycopg

from ledger.token_reading import check_streams
from ledger.verify_report import Problem

Connection = psycopg.Connection[Any]


def check(conn: Connection) -> Iterator[Problem]:
    """Stored tokens that are not what their events committed to."""
    for fault in check_streams(conn):
        subject = f"tokens of stream {fault.stream_id}" if fault.event_id is None else f"tokens of event {fault.event_id}"
        yield Problem(fault.position, subject, fault.fault)
