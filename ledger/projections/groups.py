"""Read model: groups as dispatched, against which coverage is counted. Pure."""

from ledger.events import GroupDispatched
from ledger.order import Recorded
from ledger.projections.read_model import Row, Rows, first_stated, state_first

NAME = "groups"
VIEW = "group_view"
KINDS: tuple[str, ...] = ("GroupDispatched",)
SHOWN = "true"
_COLUMNS = ("group_id", "bundle_id", "size", "experiment_id", "run_id", "round", "policy", "rollout_kind")
_NUMBERS = {name: f"(b->>'{name}')::int" for name in ("size", "round")}
SQL = first_stated(KINDS, "group_id", {name: f"b->>'{name}'" for name in _COLUMNS} | _NUMBERS)


def fold(rows: Rows, event: Recorded) -> None:
    """Add the group that the event dispatches."""
    body = event.body
    assert isinstance(body, GroupDispatched)
    state_first(rows, event, "group_id", {name: getattr(body, name) for name in _COLUMNS})


def complete(row: Row) -> bool:
    """Always: one event makes the row."""
    return bool(row)
