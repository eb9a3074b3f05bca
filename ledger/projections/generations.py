"""Generations of read models: a table of rows folded by one source, and the view that shows one generation. Writes the database."""

import ast
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg.errors import LockNotAvailable

from ledger import upcast
from ledger.projections.read_model import ReadModel, events_of, fold_statement
from ledger.projections.registry import MODELS

Connection = psycopg.Connection[Any]

DECLARATIONS = Path(__file__).resolve().parent.parent / "tables.py"
LOCK_TIMEOUT_MS = 100
# Making and dropping tables: one process at a time.
_EXCLUSIVE = "SELECT pg_advisory_xact_lock(74616, 5)"


@dataclass(frozen=True)
class Generation:
    """The rows of a read model that one source has folded, or is folding.

    Attributes:
        digest: of its source, and a number after a dot when it is not the first that this source folds.
        position: up to which it is folded.
        shown: whether the view shows it.
    """

    model: ReadModel
    digest: str
    position: int
    shown: bool

    @property
    def current(self) -> bool:
        """Whether the source of this release folds it."""
        return self.digest.partition(".")[0] == source_digest(self.model)

    @property
    def table(self) -> str:
        """The table that holds it: `<name>_<8 hex digits>`, with the number if there is one."""
        source, _, number = self.digest.partition(".")
        return f"{self.model.NAME}_{source[:8]}{'_' if number else ''}{number}"

    @property
    def key(self) -> tuple[str, str]:
        """What names it in `projection_cursor`."""
        return self.model.NAME, self.digest


def source_digest(model: ReadModel) -> str:
    """Hex SHA-256 over all that the rows depend on: the SQL, the steps that bring bodies up to date, and the declaration of the table."""
    parts = [events_of(model.KINDS), model.SQL, model.SHOWN, _declarations()[model.VIEW]]
    parts += [f"{kind} {upcast.CLASSES[kind].schema_version}" for kind in model.KINDS]
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


@cache
def _declarations() -> Mapping[str, str]:
    # Read rather than imported: the import takes a second, which every command would wait for.
    found: dict[str, str] = {}
    for node in ast.parse(DECLARATIONS.read_text(encoding="utf-8")).body:
        names = [
            line.value.value
            for line in getattr(node, "body", [])
            if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__tablename__" and isinstance(line.value, ast.Constant)
        ]
        found |= {str(name): ast.unparse(node) for name in names}
    return found


def found(conn: Connection, models: Iterable[ReadModel], *, lock: bool = False) -> list[Generation]:
    """All generations of the read models, by name and digest.

    Args:
        models: to look for.
        lock: keep their cursors, and so their rows, as they are until the transaction ends.
    """
    named = {model.NAME: model for model in models}
    rows = conn.execute(
        "SELECT name, source_digest, position, shown FROM projection_cursor WHERE name = ANY (%s) ORDER BY name, source_digest"
        + (" FOR UPDATE" if lock else ""),
        (list(named),),
    ).fetchall()
    return [Generation(named[name], digest, position, shown) for name, digest, position, shown in rows]


def locked(conn: Connection, wanted: Sequence[Generation]) -> list[Generation]:
    """Those of the generations that are still there, as they are now, kept until the transaction ends."""
    rows = conn.execute(
        "SELECT name, source_digest, position, shown FROM projection_cursor JOIN unnest(%s::text[], %s::text[]) AS w (name, source_digest)"
        " USING (name, source_digest) ORDER BY name, source_digest FOR UPDATE OF projection_cursor",
        _keys(wanted),
    ).fetchall()
    known = {generation.key: generation for generation in wanted}
    return [replace(known[name, digest], position=position, shown=shown) for name, digest, position, shown in rows]


def begin(conn: Connection, models: Sequence[ReadModel], *, again: bool) -> list[Generation]:
    """Generations of this release's source that are not shown yet, to be folded: those under way, else new empty ones.

    Args:
        models: to fold.
        again: also those whose view shows a generation of this source already; without it they are left out.
    """
    conn.execute(_EXCLUSIVE)
    there = [generation for generation in found(conn, models) if generation.current]
    begun = []
    for model in models:
        own = [generation for generation in there if generation.model is model]
        under_way = [generation for generation in own if not generation.shown]
        if again or len(own) == len(under_way):
            begun.append(under_way[0] if under_way else _made(conn, model, shown=False))
    return begun


def make_missing(conn: Connection, models: Iterable[ReadModel]) -> None:
    """Give every read model that has no view yet an empty one, so that a fresh database can be read."""
    conn.execute(_EXCLUSIVE)
    for model in models:
        if not _columns(conn, model.VIEW):
            made = _made(conn, model, shown=True)
            index(conn, [made])
            _point(conn, made)


def drop_all(conn: Connection, models: Iterable[ReadModel]) -> None:
    """Drop every view and every generation; nothing in them is original."""
    models = list(models)
    conn.execute(_EXCLUSIVE)
    for model in models:
        conn.execute(f"DROP VIEW IF EXISTS {model.VIEW}")
    if conn.execute("SELECT to_regclass('projection_cursor')").fetchone() != (None,):
        conn.execute("DELETE FROM projection_cursor WHERE name = ANY (%s)", ([model.NAME for model in models],))
    for table in _tables(conn, models):
        conn.execute(f"DROP TABLE {table}")


def index(conn: Connection, folded: Sequence[Generation]) -> None:
    """Make the indexes of generations that are folded for the most part: one by one, every row would cost more than half as much again."""
    conn.execute(_EXCLUSIVE)
    there = {generation.key for generation in found(conn, [generation.model for generation in folded])}
    for generation in folded:
        if generation.key in there:
            for statement in _ddl(generation)[1:]:
                conn.execute(statement)


def _made(conn: Connection, model: ReadModel, *, shown: bool) -> Generation:
    """A new generation with an empty table, in the caller's transaction, which holds the exclusive lock."""
    taken = _tables(conn, [model])
    source = source_digest(model)
    generation = Generation(model, source, 0, shown)
    number = 1
    while generation.table in taken:
        number += 1
        generation = replace(generation, digest=f"{source}.{number}")
    conn.execute(_ddl(generation)[0])
    conn.execute("INSERT INTO projection_cursor (name, source_digest, position, shown) VALUES (%s, %s, 0, %s)", (*generation.key, shown))
    return generation


def _ddl(generation: Generation) -> list[str]:
    """The statements that make a generation's table, and then each of its indexes that is not there yet."""
    # The declarations take a second to import, and only a new table needs them.
    from sqlalchemy import MetaData
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.schema import CreateIndex, CreateTable
    from sqlalchemy.sql.elements import quoted_name

    from ledger.tables import METADATA

    table = METADATA.tables[generation.model.VIEW].to_metadata(MetaData(), name=generation.table)
    for made in table.indexes:
        made.name = quoted_name(f"{generation.table}_{'_'.join(column.name for column in made.columns)}", None)
    statements: list[CreateTable | CreateIndex] = [CreateTable(table), *(CreateIndex(made, if_not_exists=True) for made in table.indexes)]
    return [str(statement.compile(dialect=postgresql.dialect())) for statement in statements]  # type: ignore[no-untyped-call]


def advance(conn: Connection, held: Sequence[Generation], goal: int, batch: int) -> list[Generation]:
    """The generations after one more range: those furthest behind, folded up to the next one, to `goal`, or by `batch` positions.

    Args:
        held: generations whose cursors the caller's transaction has locked.
        goal: position to reach.
        batch: most positions of a range.
    Raises:
        UnknownEventKind: the range holds an event of a later release.
    """
    low = min(generation.position for generation in held)
    high = min([low + batch, goal, *(generation.position for generation in held if generation.position > low)])
    if high <= low:
        return list(held)
    behind = [generation for generation in held if generation.position == low]
    # The events of a range are read several times, so they should stay in memory.
    conn.execute("SET LOCAL work_mem = '64MB'")
    # Plans are made for each range: one that fits a few events is wrong by orders of magnitude for many.
    newer = conn.execute(fold_statement({g.table: g.model for g in behind}), {"low": low, "high": high}, prepare=False).fetchone()
    if newer is not None:
        raise upcast.newer(*newer)
    conn.execute(
        "UPDATE projection_cursor AS c SET position = %s FROM unnest(%s::text[], %s::text[]) AS w (name, source_digest)"
        " WHERE c.name = w.name AND c.source_digest = w.source_digest",
        (high, *_keys(behind)),
    )
    return [replace(generation, position=high) if generation.position == low else generation for generation in held]


def show(conn: Connection, building: Sequence[Generation], goal: int, batch: int) -> None:
    """Fold what is left and let every view show its new generation; the old ones lose their cursors.

    All in the caller's transaction, so readers see all of it or nothing. The views are locked last and for no longer than it takes to
    replace them.

    Raises:
        LockNotAvailable: a reader did not let go of a view in time; nothing has changed once the caller has rolled back.
    """
    everyone = found(conn, [generation.model for generation in building], lock=True)
    wanted = {generation.key for generation in building}
    new = [generation for generation in everyone if generation.key in wanted and not generation.shown]
    if not new:
        return
    goal = max([goal, *(generation.position for generation in everyone)])
    while min(generation.position for generation in new) < goal:
        new = advance(conn, new, goal, batch)
    conn.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
    # What is read first is locked first: a reader that waits then holds no view that is locked later, and no circle closes.
    order = list(MODELS)
    for generation in sorted(new, key=lambda g: order.index(g.model.NAME), reverse=True):
        _point(conn, generation)
    keys = _keys(new)
    conn.execute("DELETE FROM projection_cursor WHERE name = ANY (%s) AND NOT source_digest = ANY (%s)", keys)
    conn.execute("UPDATE projection_cursor SET shown = true WHERE name = ANY (%s)", keys[:1])


def leftovers(conn: Connection, models: Sequence[ReadModel]) -> list[str]:
    """Tables of generations that are over: no cursor names them."""
    kept = {generation.table for generation in found(conn, models)}
    return [table for table in _tables(conn, models) if table not in kept]


def drop_leftover(conn: Connection, models: Sequence[ReadModel], table: str) -> bool:
    """Whether the table of a generation that is over has been dropped, in a transaction of its own; False while a reader holds it."""
    try:
        with conn.transaction():
            conn.execute(_EXCLUSIVE)
            if table in leftovers(conn, models):
                conn.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                conn.execute(f"DROP TABLE {table}")
    except LockNotAvailable:
        return False
    return True


def _point(conn: Connection, generation: Generation) -> None:
    """Let the view show the generation; readers' grants stay."""
    view, query = generation.model.VIEW, f"SELECT * FROM {generation.table} WHERE {generation.model.SHOWN}"
    before = _columns(conn, view)
    if before == _columns(conn, generation.table):
        conn.execute(f"CREATE OR REPLACE VIEW {view} AS {query}")
        return
    grants: list[tuple[str, str]] = []
    if before:
        grants = conn.execute(
            "SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END, privilege_type"
            " FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = %s::regclass AND grantee <> relowner",
            (view,),
        ).fetchall()
        conn.execute(f"DROP VIEW {view}")
    conn.execute(f"CREATE VIEW {view} AS {query}")
    for grantee, privilege in grants:
        conn.execute(f"GRANT {privilege} ON {view} TO {grantee}")


def _columns(conn: Connection, relation: str) -> list[tuple[Any, ...]]:
    """Names and forms of a table's or view's columns, none when it does not exist."""
    return conn.execute(
        "SELECT attname, format_type(atttypid, atttypmod), attcollation FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (relation,),
    ).fetchall()


def _tables(conn: Connection, models: Iterable[ReadModel]) -> list[str]:
    pattern = f"^({'|'.join(model.NAME for model in models)})_[0-9a-f]{{8}}(_[0-9]+)?$"
    rows = conn.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname ~ %s ORDER BY 1",
        (pattern,),
    ).fetchall()
    return [str(name) for (name,) in rows]


def _keys(generations: Sequence[Generation]) -> tuple[list[str], list[str]]:
    return [generation.model.NAME for generation in generations], [generation.digest for generation in generations]
