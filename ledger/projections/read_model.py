"""What a read model is: its view, the kinds of event it is folded from, the SQL that folds a range, the same fold in Python. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ledger.order import Recorded
from ledger.upcast import CLASSES, STEPS, Steps, upcast_sql

Row = dict[str, Any]
Rows = dict[tuple[str, str], Row]
"""(project, id) to the columns of its row."""


class ReadModel(Protocol):
    """A module of this package.

    Attributes:
        NAME: of the read model and its cursors.
        VIEW: that readers see; the table of this name in ledger/tables.py declares the table of every generation.
        KINDS: of event that change it.
        SQL: one INSERT into `{table}` from `e`, the events of the range (`events_of`), that merges them with the rows of earlier ranges.
            The rows depend on the events alone: not on where ranges were cut, and on positions only within one ledger.
        SHOWN: condition on the rows that the view shows.
    """

    NAME: str
    VIEW: str
    KINDS: tuple[str, ...]
    SQL: str
    SHOWN: str

    def fold(self, rows: Rows, event: Recorded) -> None:
        """Change `rows` as `event`, the next in position order, demands."""

    def complete(self, row: Row) -> bool:
        """Whether the row is shown: False while only events that belong to it later are known."""


def events_of(kinds: Iterable[str], steps: Steps = STEPS) -> str:
    """A common table expression `e` over the range's events of these kinds.

    Its columns are position, ledger_id, event_id, project, kind, schema_version, and `b`, the body as jsonb in its newest version.
    """
    listed = sorted(set(kinds))
    body = upcast_sql("convert_from(body, 'UTF8')::jsonb", listed, steps)
    # Positions that are close have ids that are close: the bounds keep the plan from reading all events for one range.
    bound = "(SELECT {}(id) FROM event_order WHERE position > %(low)s AND position <= %(high)s)"
    return (
        f"e AS MATERIALIZED (SELECT position, ledger_id, event_id, project, kind, schema_version, {body} AS b FROM ordered_event"
        f" WHERE position > %(low)s AND position <= %(high)s AND kind IN ({quoted(listed)})"
        f" AND id >= {bound.format('min')} AND id <= {bound.format('max')})"
    )


def fold_statement(parts: Mapping[str, ReadModel]) -> str:
    """One statement that folds a range into several tables and reads its events once.

    It returns kind and version of an event that is newer than this release, if there is one.

    Args:
        parts: table to the read model that it is of; at least one.
    """
    kinds = sorted({kind for model in parts.values() for kind in model.KINDS})
    inserts = [f"{table} AS ({model.SQL.replace('{table}', table)})" for table, model in parts.items()]
    current = " ".join(f"WHEN '{kind}' THEN {CLASSES[kind].schema_version}" for kind in kinds)
    with_all = ", ".join([events_of(kinds), *inserts])
    return f"WITH {with_all} SELECT kind, schema_version FROM e WHERE schema_version > CASE kind {current} END"


def first_stated(kinds: Sequence[str], ident: str, columns: Mapping[str, str]) -> str:
    """The SQL of a read model whose rows are each made by one event: of several that state the same id, the least event id wins.

    Args:
        kinds: of event that make a row.
        ident: column that holds the id of a row.
        columns: to their expressions over `b` and `kind`; that of `ident` may not be null.
    """
    names = ["project", *columns, "event_id", "position"]
    return (
        f"INSERT INTO {{table}} AS t ({', '.join(names)})"
        f" SELECT DISTINCT ON (project, {columns[ident]}) project, {', '.join(columns.values())}, event_id, position"
        f" FROM e WHERE kind IN ({quoted(kinds)}) ORDER BY project, {columns[ident]}, event_id"
        f" ON CONFLICT (project, {ident}) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names if name != ident)}"
        " WHERE excluded.event_id < t.event_id"
    )


def state_first(rows: Rows, event: Recorded, ident: str, columns: Row) -> None:
    """The Python fold of `first_stated`."""
    key = (event.project, columns[ident])
    if key not in rows or event.event_id < rows[key]["event_id"]:
        rows[key] = {"project": event.project, **columns, "event_id": event.event_id, "position": event.position}


def least(by: str, columns: Sequence[str]) -> str:
    """Assignments for ON CONFLICT of a table `t` that take `by` and `columns` of the row whose `by` is less, a null being the greatest."""
    return taken_if(f"coalesce(excluded.{by} < t.{by}, t.{by} IS NULL)", [by, *columns])


def taken_if(condition: str, columns: Sequence[str]) -> str:
    """Assignments for ON CONFLICT of a table `t` that take `columns` of the new row where `condition` holds."""
    return ", ".join(f"{name} = CASE WHEN {condition} THEN excluded.{name} ELSE t.{name} END" for name in columns)


def quoted(names: Iterable[str]) -> str:
    """Names as a list of SQL strings."""
    return ", ".join(f"'{name}'" for name in names)


def folded(model: ReadModel, events: Iterable[Recorded]) -> list[Row]:
    """The rows that `events`, in position order, fold to, sorted by project and id: what the view must show."""
    rows: Rows = {}
    for event in events:
        if event.kind in model.KINDS:
            model.fold(rows, event)
    return [rows[key] for key in sorted(rows) if model.complete(rows[key])]
