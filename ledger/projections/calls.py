"""Read model: model calls, from the intent to the answer; an intent without an answer is dangling."""

from ledger.events import ModelCallDispatched, ModelCalled
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, bodies

NAME = "calls"
TABLE = "call_view"
KINDS: tuple[str, ...] = ("ModelCallDispatched", "ModelCalled")
SQL: tuple[str, ...] = (
    f"""WITH {bodies("ModelCallDispatched")}
INSERT INTO call_view AS c (project, call_id, rollout_id, index, participant, role, model, request_digest, retry_of, dispatched_position)
SELECT DISTINCT ON (project, b->>'call_id') project, b->>'call_id', b->>'rollout_id', (b->>'index')::int, b->>'participant', b->>'role',
       b->>'model', b->>'request_digest', b->>'retry_of', position
FROM e ORDER BY project, b->>'call_id', position
ON CONFLICT (project, call_id) DO UPDATE SET rollout_id = excluded.rollout_id, index = excluded.index,
  participant = excluded.participant, role = excluded.role, model = excluded.model, request_digest = excluded.request_digest,
  retry_of = excluded.retry_of, dispatched_position = excluded.dispatched_position
WHERE c.dispatched_position IS NULL""",
    f"""WITH {bodies("ModelCalled")}
INSERT INTO call_view AS c (project, call_id, rollout_id, index, participant, role, status, error_source, finish_reason, prompt_tokens,
                            sampled_tokens, logprobs_mode, called_position)
SELECT DISTINCT ON (project, b->>'call_id') project, b->>'call_id', b->>'rollout_id', (b->>'index')::int, b->>'participant', b->>'role',
       b->>'status', b->>'error_source', b->>'finish_reason', (b#>>'{{prompt_ids,count}}')::int, (b#>>'{{sampled_ids,count}}')::int,
       b->>'logprobs_mode', position
FROM e ORDER BY project, b->>'call_id', position
ON CONFLICT (project, call_id) DO UPDATE SET status = excluded.status, error_source = excluded.error_source,
  finish_reason = excluded.finish_reason, prompt_tokens = excluded.prompt_tokens, sampled_tokens = excluded.sampled_tokens,
  logprobs_mode = excluded.logprobs_mode, called_position = excluded.called_position
WHERE c.called_position IS NULL""",
)


def fold(rows: Rows, event: Recorded) -> None:
    """Add the call, or complete the row that its other event made."""
    body = event.body
    assert isinstance(body, ModelCallDispatched | ModelCalled)
    row = rows.setdefault(
        (event.project, body.call_id),
        {
            "project": event.project, "call_id": body.call_id, "rollout_id": body.rollout_id, "index": body.index,
            "participant": body.participant, "role": body.role, "model": None, "request_digest": None, "retry_of": None, "status": None,
            "error_source": None, "finish_reason": None, "prompt_tokens": None, "sampled_tokens": None, "logprobs_mode": None,
            "dispatched_position": None, "called_position": None,
        },
    )  # fmt: skip
    if isinstance(body, ModelCallDispatched):
        if row["dispatched_position"] is None:
            row.update(
                rollout_id=body.rollout_id, index=body.index, participant=body.participant, role=body.role, model=body.model,
                request_digest=body.request_digest, retry_of=body.retry_of, dispatched_position=event.position,
            )  # fmt: skip
    elif row["called_position"] is None:
        row.update(
            status=body.status, error_source=body.error_source, finish_reason=body.finish_reason,
            prompt_tokens=None if body.prompt_ids is None else body.prompt_ids.count,
            sampled_tokens=None if body.sampled_ids is None else body.sampled_ids.count,
            logprobs_mode=body.logprobs_mode, called_position=event.position,
        )  # fmt: skip


def complete(row: Row) -> bool:
    """Always: the intent alone and the answer alone are both shown."""
    return bool(row)
