"""Read model: verdicts as given, with people's decisions beside them."""

from ledger.events import ReviewDecided, VerdictGiven
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, bodies

NAME = "verdicts"
TABLE = "verdict_view"
KINDS: tuple[str, ...] = ("VerdictGiven", "ReviewDecided")
SQL: tuple[str, ...] = (
    f"""WITH {bodies(*KINDS)}
INSERT INTO verdict_view (project, verdict_id, rollout_id, verifier_id, verifier_kind, role, status, passed, conditions,
                          side_effect_count, position)
SELECT project, b->>'verdict_id', b->>'rollout_id', b->>'verifier_id', b->>'verifier_kind', b->>'role', b->>'status',
       (b->>'passed')::boolean, b->'conditions', (b->>'side_effect_count')::int, position
FROM e WHERE kind = 'VerdictGiven'
UNION ALL
SELECT project, b->>'review_id', b->>'rollout_id', NULL, 'human', 'review', 'completed',
       CASE b->>'decision' WHEN 'passed' THEN true WHEN 'failed' THEN false END, '[]'::jsonb, 0, position
FROM e WHERE kind = 'ReviewDecided'
ORDER BY position ON CONFLICT DO NOTHING""",
)


def fold(rows: Rows, event: Recorded) -> None:
    """Add the verdict or the decision; an unclear decision says neither passed nor failed."""
    body = event.body
    if isinstance(body, VerdictGiven):
        row: Row = {
            "verdict_id": body.verdict_id, "rollout_id": body.rollout_id, "verifier_id": body.verifier_id,
            "verifier_kind": body.verifier_kind, "role": body.role, "status": body.status, "passed": body.passed,
            "conditions": [condition.model_dump(mode="json") for condition in body.conditions],
            "side_effect_count": body.side_effect_count,
        }  # fmt: skip
    else:
        assert isinstance(body, ReviewDecided)
        row = {
            "verdict_id": body.review_id, "rollout_id": body.rollout_id, "verifier_id": None, "verifier_kind": "human", "role": "review",
            "status": "completed", "passed": {"passed": True, "failed": False, "unclear": None}[body.decision], "conditions": [],
            "side_effect_count": 0,
        }  # fmt: skip
    rows.setdefault((event.project, row["verdict_id"]), {"project": event.project, **row, "position": event.position})


def complete(row: Row) -> bool:
    """Always: one event makes the row."""
    return bool(row)
