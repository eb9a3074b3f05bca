"""Read model: rewards as derived; a missing one stays null with its reason."""

from ledger.events import RewardDerived
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, bodies

NAME = "rewards"
TABLE = "reward_view"
KINDS: tuple[str, ...] = ("RewardDerived",)
SQL: tuple[str, ...] = (
    f"""WITH {bodies(*KINDS)}
INSERT INTO reward_view (project, reward_id, rollout_id, rule, value, reason, verdict_ids, position)
SELECT project, b->>'reward_id', b->>'rollout_id', b->>'rule', (b->>'value')::float8, b->>'reason', b->'verdict_ids', position
FROM e ORDER BY position ON CONFLICT DO NOTHING""",
)


def fold(rows: Rows, event: Recorded) -> None:
    """Add the reward that the event derives."""
    body = event.body
    assert isinstance(body, RewardDerived)
    rows.setdefault(
        (event.project, body.reward_id),
        {
            "project": event.project, "reward_id": body.reward_id, "rollout_id": body.rollout_id, "rule": body.rule,
            "value": body.value, "reason": body.reason, "verdict_ids": list(body.verdict_ids), "position": event.position,
        },
    )  # fmt: skip


def complete(row: Row) -> bool:
    """Always: one event makes the row."""
    return bool(row)
