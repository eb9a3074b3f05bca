"""Database roles of a ledger: who may do what, granted again at every run. Writes roles and grants, never rows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from ledger.errors import RoleError

Connection = psycopg.Connection[Any]
ROLES = ("owner", "writer", "reader", "reviewer", "auditor")
STATEMENT_S = {"owner": 0, "writer": 600, "reader": 60, "reviewer": 60, "auditor": 3600}
"""Seconds that a statement of a login may take by default; 0 for no limit."""
IDLE_S = 600
"""Seconds that a login may leave a transaction open and idle: an append's locks on streams hold back all others to them."""

BY_FUNCTION = ("event_order", "order_step", "token_pack")
"""Filled by functions of the owner alone."""
CLOSED = ("event", "event_key", "event_order", "tree_tile")
"""What readers see through `ordered_event` alone, or have no use for."""
VIEWS = ("ordered_event", "recorded_event")
CURSORS = ("consumer_cursor", "projection_cursor")
OWNER_FUNCTIONS = ("destroy_subject",)
READER_FUNCTIONS = ("order_events",)
REVIEWER_FUNCTIONS = ("append_reviews",)


@dataclass(frozen=True)
class Login:
    """A login to be made: its name, the role it acts as, its password."""

    name: str
    role: str
    password: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise RoleError(f"role {self.role!r}; allowed: {', '.join(ROLES)}")
        if not self.password:
            raise RoleError(f"login {self.name!r} has an empty password")
        _check_name(self.name)


@dataclass(frozen=True)
class Made:
    """What a run did: the roles by kind, which of them are new, the relations and functions granted on, the logins."""

    roles: dict[str, str]
    new: tuple[str, ...]
    relations: int
    functions: int
    logins: tuple[str, ...]


def make_roles(conn: Connection, *, prefix: str = "tally", logins: Sequence[Login] = (), text_for_readers: bool = True) -> Made:
    """What was made and granted, in the caller's transaction; a second run changes nothing.

    All tables and functions go to the role `<prefix>_owner`, read models to `<prefix>_writer`, who makes them. Run it after every
    `tally migrate`, and as a superuser or as one who may create roles and owns the database.

    Args:
        conn: to the ledger's database.
        prefix: of the roles' names; roles belong to the whole cluster, so each ledger on it needs its own.
        logins: made, or given their password again.
        text_for_readers: False closes subjects' keys, and with them all text but public, to readers.
    Raises:
        RoleError: a name is not allowed, or this login may not create roles or give objects away.
    """
    _check_name(prefix)
    names = {role: f"{prefix}_{role}" for role in ROLES}
    try:
        new = tuple(name for name in names.values() if _create(conn, name))
        # Whoever is no superuser gives objects only to roles that it is a member of.
        if not _value(conn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
            _run(conn, "GRANT {owner}, {writer} TO CURRENT_USER", names)
        schema = str(_value(conn, "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'event'::regclass"))
        relations, functions = _give_away(conn, names, schema), _functions(conn, schema)
        _grant_schema(conn, names, schema)
        for table, kind in relations.items():
            _grant_relation(conn, names, table, kind)
        _grant_functions(conn, names, schema, functions)
        _grant_subjects(conn, names, text_for_readers)
        for login in logins:
            _make_login(conn, login, names[login.role])
    except psycopg.errors.InsufficientPrivilege as error:
        raise RoleError(
            f"{error.diag.message_primary}; `tally roles` runs as a superuser, or with CREATEROLE as the owner of database and tables"
        ) from error
    return Made(names, new, len(relations), len(functions), tuple(login.name for login in logins))


def running_as_owner(conn: Connection) -> str | None:
    """Why this login could change the log past its grants: it is a superuser, or acts as the owner of the events; None when it cannot."""
    row = conn.execute(
        "SELECT current_user, r.rolsuper, pg_has_role(current_user, c.relowner, 'USAGE'), s.rolsuper, session_user"
        " FROM pg_roles AS r, pg_class AS c, pg_roles AS s"
        " WHERE r.rolname = current_user AND s.rolname = session_user AND c.oid = to_regclass('event')"
    ).fetchone()
    if row is None:
        return None
    user, superuser, owner, behind, session = row
    if superuser:
        return f"{user} is a superuser"
    if owner:
        return f"{user} owns the ledger's tables"
    return f"{user} acts for {session}, which is a superuser" if behind else None


def _create(conn: Connection, name: str) -> bool:
    if _value(conn, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", name):
        return False
    conn.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
    return True


def _give_away(conn: Connection, names: dict[str, str], schema: str) -> dict[str, str]:
    """Relation to its kind, each owned by whom it should be."""
    _run(conn, "GRANT USAGE, CREATE ON SCHEMA {schema} TO {owner}, {writer}", {**names, "schema": schema})
    rows = conn.execute(
        "SELECT c.relname, c.relkind, c.relowner::regrole::text, c.relispartition FROM pg_class AS c"
        " WHERE c.relnamespace = %s::regnamespace AND (c.relkind IN ('r', 'p', 'v', 'm') OR c.relkind = 'S' AND NOT EXISTS ("
        "   SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')))"
        " ORDER BY c.relkind = 'v', c.relname",
        (schema,),
    ).fetchall()
    kinds: dict[str, str] = {}
    for name, relkind, owner, partition in rows:
        kind = "sequence" if relkind == "S" else "partition" if partition else _kind(name)
        wanted = names["writer" if kind == "read model" else "owner"]
        if owner != wanted:
            what = {"S": "SEQUENCE", "v": "VIEW", "m": "MATERIALIZED VIEW"}.get(relkind, "TABLE")
            conn.execute(sql.SQL(f"ALTER {what} {{}} OWNER TO {{}}").format(sql.Identifier(schema, name), sql.Identifier(wanted)))
        if kind != "partition":
            kinds[name] = kind
    return kinds


def _kind(name: str) -> str:
    """What a table or view is: `log`, which is only ever added to; `kept`, for what else migrations made; `read model`, for all others."""
    # The tables take seconds to build, and only this command needs them.
    from sqlmodel import SQLModel

    from ledger.tables import APPEND_ONLY, READ_MODELS

    if name in (*APPEND_ONLY, "token_live"):
        return "log"
    declared = name in SQLModel.metadata.tables and name not in READ_MODELS
    return "kept" if declared or name in (*VIEWS, "alembic_version") else "read model"


def _grant_schema(conn: Connection, names: dict[str, str], schema: str) -> None:
    given = {**names, "schema": schema, "database": str(_value(conn, "SELECT current_database()"))}
    for statement in (
        "GRANT CONNECT ON DATABASE {database} TO {owner}, {writer}, {reader}, {reviewer}, {auditor}",
        "REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC",
        "GRANT USAGE ON SCHEMA {schema} TO {reader}, {reviewer}, {auditor}",
        # The writer may make read models but no functions: one with a better fitting signature would be run by the owner's functions.
        "REVOKE USAGE ON LANGUAGE sql, plpgsql FROM PUBLIC",
        "GRANT USAGE ON LANGUAGE sql, plpgsql TO {owner}",
        "ALTER DEFAULT PRIVILEGES FOR ROLE {writer} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {reader}, {reviewer}, {auditor}",
        "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC",
        "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {auditor}",
    ):
        _run(conn, statement, given)


def _grant_relation(conn: Connection, names: dict[str, str], table: str, kind: str) -> None:
    given = {**names, "table": table}
    statements = ["REVOKE ALL ON {table} FROM PUBLIC"]
    if kind == "sequence":
        statements += ["GRANT USAGE, SELECT ON {table} TO {writer}", "GRANT SELECT ON {table} TO {auditor}"]
    else:
        statements += ["GRANT SELECT ON {table} TO {auditor}"]
        if table not in ("subject", "recorded_event") and table not in CLOSED:
            statements += ["GRANT SELECT ON {table} TO {reader}, {reviewer}"]
        if kind != "read model":
            statements += ["GRANT SELECT ON {table} TO {writer}"]
        if kind == "log" and table not in BY_FUNCTION:
            statements += ["GRANT INSERT ON {table} TO {writer}"]
        if table in CURSORS:
            statements += ["GRANT INSERT, UPDATE, DELETE ON {table} TO {writer}"]
        if table == "stream_head":
            statements += ["GRANT INSERT, UPDATE (version) ON {table} TO {writer}"]
        if table == "actor":
            statements += ["GRANT INSERT, UPDATE (name) ON {table} TO {writer}, {reviewer}"]
    for statement in statements:
        _run(conn, statement, given)


def _grant_subjects(conn: Connection, names: dict[str, str], text_for_readers: bool) -> None:
    _run(conn, "GRANT INSERT (subject_id, salt, key) ON subject TO {writer}, {reviewer}", names)
    _run(conn, "GRANT SELECT ON subject TO {reviewer}", names)
    _run(conn, "GRANT SELECT ON subject TO {reader}" if text_for_readers else "REVOKE SELECT ON subject FROM {reader}", names)


def _functions(conn: Connection, schema: str) -> list[tuple[str, str, str, bool]]:
    """Name, signature, volatility and whether it runs as its owner, of all functions of the schema that no extension brought."""
    rows = conn.execute(
        "SELECT p.proname, p.oid::regprocedure::text, p.provolatile, p.prosecdef FROM pg_proc AS p"
        " WHERE p.pronamespace = %s::regnamespace AND NOT EXISTS ("
        "   SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e') ORDER BY 2",
        (schema,),
    ).fetchall()
    return [(str(row[0]), str(row[1]), str(row[2]), bool(row[3])) for row in rows]


def _grant_functions(conn: Connection, names: dict[str, str], schema: str, functions: Sequence[tuple[str, str, str, bool]]) -> None:
    for name, signature, volatility, as_owner in functions:
        # The catalog wrote the signature, quoted where it has to be.
        function = sql.SQL(signature)
        _run(conn, "ALTER FUNCTION {function} OWNER TO {owner}", names, function=function)
        _run(conn, "REVOKE ALL ON FUNCTION {function} FROM PUBLIC", names, function=function)
        if as_owner:
            # A temporary table of the caller must not stand in for one of the owner's.
            _run(conn, "ALTER FUNCTION {function} SET search_path = {schema}, pg_temp", {**names, "schema": schema}, function=function)
        if name in OWNER_FUNCTIONS:
            continue
        if volatility != "v" or name in READER_FUNCTIONS:
            _run(conn, "GRANT EXECUTE ON FUNCTION {function} TO {reader}, {reviewer}, {auditor}", names, function=function)
        if name in REVIEWER_FUNCTIONS:
            _run(conn, "GRANT EXECUTE ON FUNCTION {function} TO {reviewer}", names, function=function)
        _run(conn, "GRANT EXECUTE ON FUNCTION {function} TO {writer}", names, function=function)


def _make_login(conn: Connection, login: Login, role: str) -> None:
    if not _value(conn, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", login.name):
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(login.name)))
    # Encrypted here: the server's log may show the statement.
    password = conn.pgconn.encrypt_password(login.password.encode(), login.name.encode(), b"scram-sha-256").decode()
    given = {"login": login.name, "role": role, "database": str(_value(conn, "SELECT current_database()"))}
    _run(conn, "ALTER ROLE {login} LOGIN PASSWORD {password}", given, password=sql.Literal(password))
    _run(conn, "GRANT {role} TO {login}", given)
    # What the login makes then belongs to the role, so that other logins of the same role can replace it.
    _run(conn, "ALTER ROLE {login} IN DATABASE {database} SET role = {role}", given)
    for setting, seconds in (("statement_timeout", STATEMENT_S[login.role]), ("idle_in_transaction_session_timeout", IDLE_S)):
        _run(conn, f"ALTER ROLE {{login}} IN DATABASE {{database}} SET {setting} = {seconds * 1000}", given)


def _run(conn: Connection, statement: str, names: dict[str, str], **parts: sql.Composable) -> None:
    given: dict[str, sql.Composable] = {name: sql.Identifier(value) for name, value in names.items()}
    conn.execute(sql.SQL(statement).format(**given, **parts))


def _value(conn: Connection, query: str, *given: Any) -> Any:
    row = conn.execute(query, given).fetchone()
    return None if row is None else row[0]


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,48}", name) or name.startswith("pg_"):
        raise RoleError(f"name {name!r}; allowed: up to 49 lower-case letters, digits and underscores, a letter first, not pg_")
