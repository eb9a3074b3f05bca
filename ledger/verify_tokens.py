"""Verification of token arrays: each against the hash and the count in its event. Reads the database."""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from ledger import blobs
from ledger.errors import BlobError
from ledger.events import ModelCalled
from ledger.lineage_checks import arrays
from ledger.tokens import array_of
from ledger.verify_report import Fault

Connection = psycopg.Connection[Any]
_BATCH = 64


def check_calls(conn: Connection, calls: Sequence[tuple[int, str, ModelCalled]]) -> Iterator[tuple[int, list[Fault]]]:
    """Number of token arrays that could be read, and what does not fit, batch by batch. What cannot be read is the blobs' matter.

    Args:
        calls: internal id, subject and body of each.
    """
    for start in range(0, len(calls), _BATCH):
        named = [
            (ident, f"{subject}: {name}", array)
            for ident, subject, call in calls[start : start + _BATCH]
            for name, array in arrays(call).items()
        ]
        data = _readable(conn, [array.data.blob_id for _, _, array in named])
        faults, counted = [], 0
        for ident, subject, array in named:
            if array.data.blob_id not in data:
                continue
            counted += 1
            try:
                array_of(array, data[array.data.blob_id])
            except BlobError as error:
                faults.append(Fault(ident, subject, str(error)))
        yield counted, faults


def _readable(conn: Connection, blob_ids: Sequence[str]) -> dict[str, bytes]:
    try:
        return blobs.read_many(conn, blob_ids)
    except BlobError:
        found: dict[str, bytes] = {}
        for blob_id in blob_ids:
            try:
                found[blob_id] = blobs.read(conn, blob_id)
            except BlobError:
                continue
        return found
