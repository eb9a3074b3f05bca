"""A verifier for SQLite worlds: named SQL conditions over the databases before and after, each with its rows as evidence."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from ledger.errors import BundleError, VerifierFailed, WorldFailed
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict
from training.worlds import Change
from training.worlds.difference import differences
from training.worlds.sqlite.database import Guarded, OutOfSteps, build, empty
from training.worlds.sqlite.definition import Limits

_LIMITS = Limits(steps=20_000_000, seconds=20.0, rows=50)
_EXPECTED = ("rows", "none")


def sqlite_conditions(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict of the task's own SQL conditions, and of `nothing_else` when the task says which places may change.

    The spec holds `conditions`, a list of `{"name", "sql", "expect"}`: the query reads tables of `before` and `after`, such as
    `after.orders`; expecting `none` passes when it gives no row and `rows` when it gives any. `"basis": false` keeps a condition out of
    the basis. `allowed_changes` is a list of pointers such as `/orders/O-17/status` with `*` for any key; a material change outside of
    them fails `nothing_else` and is a side effect. Rows whose key is volatile are added anywhere in their table, so name that as
    `/refunds/*`. A query that fails or does not end is an error of its condition and decides nothing.

    Args:
        s0: the world's view at the request.
        s_end: the world's view at the end.
        trace: not used.
        task: its initial state holds the schema.
        ask: not used.
    Raises:
        VerifierFailed: the bundle has no conditions, or no databases can be made of the views.
    Source: Agent World Model, arXiv 2602.10090, verification by the difference of databases.
    """
    spec = task.draft.spec
    conditions, allowed = spec.get("conditions") or [], spec.get("allowed_changes")
    if not conditions and allowed is None:
        raise VerifierFailed(f"bundle {task.draft.name!r} has no conditions; its spec needs `conditions` or `allowed_changes`")
    with _databases(task, s0, s_end) as connection:
        judged = [_condition(connection, condition) for condition in conditions]
    if allowed is None:
        return Verdict(tuple(judged))
    strays = [change for change in differences(task.material(s0), task.material(s_end)).changes if not _allowed(change, allowed)]
    shown = tuple({"path": change.path, "before": change.before, "after": change.after} for change in strays[: _LIMITS.rows])
    nothing_else = Condition("nothing_else", "failed" if strays else "passed", {"changes": list(shown), "count": len(strays)})
    return Verdict((*judged, nothing_else), shown)


@contextmanager
def _databases(task: JudgeTask, s0: Any, s_end: Any) -> Iterator[sqlite3.Connection]:
    initial = task.draft.initial_state
    if not isinstance(initial, Mapping) or "schema" not in initial:
        raise VerifierFailed(f"bundle {task.draft.name!r} is not for a SQLite world; its initial state has no schema")
    with closing(empty()) as connection:
        for name, view in (("before", s0), ("after", s_end)):
            connection.execute(f"ATTACH ':memory:' AS {name}")
            try:
                connection.deserialize(build(initial["schema"], view), name=name)
            except BundleError as error:
                raise VerifierFailed(f"the view {name} the rollout of {task.draft.name!r} makes no database: {error}") from error
        yield connection


def _condition(connection: sqlite3.Connection, condition: Mapping[str, Any]) -> Condition:
    name, expected, in_basis = str(condition["name"]), condition.get("expect"), bool(condition.get("basis", True))
    if expected not in _EXPECTED:
        return Condition(name, "error", {"error": f"expect is {expected!r}; allowed: {', '.join(_EXPECTED)}"}, in_basis)
    if not isinstance(condition.get("sql"), str):
        return Condition(name, "error", {"error": f"sql is not a text: {condition.get('sql')!r}"}, in_basis)
    connection.set_authorizer(None)
    try:
        rows, more = Guarded(connection, _LIMITS).rows(condition["sql"], {})
    except (sqlite3.Error, sqlite3.Warning, OutOfSteps, WorldFailed, MemoryError) as error:
        return Condition(name, "error", {"sql": condition["sql"], "error": str(error)}, in_basis)
    evidence = {"sql": condition["sql"], "expect": expected, "rows": rows, "more": more}
    return Condition(name, "passed" if bool(rows) == (expected == "rows") else "failed", evidence, in_basis)


def _allowed(change: Change, patterns: Sequence[str]) -> bool:
    place = change.path.split("/")
    for pattern in patterns:
        keys = pattern.split("/")
        if len(place) >= len(keys) and all(key in ("*", at) for key, at in zip(keys, place, strict=False)):
            return True
    return False
