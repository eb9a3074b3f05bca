"""SQL of the lines that queries return, and the reading of their rows. Reads the read models."""

from collections.abc import Sequence
from typing import Any

import psycopg

from ledger.queries_rows import CallLine, Filter, RolloutLine, VerdictLine

Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]

ROLLOUT = """r.rollout_id, r.bundle_id, b.name, b.world, b.split, r.group_id, g.experiment_id, g.run_id, g.round,
  coalesce(g.policy, r.participant), r.participant, r.model_version, r.rollout_kind, r.slot, r.attempt, r.superseded, r.ended_by,
  r.boundary, r.reason, r.outcome, r.passed, r.verdict_id, r.verdict_status, r.model_calls, r.tool_calls, r.sampled_tokens,
  r.started_position, r.ended_position, w.reward_id, w.value, w.reason"""
NAMED = """rollout_view AS r
  LEFT JOIN bundle_view AS b ON b.project = r.project AND b.bundle_id = r.bundle_id
  LEFT JOIN group_view AS g ON g.project = r.project AND g.group_id = r.group_id"""
ROLLOUTS = f"""{NAMED}
  LEFT JOIN LATERAL (
    SELECT reward_id, value, reason FROM reward_view AS w WHERE w.project = r.project AND w.rollout_id = r.rollout_id
    ORDER BY position DESC LIMIT 1) AS w ON true"""
ROLLOUT_COLUMNS = 31
REWARD = f"{ROLLOUT}, x.reward_id, x.value, x.reason, x.rule, x.verdict_ids, x.position"
REWARDS = f"reward_view AS x JOIN {ROLLOUTS.replace(' AS r', ' AS r ON r.project = x.project AND r.rollout_id = x.rollout_id', 1)}"
CALL = """c.call_id, c.rollout_id, c.index, c.participant, c.role, c.model, c.status, c.error_source, c.finish_reason, c.prompt_tokens,
  c.sampled_tokens, c.logprobs_mode, c.retry_of, c.dispatched_position, c.called_position"""

_COLUMNS = {
    "experiment_id": "g.experiment_id", "run_id": "g.run_id", "round": "g.round", "policy": "coalesce(g.policy, r.participant)",
    "world": "b.world", "split": "b.split", "bundle_id": "r.bundle_id", "group_id": "r.group_id", "rollout_id": "r.rollout_id",
    "outcome": "r.outcome", "ended_by": "r.ended_by",
}  # fmt: skip


def condition(project: str, where: Filter) -> tuple[str, dict[str, Any]]:
    """A WHERE clause over `ROLLOUTS`, `REWARDS` or `NAMED`, and its parameters."""
    asked = {name: value for name in _COLUMNS if (value := getattr(where, name)) is not None}
    parts = ["r.project = %(project)s", *(f"{_COLUMNS[name]} = %({name})s" for name in asked)]
    if where.counted is not None:
        parts.append("NOT r.superseded" if where.counted else "r.superseded")
    return " AND ".join(parts), {"project": project, **asked}


def rollout_line(row: Row) -> RolloutLine:
    """The line in a row of `ROLLOUT`."""
    return RolloutLine(*row)


def call_line(row: Row) -> CallLine:
    """The line in a row of `CALL`."""
    return CallLine(*row)


def verdict_lines(conn: Connection, project: str, rollout_ids: Sequence[str]) -> dict[str, tuple[VerdictLine, ...]]:
    """Every rollout id to its verdicts and reviews, oldest first, with their verifiers' names."""
    rows = conn.execute(
        "SELECT v.verdict_id, v.rollout_id, v.verifier_id, d.b->>'name', v.verifier_kind, coalesce((d.b->>'planted')::boolean, false),"
        " v.role, v.status, v.passed, v.conditions, v.side_effect_count, v.position, v.verdict_id IS NOT DISTINCT FROM r.verdict_id"
        " FROM verdict_view AS v"
        " LEFT JOIN rollout_view AS r ON r.project = v.project AND r.rollout_id = v.rollout_id"
        " LEFT JOIN LATERAL (SELECT convert_from(e.body, 'UTF8')::jsonb AS b FROM ordered_event AS e"
        "   WHERE e.node_id = node_of(v.project, 'verifier-' || v.verifier_id) AND e.kind = 'VerifierRegistered' ORDER BY e.id LIMIT 1)"
        "   AS d ON true"
        " WHERE v.project = %s AND v.rollout_id = ANY (%s) ORDER BY v.position",
        (project, list(rollout_ids)),
    ).fetchall()
    found: dict[str, list[VerdictLine]] = {rollout_id: [] for rollout_id in rollout_ids}
    for row in rows:
        found[row[1]].append(VerdictLine(*(*row[:9], tuple(row[9]), *row[10:])))
    return {rollout_id: tuple(lines) for rollout_id, lines in found.items()}
