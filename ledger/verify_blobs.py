"""Verification of blobs: each against the commitment that is its name, and its chunks counted. Reads the database."""

from collections.abc import Iterator
from typing import Any

import psycopg

from ledger import blobs
from ledger.errors import BlobError
from ledger.verify_report import Fault

Connection = psycopg.Connection[Any]
_BATCH_ROWS = 64
_BATCH_BYTES = 32 * 1024 * 1024


class BlobPass:
    """Goes over all blobs once.

    Attributes:
        faults: of the blobs so far; the event is the first that uses the blob.
        shredded: number of blobs whose subject was destroyed, so that nobody can read them.
    """

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.faults: list[Fault] = []
        self.shredded = 0

    def chunks(self) -> Iterator[int]:
        """Number of blobs done, after each batch of them."""
        done = 0
        for batch in self._batches():
            readable = [blob_id for blob_id, destroyed in batch if not destroyed]
            self.shredded += len(batch) - len(readable)
            try:
                blobs.read_many(self.conn, readable)
            except BlobError:
                for blob_id in readable:
                    self._check(blob_id)
            done += len(batch)
            yield done

    def _batches(self) -> Iterator[list[tuple[str, bool]]]:
        batch, size = list[tuple[str, bool]](), 0
        with psycopg.ServerCursor(self.conn, "verify_blobs") as cursor:
            cursor.execute(
                "SELECT b.blob_id, b.size, s.destroyed_at IS NOT NULL FROM blob AS b LEFT JOIN subject AS s USING (subject_id)"
                " ORDER BY b.blob_no",
                binary=True,
            )
            while rows := cursor.fetchmany(1000):
                for blob_id, held, destroyed in rows:
                    if batch and (len(batch) == _BATCH_ROWS or size + held > _BATCH_BYTES):
                        yield batch
                        batch, size = [], 0
                    batch.append((bytes(blob_id).hex(), destroyed))
                    size += held
        if batch:
            yield batch

    def _check(self, blob_id: str) -> None:
        try:
            blobs.read(self.conn, blob_id)
        except BlobError as error:
            row = self.conn.execute(
                "SELECT min(u.id) FROM blob AS b JOIN blob_use AS u USING (blob_no) WHERE b.blob_id = %s", (bytes.fromhex(blob_id),)
            ).fetchone()
            self.faults.append(Fault(None if row is None else row[0], f"blob {blob_id}", str(error)))
