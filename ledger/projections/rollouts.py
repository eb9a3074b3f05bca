"""Read model: rollouts with their end, their counts, the verdict that counts and the outcome that follows."""

from ledger.events import ModelCalled, ReviewDecided, RolloutEnded, RolloutStarted, ToolCalled, VerdictGiven
from ledger.order import Recorded
from ledger.outcome import outcome_of, verdict_rank
from ledger.projections.read_model import Row, Rows, bodies

NAME = "rollouts"
TABLE = "rollout_view"
KINDS: tuple[str, ...] = ("RolloutStarted", "ModelCalled", "ToolCalled", "RolloutEnded", "VerdictGiven", "ReviewDecided")
_STARTED = f"""WITH {bodies("RolloutStarted")}
INSERT INTO rollout_view (project, rollout_id, group_id, bundle_id, slot, attempt, rollout_kind, participant, model_version,
                          started_position, superseded, model_calls, tool_calls, sampled_tokens, outcome)
SELECT project, b->>'rollout_id', b->>'group_id', b->>'bundle_id', (b->>'slot')::int, (b->>'attempt')::int, b->>'rollout_kind',
       main.p->>'name', main.p->>'model_version', position, false, 0, 0, 0, 'running'
FROM e LEFT JOIN LATERAL (
  SELECT p FROM jsonb_array_elements(b->'participants') WITH ORDINALITY AS listed (p, n)
  ORDER BY (p->>'trainable')::boolean DESC, p->>'role' = 'agent' DESC, n LIMIT 1
) AS main ON true
ORDER BY position ON CONFLICT DO NOTHING"""

# Events of a rollout that are ordered before its start were passed over by earlier ranges; the range with the start picks them up.
_REST = f"""WITH {bodies(*KINDS[1:])},
fresh AS (
  SELECT node_id FROM ordered_event WHERE position > %(low)s AND position <= %(high)s AND kind = 'RolloutStarted'),
early_id AS (
  SELECT v.id FROM fresh JOIN stream_head AS h USING (node_id) JOIN event AS v USING (stream_id)
  UNION
  SELECT x.id FROM fresh AS f JOIN edge AS x ON x.parent = f.node_id AND x.relation IN ('judges', 'reviews')),
seen AS (
  SELECT position, project, kind, b, b->>'rollout_id' AS rollout_id FROM e WHERE b->>'rollout_id' IS NOT NULL
  UNION ALL
  SELECT v.position, v.project, v.kind, d.b, d.b->>'rollout_id'
  FROM early_id JOIN recorded_event AS v USING (id)
    CROSS JOIN LATERAL (SELECT convert_from(v.body, 'UTF8')::jsonb AS b) AS d
  WHERE v.position <= %(low)s AND v.kind IN ({", ".join(f"'{kind}'" for kind in KINDS[1:])})),
counted AS (
  SELECT project, rollout_id, count(*) FILTER (WHERE kind = 'ModelCalled') AS model_calls,
         count(*) FILTER (WHERE kind = 'ToolCalled') AS tool_calls,
         coalesce(sum((b#>>'{{sampled_ids,count}}')::bigint) FILTER (WHERE kind = 'ModelCalled'), 0) AS sampled_tokens
  FROM seen GROUP BY project, rollout_id),
ended AS (
  SELECT DISTINCT ON (project, rollout_id) project, rollout_id, position, b FROM seen WHERE kind = 'RolloutEnded'
  ORDER BY project, rollout_id, position),
ranked AS (
  SELECT project, rollout_id, position, b->>'verdict_id' AS verdict_id, b->>'status' AS status, (b->>'passed')::boolean AS passed,
         CASE WHEN b->>'role' = 'bundle' THEN
           CASE b->>'verifier_kind' WHEN 'human' THEN 4 WHEN 'program' THEN 3 WHEN 'state_diff' THEN 3 WHEN 'judge' THEN 2 END
         END AS rank
  FROM seen WHERE kind = 'VerdictGiven'
  UNION ALL
  SELECT project, rollout_id, position, b->>'review_id', 'completed', b->>'decision' = 'passed', 4
  FROM seen WHERE kind = 'ReviewDecided' AND b->>'decision' IN ('passed', 'failed')),
best AS (
  SELECT DISTINCT ON (project, rollout_id) * FROM ranked WHERE rank IS NOT NULL
  ORDER BY project, rollout_id, rank DESC, position DESC),
merged AS (
  SELECT r.project, r.rollout_id,
         coalesce(r.ended_position, ended.position) AS ended_position, coalesce(r.ended_by, ended.b->>'ended_by') AS ended_by,
         coalesce(r.boundary, ended.b->>'boundary') AS boundary, coalesce(r.reason, ended.b->>'reason') AS reason,
         CASE WHEN r.ended_position IS NULL THEN coalesce((ended.b->>'superseded')::boolean, false) ELSE r.superseded END AS superseded,
         r.model_calls + c.model_calls AS model_calls, r.tool_calls + c.tool_calls AS tool_calls,
         r.sampled_tokens + c.sampled_tokens AS sampled_tokens,
         CASE WHEN b.newer THEN b.verdict_id ELSE r.verdict_id END AS verdict_id,
         CASE WHEN b.newer THEN b.rank ELSE r.verdict_rank END AS verdict_rank,
         CASE WHEN b.newer THEN b.position ELSE r.verdict_position END AS verdict_position,
         CASE WHEN b.newer THEN b.status ELSE r.verdict_status END AS verdict_status,
         CASE WHEN b.newer THEN b.passed ELSE r.passed END AS passed
  FROM counted AS c JOIN rollout_view AS r USING (project, rollout_id)
  LEFT JOIN ended ON ended.project = r.project AND ended.rollout_id = r.rollout_id
  LEFT JOIN LATERAL (
    SELECT best.*, (rank, position) > (coalesce(r.verdict_rank, 0), coalesce(r.verdict_position, 0)) AS newer FROM best
    WHERE best.project = r.project AND best.rollout_id = r.rollout_id) AS b ON true)
UPDATE rollout_view AS r SET ended_position = m.ended_position, ended_by = m.ended_by, boundary = m.boundary, reason = m.reason,
  superseded = m.superseded, model_calls = m.model_calls, tool_calls = m.tool_calls, sampled_tokens = m.sampled_tokens,
  verdict_id = m.verdict_id, verdict_rank = m.verdict_rank, verdict_position = m.verdict_position, verdict_status = m.verdict_status,
  passed = m.passed,
  outcome = CASE WHEN m.ended_by IS NULL THEN 'running'
    WHEN m.superseded OR m.ended_by IN ('cancelled', 'engine_error') THEN 'aborted'
    WHEN m.ended_by = 'world_error' THEN 'env_failed'
    WHEN m.ended_by = 'harness_error' THEN 'harness_failed'
    WHEN m.verdict_status = 'error' THEN 'verifier_failed'
    WHEN m.passed IS NULL THEN 'unknown'
    WHEN m.passed THEN 'succeeded'
    WHEN m.ended_by = 'finished' THEN 'task_failed'
    ELSE 'limit_ended' END
FROM merged AS m WHERE r.project = m.project AND r.rollout_id = m.rollout_id"""
SQL: tuple[str, ...] = (_STARTED, _REST)


def fold(rows: Rows, event: Recorded) -> None:
    """Start, count, end or judge the rollout, then derive its outcome again."""
    body = event.body
    rollout_id = getattr(body, "rollout_id", None)
    if rollout_id is None:
        return
    row = rows.setdefault((event.project, rollout_id), _empty(event.project, rollout_id))
    if isinstance(body, RolloutStarted):
        _start(row, body, event.position)
    elif isinstance(body, ModelCalled):
        row["model_calls"] += 1
        row["sampled_tokens"] += 0 if body.sampled_ids is None else body.sampled_ids.count
    elif isinstance(body, ToolCalled):
        row["tool_calls"] += 1
    elif isinstance(body, RolloutEnded):
        row.update(
            ended_by=body.ended_by, boundary=body.boundary, reason=body.reason, superseded=body.superseded, ended_position=event.position
        )
    elif isinstance(body, VerdictGiven):
        rank = verdict_rank("VerdictGiven", body.role, body.verifier_kind, body.passed)
        _judge(row, rank, event.position, (body.verdict_id, body.status, body.passed))
    elif isinstance(body, ReviewDecided):
        passed = {"passed": True, "failed": False, "unclear": None}[body.decision]
        _judge(row, verdict_rank("ReviewDecided", "review", "human", passed), event.position, (body.review_id, "completed", passed))
    row["outcome"] = outcome_of(row["ended_by"], superseded=row["superseded"], verdict_status=row["verdict_status"], passed=row["passed"])


def complete(row: Row) -> bool:
    """Whether the rollout has started."""
    return row["started_position"] is not None


def _empty(project: str, rollout_id: str) -> Row:
    return {
        "project": project, "rollout_id": rollout_id, "group_id": None, "bundle_id": None, "slot": None, "attempt": None,
        "rollout_kind": None, "participant": None, "model_version": None, "started_position": None, "ended_position": None,
        "ended_by": None, "boundary": None, "reason": None, "superseded": False, "model_calls": 0, "tool_calls": 0, "sampled_tokens": 0,
        "verdict_id": None, "verdict_rank": None, "verdict_position": None, "verdict_status": None, "passed": None, "outcome": "running",
    }  # fmt: skip


def _start(row: Row, body: RolloutStarted, position: int | None) -> None:
    main = min(body.participants, key=lambda p: (not p.trainable, p.role != "agent"), default=None)
    row.update(
        group_id=body.group_id, bundle_id=body.bundle_id, slot=body.slot, attempt=body.attempt, rollout_kind=body.rollout_kind,
        participant=None if main is None else main.name, model_version=None if main is None else main.model_version,
        started_position=position,
    )  # fmt: skip


def _judge(row: Row, rank: int | None, position: int | None, verdict: tuple[str, str, bool | None]) -> None:
    if rank is None or (rank, position) <= (row["verdict_rank"] or 0, row["verdict_position"] or 0):
        return
    row.update(verdict_id=verdict[0], verdict_status=verdict[1], passed=verdict[2], verdict_rank=rank, verdict_position=position)
