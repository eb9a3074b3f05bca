"""Read model: verdicts as given, with people's decisions beside them. Pure."""

from ledger.events import ReviewDecided, VerdictGiven
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, first_stated, state_first

NAME = "verdicts"
VIEW = "verdict_view"
KINDS: tuple[str, ...] = ("VerdictGiven", "ReviewDecided")
SHOWN = "true"
# A review lacks the fields that a verdict alone has.
SQL = first_stated(KINDS, "verdict_id", {
    "verdict_id": "coalesce(b->>'verdict_id', b->>'review_id')", "rollout_id": "b->>'rollout_id'", "verifier_id": "b->>'verifier_id'",
    "verifier_kind": "coalesce(b->>'verifier_kind', 'human')", "role": "coalesce(b->>'role', 'review')",
    "status": "coalesce(b->>'status', 'completed')",
    "passed": "CASE b->>'decision' WHEN 'passed' THEN true WHEN 'failed' THEN false ELSE (b->>'passed')::boolean END",
    "conditions": "coalesce(b->'conditions', '[]')", "side_effect_count": "coalesce((b->>'side_effect_count')::int, 0)",
})  # fmt: skip


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
    state_first(rows, event, "verdict_id", row)


def complete(row: Row) -> bool:
    """Always: one event makes the row."""
    return bool(row)
