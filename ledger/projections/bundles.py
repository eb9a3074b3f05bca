"""Read model: bundles as sealed."""

from ledger.events import BundleSealed
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, bodies

NAME = "bundles"
TABLE = "bundle_view"
KINDS: tuple[str, ...] = ("BundleSealed",)
SQL: tuple[str, ...] = (
    f"""WITH {bodies(*KINDS)}
INSERT INTO bundle_view (project, bundle_id, name, world, split, proposer, verifier_id, harness_id, position)
SELECT project, b->>'bundle_id', b->>'name', b->>'world', b->>'split', b->>'proposer', b->>'verifier_id', b->>'harness_id', position
FROM e ORDER BY position ON CONFLICT DO NOTHING""",
)


def fold(rows: Rows, event: Recorded) -> None:
    """Add the bundle that the event seals."""
    body = event.body
    assert isinstance(body, BundleSealed)
    rows.setdefault(
        (event.project, body.bundle_id),
        {
            "project": event.project, "bundle_id": body.bundle_id, "name": body.name, "world": body.world, "split": body.split,
            "proposer": body.proposer, "verifier_id": body.verifier_id, "harness_id": body.harness_id, "position": event.position,
        },
    )  # fmt: skip


def complete(row: Row) -> bool:
    """Always: one event makes the row."""
    return bool(row)
