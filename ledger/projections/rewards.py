"""Read model: rewards as derived; a missing one stays null with its reason. Pure."""

from ledger.events import RewardDerived
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, first_stated, state_first

NAME = "rewards"
VIEW = "reward_view"
KINDS: tuple[str, ...] = ("RewardDerived",)
SHOWN = "true"
SQL = first_stated(KINDS, "reward_id", {
    "reward_id": "b->>'reward_id'", "rollout_id": "b->>'rollout_id'", "rule": "b->>'rule'", "value": "(b->>'value')::float8",
    "reason": "b->>'reason'", "verdict_ids": "b->'verdict_ids'",
})  # fmt: skip


def fold(rows: Rows, event: Recorded) -> None:
    """Add the reward that the event derives."""
    body = event.body
    assert isinstance(body, RewardDerived)
    state_first(rows, event, "reward_id", {
        "reward_id": body.reward_id, "rollout_id": body.rollout_id, "rule": body.rule, "value": body.value, "reason": body.reason,
        "verdict_ids": list(body.verdict_ids),
    })  # fmt: skip


def complete(row: Row) -> bool:
    """Always: one event makes the row."""
    return bool(row)
