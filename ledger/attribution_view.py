"""What attribution may read of a ledger: what happened in a rollout and what was said about it, never which faults were planted in it."""

from dataclasses import dataclass
from datetime import datetime

from ledger.errors import LabelsWithheld, UnknownId
from ledger.events import EventBody
from ledger.events.rollout import RolloutStarted
from ledger.ledger import LedgerHandle
from ledger.upcast import decode

READABLE = ("rollout", "group", "bundle", "world", "verifier", "harness", "model", "verdict", "reward", "finding", "review", "engine")
"""Nouns of streams that hold evidence. `fault` holds labels; a `run` holds the experiment's file, which names the faults to plant."""


@dataclass(frozen=True)
class Evidence:
    """An event as attribution sees it: without its position and the server's time, between which a label would leave a gap.

    Attributes:
        event_id, stream, version, kind, schema_version: as recorded; the version is that within the stream.
        occurred_at: the producer's clock.
        body_bytes: the canonical body.
    """

    event_id: str
    stream: str
    version: int
    kind: str
    schema_version: int
    occurred_at: datetime
    body_bytes: bytes

    @property
    def body(self) -> EventBody:
        """The body as its class of this release."""
        return decode(self.kind, self.schema_version, self.body_bytes)


class AttributionView:
    """One ledger as attribution and every other audit that is scored against planted faults reads it."""

    def __init__(self, ledger: LedgerHandle) -> None:
        self._ledger = ledger

    def stream(self, name: str) -> list[Evidence]:
        """All committed events of a stream by version.

        Raises:
            LabelsWithheld: the stream is not among those that attribution may read.
        """
        noun = name.partition("-")[0]
        if noun not in READABLE:
            raise LabelsWithheld(f"attribution asked for stream {name!r}; it reads those of {', '.join(READABLE)} alone")
        return [
            Evidence(event.event_id, event.stream, event.version, event.kind, event.schema_version, event.occurred_at, event.body_bytes)
            for event in self._ledger.read_stream(name)
        ]

    def rollout(self, rollout_id: str) -> list[Evidence]:
        """The events of a rollout, its group and its bundle, in this order.

        Raises:
            UnknownId: no such rollout.
        """
        own = self.stream(f"rollout-{rollout_id}")
        started = next((event.body for event in own if event.kind == "RolloutStarted"), None)
        if not isinstance(started, RolloutStarted):
            raise UnknownId(f"no rollout {rollout_id!r} in project {self._ledger.project!r}")
        return [*own, *self.stream(f"group-{started.group_id}"), *self.stream(f"bundle-{started.bundle_id}")]

    def blob(self, blob_id: str) -> bytes:
        """Bytes of a blob that an event names; labels have none."""
        return self._ledger.blob(blob_id)
