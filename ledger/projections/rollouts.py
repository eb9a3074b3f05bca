"""Read model: rollouts with their end, their counts, the verdict and the attribution that count, and the outcome that follows. Pure."""

import math

from ledger.events import FindingRaised, ModelCalled, ReviewDecided, RolloutEnded, RolloutStarted, ToolCalled, VerdictGiven
from ledger.order import Recorded
from ledger.outcome import outcome_of, verdict_rank
from ledger.projections.read_model import Row, Rows, least, taken_if

NAME = "rollouts"
VIEW = "rollout_view"
KINDS: tuple[str, ...] = ("RolloutStarted", "ModelCalled", "ToolCalled", "RolloutEnded", "VerdictGiven", "ReviewDecided", "FindingRaised")
# Events of a rollout may be ordered before its start: its row is there from the first of them on, and shown from the start on.
SHOWN = "started_position IS NOT NULL"
_START = ("group_id", "bundle_id", "slot", "attempt", "rollout_kind", "participant", "model_version", "started_position")
_END = ("ended_by", "boundary", "reason", "superseded", "ended_position")
_VERDICT = ("verdict_id", "verdict_rank", "verdict_ledger", "verdict_position", "verdict_status", "passed")
_FINDING = ("finding_id", "finding_ledger", "finding_position", "attributed", "attributed_fault")
_SUBJECT = "rollout-"
_COUNTS = ("model_calls", "tool_calls", "sampled_tokens")

# The five parts meet in full joins, which are never planned as nested loops, however wrong the estimates are.
SQL = f"""WITH
counted AS (
  SELECT project, b->>'rollout_id' AS rollout_id, count(*) FILTER (WHERE kind = 'ModelCalled') AS model_calls,
         count(*) FILTER (WHERE kind = 'ToolCalled') AS tool_calls, sum((b#>>'{{sampled_ids,count}}')::bigint) AS sampled_tokens
  FROM e WHERE kind IN ('ModelCalled', 'ToolCalled') AND b->>'rollout_id' IS NOT NULL GROUP BY 1, 2),
started AS (
  SELECT DISTINCT ON (project, b->>'rollout_id') project, b->>'rollout_id' AS rollout_id, event_id AS started_event,
         b->>'group_id' AS group_id, b->>'bundle_id' AS bundle_id, (b->>'slot')::int AS slot, (b->>'attempt')::int AS attempt,
         b->>'rollout_kind' AS rollout_kind, main.p->>'name' AS participant, main.p->>'model_version' AS model_version,
         position AS started_position
  FROM e LEFT JOIN LATERAL (
    SELECT p FROM jsonb_array_elements(b->'participants') WITH ORDINALITY AS listed (p, n)
    ORDER BY (p->>'trainable')::boolean DESC, p->>'role' = 'agent' DESC, n LIMIT 1) AS main ON true
  WHERE kind = 'RolloutStarted' ORDER BY project, b->>'rollout_id', event_id),
ended AS (
  SELECT DISTINCT ON (project, b->>'rollout_id') project, b->>'rollout_id' AS rollout_id, event_id AS ended_event,
         b->>'ended_by' AS ended_by, b->>'boundary' AS boundary, b->>'reason' AS reason, (b->>'superseded')::boolean AS superseded,
         position AS ended_position
  FROM e WHERE kind = 'RolloutEnded' ORDER BY project, b->>'rollout_id', event_id),
ranked AS (
  SELECT project, b->>'rollout_id' AS rollout_id, coalesce(b->>'verdict_id', b->>'review_id') AS verdict_id,
         ledger_id COLLATE "C" AS verdict_ledger, position AS verdict_position, coalesce(b->>'status', 'completed') AS verdict_status,
         CASE kind WHEN 'VerdictGiven' THEN (b->>'passed')::boolean ELSE b->>'decision' = 'passed' END AS passed,
         CASE WHEN kind = 'ReviewDecided' THEN CASE WHEN b->>'decision' IN ('passed', 'failed') THEN 4 END
              WHEN b->>'role' = 'bundle' THEN
                CASE b->>'verifier_kind' WHEN 'human' THEN 4 WHEN 'program' THEN 3 WHEN 'state_diff' THEN 3 WHEN 'judge' THEN 2 END
         END AS verdict_rank
  FROM e WHERE kind IN ('VerdictGiven', 'ReviewDecided')),
judged AS (
  SELECT DISTINCT ON (project, rollout_id) * FROM ranked WHERE verdict_rank IS NOT NULL
  ORDER BY project, rollout_id, verdict_rank DESC, verdict_ledger DESC, verdict_position DESC),
blamed AS (
  SELECT DISTINCT ON (project, substr(b->>'subject', {len(_SUBJECT) + 1})) project,
         substr(b->>'subject', {len(_SUBJECT) + 1}) AS rollout_id, b->>'finding_id' AS finding_id, ledger_id COLLATE "C" AS finding_ledger,
         position AS finding_position, coalesce(b->>'boundary', b->>'fault') AS attributed, b->>'fault' AS attributed_fault
  FROM e WHERE kind = 'FindingRaised' AND b->>'check' = 'attribution' AND starts_with(b->>'subject', '{_SUBJECT}')
  ORDER BY project, substr(b->>'subject', {len(_SUBJECT) + 1}), ledger_id COLLATE "C" DESC, position DESC)
INSERT INTO {{table}} AS t (project, rollout_id, started_event, {", ".join(_START)}, ended_event, {", ".join(_END)},
                          {", ".join(_VERDICT)}, {", ".join(_FINDING)}, {", ".join(_COUNTS)})
SELECT project, rollout_id, started_event, {", ".join(_START)}, ended_event,
       ended_by, boundary, reason, coalesce(superseded, false), ended_position, {", ".join(_VERDICT)},
       {", ".join(_FINDING)},
       {", ".join(f"coalesce({name}, 0)" for name in _COUNTS)}
FROM counted FULL JOIN started USING (project, rollout_id) FULL JOIN ended USING (project, rollout_id)
  FULL JOIN judged USING (project, rollout_id) FULL JOIN blamed USING (project, rollout_id)
ON CONFLICT (project, rollout_id) DO UPDATE SET {least("started_event", _START)},
  {least("ended_event", _END)},
  {taken_if("coalesce((excluded.verdict_rank, excluded.verdict_ledger, excluded.verdict_position)"
            " > (t.verdict_rank, t.verdict_ledger, t.verdict_position), t.verdict_rank IS NULL)", _VERDICT)},
  {taken_if("coalesce((excluded.finding_ledger, excluded.finding_position) > (t.finding_ledger, t.finding_position),"
            " t.finding_position IS NULL)", _FINDING)},
  {", ".join(f"{name} = t.{name} + excluded.{name}" for name in _COUNTS)}"""  # fmt: skip


def fold(rows: Rows, event: Recorded) -> None:
    """Start, count, end, judge or attribute the rollout, then derive its outcome again."""
    body = event.body
    rollout_id = _attributed_to(body) if isinstance(body, FindingRaised) else getattr(body, "rollout_id", None)
    if rollout_id is None:
        return
    row = rows.setdefault((event.project, rollout_id), _empty(event.project, rollout_id))
    if isinstance(body, RolloutStarted):
        if row["started_event"] is None or event.event_id < row["started_event"]:
            _start(row, body, event)
    elif isinstance(body, ModelCalled):
        row["model_calls"] += 1
        row["sampled_tokens"] += 0 if body.sampled_ids is None else body.sampled_ids.count
    elif isinstance(body, ToolCalled):
        row["tool_calls"] += 1
    elif isinstance(body, RolloutEnded):
        if row["ended_event"] is None or event.event_id < row["ended_event"]:
            row.update({name: getattr(body, name) for name in _END[:-1]}, ended_event=event.event_id, ended_position=event.position)
    elif isinstance(body, VerdictGiven):
        rank = verdict_rank("VerdictGiven", body.role, body.verifier_kind, body.passed)
        _judge(row, rank, event, (body.verdict_id, body.status, body.passed))
    elif isinstance(body, ReviewDecided):
        passed = {"passed": True, "failed": False, "unclear": None}[body.decision]
        _judge(row, verdict_rank("ReviewDecided", "review", "human", passed), event, (body.review_id, "completed", passed))
    elif isinstance(body, FindingRaised):
        _attribute(row, event, body)
    row["outcome"] = outcome_of(
        row["ended_by"], superseded=row["superseded"], verdict_status=row["verdict_status"], passed=row["passed"],
        attributed=row["attributed"], judged_since=_judged_since(row),
    )  # fmt: skip


def complete(row: Row) -> bool:
    """Whether the rollout has started."""
    return row["started_event"] is not None


def _empty(project: str, rollout_id: str) -> Row:
    return {
        "project": project, "rollout_id": rollout_id, "started_event": None, **dict.fromkeys(_START), "ended_event": None,
        **dict.fromkeys(_END), "superseded": False, **dict.fromkeys(_VERDICT), **dict.fromkeys(_FINDING),
        **dict.fromkeys(_COUNTS, 0), "outcome": "running",
    }  # fmt: skip


def _start(row: Row, body: RolloutStarted, event: Recorded) -> None:
    main = min(body.participants, key=lambda p: (not p.trainable, p.role != "agent"), default=None)
    row.update({name: getattr(body, name) for name in _START[:5]}, started_event=event.event_id, started_position=event.position)
    row.update(participant=None if main is None else main.name, model_version=None if main is None else main.model_version)


def _judge(row: Row, rank: int | None, event: Recorded, verdict: tuple[str, str, bool | None]) -> None:
    """Let the verdict count if its rank is higher; of equal rank the younger ledger's does, and within a ledger the newest."""
    if rank is None:
        return
    seen = (rank, event.ledger_id, math.inf if event.position is None else event.position)
    at = row["verdict_position"]
    if row["verdict_rank"] is None or seen >= (row["verdict_rank"], row["verdict_ledger"], math.inf if at is None else at):
        row.update(verdict_id=verdict[0], verdict_status=verdict[1], passed=verdict[2])
        row.update(verdict_rank=rank, verdict_ledger=event.ledger_id, verdict_position=event.position)


def _judged_since(row: Row) -> bool:
    """Whether the verdict that counts is newer than the attribution that does; of two ledgers the younger's is."""
    if row["verdict_ledger"] is None or row["finding_ledger"] is None:
        return False
    verdict, finding = (
        (row[f"{name}_ledger"], math.inf if row[f"{name}_position"] is None else row[f"{name}_position"]) for name in ("verdict", "finding")
    )
    return bool(verdict > finding)


def _attributed_to(body: FindingRaised) -> str | None:
    return body.subject.removeprefix(_SUBJECT) if body.check == "attribution" and body.subject.startswith(_SUBJECT) else None


def _attribute(row: Row, event: Recorded, body: FindingRaised) -> None:
    """Let the newest attribution count; of two ledgers the younger's does."""
    seen = (event.ledger_id, math.inf if event.position is None else event.position)
    at = row["finding_position"]
    if row["finding_id"] is None or seen >= (row["finding_ledger"], math.inf if at is None else at):
        row.update(finding_id=body.finding_id, finding_ledger=event.ledger_id, finding_position=event.position)
        row.update(attributed=body.boundary or body.fault, attributed_fault=body.fault)
