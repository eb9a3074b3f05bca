"""Read model: model calls, from the intent to the answer; an intent without an answer is dangling. Pure."""

from typing import Any

from ledger.events import ModelCallDispatched, ModelCalled
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, least, taken_if

NAME = "calls"
VIEW = "call_view"
KINDS: tuple[str, ...] = ("ModelCallDispatched", "ModelCalled")
SHOWN = "true"
_BOTH = ("rollout_id", "index", "participant", "role")
_INTENT = ("model", "request_digest", "retry_of")
_ANSWER = ("status", "error_source", "finish_reason", "logprobs_mode")
_COUNTS = {"prompt_tokens": "prompt_ids", "sampled_tokens": "sampled_ids"}
_SAID = "b->>'rollout_id' AS rollout_id, (b->>'index')::int AS index, b->>'participant' AS participant, b->>'role' AS role"

# What both events say is taken from the intent when there is one; of several intents or answers the least event id wins.
SQL = f"""WITH
asked AS (
  SELECT DISTINCT ON (project, b->>'call_id') project, b->>'call_id' AS call_id, {_SAID},
         {", ".join(f"b->>'{name}' AS {name}" for name in _INTENT)}, event_id AS dispatched_event, position AS dispatched_position
  FROM e WHERE kind = 'ModelCallDispatched' ORDER BY project, b->>'call_id', event_id),
answered AS (
  SELECT DISTINCT ON (project, b->>'call_id') project, b->>'call_id' AS call_id, {_SAID},
         {", ".join(f"b->>'{name}' AS {name}" for name in _ANSWER)},
         {", ".join(f"(b#>>'{{{array},count}}')::int AS {name}" for name, array in _COUNTS.items())},
         event_id AS called_event, position AS called_position
  FROM e WHERE kind = 'ModelCalled' ORDER BY project, b->>'call_id', event_id)
INSERT INTO {{table}} AS t (project, call_id, {", ".join([*_BOTH, *_INTENT, *_ANSWER, *_COUNTS])},
                          dispatched_event, dispatched_position, called_event, called_position)
SELECT project, call_id,
       {", ".join(f"CASE WHEN a.dispatched_event IS NULL THEN c.{name} ELSE a.{name} END" for name in _BOTH)},
       {", ".join([*_INTENT, *_ANSWER, *_COUNTS])}, dispatched_event, dispatched_position, called_event, called_position
FROM asked AS a FULL JOIN answered AS c USING (project, call_id)
ON CONFLICT (project, call_id) DO UPDATE SET {least("dispatched_event", [*_INTENT, "dispatched_position"])},
  {least("called_event", [*_ANSWER, *_COUNTS, "called_position"])},
  {taken_if("CASE WHEN excluded.dispatched_event IS NULL AND t.dispatched_event IS NULL THEN excluded.called_event < t.called_event"
            " ELSE coalesce(excluded.dispatched_event < t.dispatched_event, t.dispatched_event IS NULL) END", _BOTH)}"""  # fmt: skip


def fold(rows: Rows, event: Recorded) -> None:
    """Add the call, or complete the row that its other event made."""
    body = event.body
    assert isinstance(body, ModelCallDispatched | ModelCalled)
    row = rows.setdefault((event.project, body.call_id), _empty(event.project, body.call_id))
    said = {name: getattr(body, name) for name in _BOTH}
    if isinstance(body, ModelCallDispatched):
        if row["dispatched_event"] is None or event.event_id < row["dispatched_event"]:
            row.update(said, **{name: getattr(body, name) for name in _INTENT})
            row.update(dispatched_event=event.event_id, dispatched_position=event.position)
        return
    if row["called_event"] is None or event.event_id < row["called_event"]:
        counts: dict[str, Any] = {name: getattr(body, array) for name, array in _COUNTS.items()}
        row.update({name: getattr(body, name) for name in _ANSWER}, called_event=event.event_id, called_position=event.position)
        row.update({name: None if array is None else array.count for name, array in counts.items()})
        if row["dispatched_event"] is None:
            row.update(said)


def complete(row: Row) -> bool:
    """Always: the intent alone and the answer alone are both shown."""
    return bool(row)


def _empty(project: str, call_id: str) -> Row:
    events = ("dispatched_event", "dispatched_position", "called_event", "called_position")
    return {"project": project, "call_id": call_id, **dict.fromkeys((*_BOTH, *_INTENT, *_ANSWER, *_COUNTS, *events))}
