"""Read model: bundles as sealed. Pure."""

from ledger.events import BundleSealed
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, first_stated, state_first

NAME = "bundles"
VIEW = "bundle_view"
KINDS: tuple[str, ...] = ("BundleSealed",)
SHOWN = "true"
_COLUMNS = ("bundle_id", "name", "world", "split", "proposer", "verifier_id", "harness_id")
SQL = first_stated(KINDS, "bundle_id", {name: f"b->>'{name}'" for name in _COLUMNS})


def fold(rows: Rows, event: Recorded) -> None:
    """Add the bundle that the event seals."""
    body = event.body
    assert isinstance(body, BundleSealed)
    state_first(rows, event, "bundle_id", {name: getattr(body, name) for name in _COLUMNS})


def complete(row: Row) -> bool:
    """Always: one event makes the row."""
    return bool(row)
