"""What a read model is: a table, the kinds of event it is folded from, the SQL that folds a range of positions, the same fold in Python."""

from collections.abc import Iterable
from typing import Any, Protocol

from ledger.order import Recorded

Row = dict[str, Any]
Rows = dict[tuple[str, str], Row]
"""(project, id) to the columns of its row."""


class ReadModel(Protocol):
    """A module of this package.

    Attributes:
        NAME: of the read model and its cursor.
        TABLE: that it fills.
        KINDS: of event that change it.
        SQL: statements that fold the events with a position in (low, high], run in this order in one transaction. The rows after a sequence
            of ranges depend on the last position alone, never on where the ranges were cut.
    """

    NAME: str
    TABLE: str
    KINDS: tuple[str, ...]
    SQL: tuple[str, ...]

    def fold(self, rows: Rows, event: Recorded) -> None:
        """Change `rows` as `event`, the next in position order, demands."""

    def complete(self, row: Row) -> bool:
        """Whether the row is shown: False while only events that belong to it later are known."""


def bodies(*kinds: str) -> str:
    """A common table expression `e (position, project, kind, b)` over the range's events of these kinds, with the body as jsonb."""
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    return (
        "e AS MATERIALIZED (SELECT position, project, kind, convert_from(body, 'UTF8')::jsonb AS b FROM ordered_event"
        f" WHERE position > %(low)s AND position <= %(high)s AND kind IN ({listed}))"
    )


def folded(model: ReadModel, events: Iterable[Recorded]) -> list[Row]:
    """The rows that `events`, in position order, fold to, sorted by project and id: what the SQL must arrive at."""
    rows: Rows = {}
    for event in events:
        if event.kind in model.KINDS:
            model.fold(rows, event)
    return [rows[key] for key in sorted(rows) if model.complete(rows[key])]
