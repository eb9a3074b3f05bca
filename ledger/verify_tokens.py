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
        data = blobs.find(conn, [array.data.blob_id for _, _, array in named]).data
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
