"""An export as the source of a push: the whole of it is checked before anything of it is handed out. Reads a file."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ledger.errors import ExportFault
from ledger.events import LogForked
from ledger.interchange.carried import CarriedBlob, CarriedEvent, CarriedStream, CarriedSubject, Claim, Fork
from ledger.interchange.native_check import NativeReader

BATCH = 1000


class FileSource:
    """The log in an export file."""

    def __init__(self, path: Path, key: str) -> None:
        """Check the file.

        Raises:
            ExportFault: a record does not fit.
        """
        self.path, self.key = path, key
        self._held: dict[bytes, CarriedBlob] = {}
        self._leaves: list[bytes] = []
        self._subjects: list[CarriedSubject] = []
        self._forks: list[Fork] = []
        self._kinds: list[tuple[int, str]] = []
        reader = NativeReader(path, key)
        for item in reader.items():
            if isinstance(item, CarriedEvent):
                self._leaves.append(item.leaf)
                self._kinds.append((item.position, item.fields.kind))
                if item.fields.kind == "LogForked" and item.fields.ledger_id == getattr(reader.head, "ledger_id", None):
                    body = LogForked.model_validate_json(item.body)
                    self._forks.append(Fork(body.origin, body.previous_origin, body.common_size))
            elif isinstance(item, CarriedSubject):
                self._subjects.append(item)
        head = reader.head
        if head is None:
            raise ExportFault(f"{path.name} is empty")
        filtered = not head.keep.everything
        self._claim = Claim(head.ledger_id, head.since, head.until, head.checkpoint, filtered, head.with_keys)

    @property
    def claim(self) -> Claim:
        """What the file offers."""
        return self._claim

    def leaves(self) -> Iterator[bytes]:
        """The leaves of its events."""
        return iter(self._leaves)

    def batches(self, after: int) -> Iterator[list[CarriedEvent]]:
        """Its events above `after`, up to a thousand at a time; the blobs that came with a batch are held until the next."""
        batch: list[CarriedEvent] = []
        for item in NativeReader(self.path, self.key).items():
            if isinstance(item, CarriedBlob):
                self._held[item.blob_id] = item
            elif isinstance(item, CarriedEvent) and item.position <= after:
                self._held.clear()
            elif isinstance(item, CarriedEvent):
                batch.append(item)
                if len(batch) == BATCH:
                    yield batch
                    batch = []
                    self._held.clear()
        if batch:
            yield batch
        self._held.clear()

    def blobs(self, wanted: set[bytes]) -> Iterator[CarriedBlob]:
        """Those of these blobs that the last batch came with."""
        return (self._held[blob_id] for blob_id in sorted(wanted & self._held.keys()))

    def subjects(self) -> list[CarriedSubject]:
        """The subjects whose keys are in the file or are destroyed."""
        return self._subjects

    def streams(self, after: int, also: list[tuple[str, str, str]]) -> Iterator[CarriedStream]:
        """Its streams that have tokens."""
        for item in NativeReader(self.path, self.key).items():
            if isinstance(item, CarriedStream) and (item.packs or item.staged):
                yield item

    def forks(self) -> list[Fork]:
        """Every fork that an event of the file states."""
        return self._forks

    def kinds(self, after: int) -> dict[str, int]:
        """Number of its events by kind above `after`."""
        return dict(sorted(Counter(kind for position, kind in self._kinds if position > after).items()))
