"""What attribution may read of a ledger: what happened in a rollout and what was said about it, never which faults were planted in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from ledger import blobs
from ledger.arrays import Bigints
from ledger.errors import LabelsWithheld, UnknownId
from ledger.events import EventBody
from ledger.events.rollout import RolloutStarted
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.order import Recorded
from ledger.token_reading import Tokens, examine_tokens
from ledger.upcast import decode

READABLE = ("rollout", "group", "bundle", "world", "verifier", "harness", "model", "verdict", "reward", "finding", "review", "engine")
"""Nouns of streams that hold evidence. `fault` holds labels; a `run` holds the experiment's file, which names the faults to plant."""

_STREAMS = "SELECT stream_id FROM stream_head WHERE node_id = ANY (%s) ORDER BY 1"
_ABOUT = """
SELECT rollout_id, stream FROM (
  SELECT rollout_id, CASE role WHEN 'review' THEN 'review-' ELSE 'verdict-' END || verdict_id AS stream, position FROM verdict_view
  WHERE project = %(project)s AND rollout_id = ANY (%(ids)s)
  UNION ALL SELECT rollout_id, 'reward-' || reward_id, position FROM reward_view WHERE project = %(project)s AND rollout_id = ANY (%(ids)s)
) AS found ORDER BY position, stream"""


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

    @cached_property
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
        _check_readable(name)
        return [_evidence(event) for event in self._ledger.read_stream(name)]

    def streams(self, names: Sequence[str]) -> dict[str, list[Evidence]]:
        """The ordered events of many streams by version, in the order of the names.

        Raises:
            LabelsWithheld: one of them is not among those that attribution may read.
        """
        for name in names:
            _check_readable(name)
        found: dict[str, list[Evidence]] = {name: [] for name in names}
        for event in self._ledger.read_streams(list(found)):
            found[event.stream].append(_evidence(event))
        return found

    def about(self, rollout_ids: Sequence[str]) -> dict[str, list[str]]:
        """Rollout to the streams of its verdicts, reviews and rewards as they are folded, oldest first."""
        found: dict[str, list[str]] = {rollout_id: [] for rollout_id in rollout_ids}
        with self._ledger.connection() as conn:
            for rollout_id, stream in conn.execute(_ABOUT, {"project": self._ledger.project, "ids": list(found)}):
                found[rollout_id].append(stream)
        return found

    def tokens(self, rollout_ids: Sequence[str]) -> Tokens:
        """The arrays of all model calls of the rollouts as far as they match, with what does not."""
        nodes = Bigints(node_id(self._ledger.project, f"rollout-{rollout_id}") for rollout_id in rollout_ids)
        with self._ledger.connection() as conn:
            numbers = [int(row[0]) for row in conn.execute(_STREAMS, (nodes,))]
            return examine_tokens(conn, numbers, ordered=not self._ledger.rights.appends) if numbers else Tokens()

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

    def blobs(self, blob_ids: Sequence[str]) -> dict[str, bytes]:
        """Bytes of those blobs that can be read, by id."""
        with self._ledger.connection() as conn:
            return blobs.find(conn, blob_ids).data


def _check_readable(name: str) -> None:
    if name.partition("-")[0] not in READABLE:
        raise LabelsWithheld(f"attribution asked for stream {name!r}; it reads those of {', '.join(READABLE)} alone")


def _evidence(event: Recorded) -> Evidence:
    return Evidence(event.event_id, event.stream, event.version, event.kind, event.schema_version, event.occurred_at, event.body_bytes)
