"""Read model: groups as dispatched, against which coverage is counted."""

from ledger.events import GroupDispatched
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, bodies

NAME = "groups"
TABLE = "group_view"
KINDS: tuple[str, ...] = ("GroupDispatched",)
SQL: tuple[str, ...] = (
    f"""WITH {bodies(*KINDS)}
INSERT INTO group_view (project, group_id, bundle_id, size, experiment_id, run_id, round, policy, rollout_kind, position)
SELECT project, b->>'group_id', b->>'bundle_id', (b->>'size')::int, b->>'experiment_id', b->>'run_id', (b->>'round')::int,
       b->>'policy', b->>'rollout_kind', position
FROM e ORDER BY position ON CONFLICT DO NOTHING""",
)


def fold(rows: Rows, event: Recorded) -> None:
    """Add the group that the event dispatches."""
    body = event.body
    assert isinstance(body, GroupDispatched)
    rows.setdefault(
        (event.project, body.group_id),
        {
            "project": event.project, "group_id": body.group_id, "bundle_id": body.bundle_id, "size": body.size,
            "experiment_id": body.experiment_id, "run_id": body.run_id, "round": body.round, "policy": body.policy,
            "rollout_kind": body.rollout_kind, "position": event.position,
        },
    )  # fmt: skip


def complete(row: Row) -> bool:
    """Always: one event makes the row."""
    return bool(row)
