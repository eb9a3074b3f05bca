"""Roles: each may do what it is for, and is refused everything else by privilege, not by a trigger alone."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from ledger import lineage, projections, queries
from ledger.errors import BlobError, RoleError
from ledger.events import FindingRaised, ReviewDecided, RunConfigured
from ledger.ledger import LedgerHandle, open_ledger
from ledger.migrate import downgrade, upgrade
from ledger.roles import ROLES, Login, Made, make_roles, running_as_owner
from ledger.rollout_reading import read_rollouts
from ledger.store import SMALL
from ledger.tables import APPEND_ONLY, READ_MODELS
from tests.conftest import Cluster

PASSWORD = "correct horse"
DENIED = psycopg.errors.InsufficientPrivilege


class Deployment:
    """A ledger with one history, its roles, and a login of each role."""

    def __init__(self, cluster: Cluster, url: str, prefix: str, sealed: Callable[[LedgerHandle], None]) -> None:
        self.cluster, self.url, self.prefix = cluster, url, prefix
        with open_ledger(url, project="test", actor_id="tester") as ledger:
            sealed(ledger)
            ledger.barrier()
            projections.catch_up(ledger)
        self.made = self.roles()

    def roles(self, **options: Any) -> Made:
        """Make the roles, or make them again."""
        logins = [Login(f"{self.prefix}_{role}_login", role, PASSWORD) for role in ROLES]
        with psycopg.connect(self.url) as conn:
            return make_roles(conn, prefix=self.prefix, logins=logins, **options)

    def url_of(self, role: str, prefix: str | None = None) -> str:
        """The URL with which the login of a role connects."""
        host = self.url.rpartition("@")[2]
        return f"postgresql://{prefix or self.prefix}_{role}_login:{PASSWORD.replace(' ', '%20')}@{host}"

    def connected(self, role: str) -> "psycopg.Connection[Any]":
        """A plain connection of a role's login."""
        return psycopg.connect(self.url_of(role), autocommit=True)

    def opened(self, role: str) -> LedgerHandle:
        """The ledger as a role's login has it."""
        return open_ledger(self.url_of(role), project="test", actor_id="tester")


def drop_roles(url: str, prefix: str) -> None:
    """Remove a prefix's roles from the cluster, once its database is gone."""
    with psycopg.connect(url, autocommit=True) as conn:
        for role in ROLES:
            for name in (f"{prefix}_{role}_login", f"{prefix}_{role}"):
                conn.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))


@pytest.fixture(scope="module", params=["18", "15"])
def deployment(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """Roles on each supported end of the range of servers; tests only add to it."""
    from tests.ledger.conftest import write_whole

    cluster: Cluster = request.getfixturevalue("cluster" if request.param == "18" else "cluster_15")
    url = cluster.migrated_database()
    yield Deployment(cluster, url, "tally", write_whole)
    cluster.drop(url)
    drop_roles(cluster.server.url("postgres"), "tally")


def refused(deployment: Deployment, role: str, statements: list[str]) -> list[str]:
    """Those of the statements that were not refused by privilege."""
    passed = []
    with deployment.connected(role) as conn:
        for statement in statements:
            try:
                conn.execute(statement)  # type: ignore[arg-type]
            except DENIED:
                continue
            except psycopg.Error as error:
                passed.append(f"{statement}: {error}")
            else:
                passed.append(statement)
    return passed


LOG = (*APPEND_ONLY, "token_live", "event_p0", "event_order_p0", "blob_chunk_p0", "token_pack_p0")
CHANGES = [f"{verb} {table}" for table in LOG for verb in ("DELETE FROM", "TRUNCATE")] + [
    "UPDATE event SET kind = 'x'", "UPDATE event_p0 SET body = ''", "UPDATE event_key SET id = 1", "UPDATE event_order SET id = 1",
    "UPDATE order_step SET high = 1", "UPDATE edge SET weight = 1", "UPDATE blob SET size = 1", "UPDATE blob_chunk SET data = ''",
    "UPDATE blob_chunk_p0 SET data = ''", "UPDATE blob_use SET id = 1", "UPDATE node SET name = 'x'", "UPDATE ledger SET ledger_id = 'x'",
    "UPDATE tree_tile SET hashes = ''", "UPDATE checkpoint SET note = ''", "UPDATE token_live SET shared = 1",
    "UPDATE token_pack SET calls = 1", "UPDATE subject SET key = NULL, salt = NULL, destroyed_at = now()", "DELETE FROM subject",
    "TRUNCATE subject", "UPDATE source_log SET note = ''", "UPDATE source_position SET id = 1", "UPDATE stream_head SET node_id = 1", "DELETE FROM stream_head", "TRUNCATE stream_head", "DELETE FROM actor",
    "UPDATE alembic_version SET version_num = 'x'", "ALTER TABLE event DISABLE TRIGGER ALL", "DROP TABLE event CASCADE",
    "DROP TRIGGER append_only ON event", "SET session_replication_role = replica",
    "SELECT destroy_subject('project:test', gen_random_uuid())", "CREATE ROLE other", "CREATE SCHEMA other",
    "CREATE FUNCTION cardinality(bigint[]) RETURNS int LANGUAGE sql AS 'SELECT 0'", "DO $$ BEGIN END $$",
]  # fmt: skip
WRITES = [
    "INSERT INTO event DEFAULT VALUES", "COPY event FROM STDIN", "COPY event_p0 FROM STDIN", "COPY edge FROM STDIN",
    "INSERT INTO blob_use VALUES (1, 1)", "INSERT INTO node VALUES (1, 'p', 'n')", "UPDATE stream_head SET version = 1",
    "INSERT INTO token_live DEFAULT VALUES", "SELECT nextval('event_id_seq')", "SELECT setval('event_id_seq', 1)",
    "SELECT lock_heads('l', 'p', '{}', '{}')", "SELECT begin_bulk('l', 'p', '{}', '{}', '{}', '{}', '{}', '{}')",
    "SELECT pack_tokens(1, 's', '{}', '', '')", "INSERT INTO checkpoint VALUES ('o', 1, '', '')", "INSERT INTO tree_tile VALUES (0, 0, '')",
    "CREATE TABLE mine (x int)", *(f"DELETE FROM {name}" for name in READ_MODELS), "UPDATE projection_cursor SET position = 0",
    "INSERT INTO consumer_cursor VALUES ('c', 1)",
    "SELECT take_pack(1, 's', 1, '')", "SELECT unstage_tokens(1, '{}')", "SELECT destroy_foreign_subjects('{}')",
    "INSERT INTO source_position VALUES ('l', 1, 1)", "INSERT INTO source_log VALUES ('l', 1, 'o', 'k', '', '')",
]  # fmt: skip
ORDERED_BY_FUNCTION = [
    "INSERT INTO event_order VALUES (99, 99)",
    "COPY event_order FROM STDIN",
    "COPY order_step FROM STDIN",
    "COPY token_pack FROM STDIN",
]
UNSEEN = [f"SELECT * FROM {table} LIMIT 1" for table in ("event", "event_p0", "event_key", "event_order", "tree_tile", "recorded_event")]
SECRETS_OF_ALL = ["SELECT rolpassword FROM pg_authid", "COPY (SELECT 1) TO PROGRAM 'true'", "SELECT pg_read_file('/etc/hostname')"]


@pytest.mark.parametrize("role", ["writer", "reader", "reviewer", "auditor"])
def test_no_role_but_the_owner_changes_the_log(deployment: Deployment, role: str) -> None:
    assert refused(deployment, role, CHANGES + ORDERED_BY_FUNCTION + SECRETS_OF_ALL) == []


@pytest.mark.parametrize("role", ["reader", "reviewer", "auditor"])
def test_only_the_writer_writes_the_log_and_read_models(deployment: Deployment, role: str) -> None:
    assert refused(deployment, role, WRITES) == []
    arguments = ", ".join(["NULL"] * 39)
    passes = ["append_events"] if role == "reviewer" else ["append_events", "append_reviews"]
    assert refused(deployment, role, [f"SELECT {name}({arguments})" for name in passes]) == []


@pytest.mark.parametrize("role", ["reader", "reviewer"])
def test_readers_see_events_through_the_ordered_view_alone(deployment: Deployment, role: str) -> None:
    assert refused(deployment, role, UNSEEN) == []
    with deployment.connected(role) as conn:
        assert conn.execute("SELECT count(*) > 10 FROM ordered_event").fetchone() == (True,)


def test_the_auditor_reads_everything(deployment: Deployment) -> None:
    with deployment.connected("auditor") as conn:
        for (table,) in conn.execute("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')"
                                     " AND NOT relispartition").fetchall():  # fmt: skip
            conn.execute(sql.SQL("SELECT * FROM {} LIMIT 1").format(sql.Identifier(table)))


def run_of(ident: str, ref: Any) -> RunConfigured:
    return RunConfigured(run_id=ident, experiment_id="e", name="n", config=ref, config_digest="0" * 64, root_seed=1)


def test_the_writer_appends_orders_folds_and_reads(deployment: Deployment) -> None:
    with deployment.opened("writer") as ledger:
        assert (ledger.rights.appends, ledger.rights.folds) == (True, True)
        blob = ledger.pending("text of the writer", subject_id="person:new")
        receipt = ledger.append([ledger.new(run_of("small", blob.ref), blob)])
        bulk = [ledger.new(run_of(f"bulk{n}", blob.ref), blob) for n in range(SMALL + 1)]
        assert len(ledger.append(bulk).events) == SMALL + 1
        assert len(ledger.wait_ordered(receipt)) == 1
        assert queries.fresh(ledger) == ledger.barrier()
        projections.rebuild(ledger)
        assert len(ledger.read_stream("run-small")) == 1
        assert lineage.trace(ledger, "reward-a").intact


def test_the_writer_makes_read_models_that_readers_see(deployment: Deployment) -> None:
    with deployment.connected("writer") as conn:
        conn.execute("CREATE TABLE generation_7 (x int)")
        conn.execute("CREATE VIEW shown AS SELECT * FROM generation_7")
    try:
        for role in ("reader", "reviewer", "auditor"):
            with deployment.connected(role) as conn:
                assert conn.execute("SELECT count(*) FROM shown").fetchone() == (0,)
                with pytest.raises(DENIED):
                    conn.execute("DELETE FROM generation_7")
    finally:
        with deployment.connected("writer") as conn:
            conn.execute("DROP TABLE generation_7 CASCADE")


@pytest.mark.parametrize("role", ["reader", "reviewer", "auditor"])
def test_readers_read_traces_and_text(deployment: Deployment, role: str) -> None:
    with deployment.opened(role) as ledger:
        assert ledger.rights.appends is False
        queries.fresh(ledger)
        assert queries.rollouts(ledger).total == 1
        assert queries.disagreements(ledger).total == 1
        found = lineage.trace(ledger, "reward-a")
        assert found.intact
        assert found.calls[0].request["messages"][0]["content"].startswith("mail")
        with pytest.raises(RoleError, match="docs/guards.md|a reviewer appends"):
            ledger.append(
                [ledger.new(FindingRaised(finding_id="f", check="c", subject="s", severity="info", measured=None, evidence_event_ids=[]))]
            )


def review_of(ledger: LedgerHandle, ident: str) -> Any:
    reason = ledger.pending("the mail went out", subject_id="actor:person9")
    body = ReviewDecided(
        review_id=ident, rollout_id="rollout-a", verdict_ids=["verdict-a"], reviewer_id="person9", decision="passed",
        right_verdict_id="verdict-a", reason=reason.ref,
    )  # fmt: skip
    return ledger.new(body, reason)


def test_a_reviewer_appends_reviews_and_nothing_else(deployment: Deployment) -> None:
    with deployment.opened("reviewer") as ledger:
        assert ledger.append([review_of(ledger, "review-z")]).events[0].created is True
        blob = ledger.pending("x")
        with pytest.raises(
            RoleError, match=r"a reviewer appends \{RunConfigured\}; allowed: \{ReviewRequested,ReviewClaimed,ReviewDecided\}"
        ):
            ledger.append([ledger.new(run_of("not-mine", blob.ref), blob)])
        with pytest.raises(RoleError, match="RunConfigured"):
            ledger.append([review_of(ledger, "review-y"), ledger.new(run_of("not-mine", blob.ref), blob)])
        with pytest.raises(RoleError, match=f"up to {SMALL} events"):
            ledger.append([review_of(ledger, f"review-{n}") for n in range(SMALL + 1)])
    with deployment.opened("writer") as ledger:
        assert [len(ledger.read_stream(name)) for name in ("review-review-z", "review-review-y", "run-not-mine")] == [1, 0, 0]


@pytest.mark.parametrize("role", ["reader", "reviewer", "auditor", "writer"])
def test_whoever_reads_text_reads_the_rollouts_that_training_reads(deployment: Deployment, role: str) -> None:
    with deployment.opened(role) as handle:
        line = queries.rollouts(handle).lines[0]
        found = read_rollouts(handle, [line.rollout_id])
    assert found.lines == {line.rollout_id: line}
    assert {event.kind for event in found.events[line.rollout_id]} >= {"RolloutStarted", "ModelCalled", "RolloutEnded"}
    assert len(found.tokens.calls) == 2
    assert found.rewards[line.rollout_id].reward_id == line.reward_id


def test_readers_without_text_read_public_content_alone(deployment: Deployment) -> None:
    deployment.roles(text_for_readers=False)
    try:
        with deployment.opened("writer") as ledger:
            public, private = ledger.pending("source", subject_id="public"), ledger.pending("said in confidence")
            ledger.append([ledger.new(run_of("p1", public.ref), public), ledger.new(run_of("p2", private.ref), private)])
        with deployment.opened("reader") as ledger:
            assert ledger.blob(public.ref.blob_id) == b"source"
            with pytest.raises(BlobError, match="closed to this role"):
                ledger.blob(private.ref.blob_id)
    finally:
        deployment.roles()


def grants(url: str) -> Any:
    with psycopg.connect(url) as conn:
        return conn.execute(
            "SELECT c.relname, c.relowner::regrole::text, c.relacl::text, (SELECT array_agg(a.attacl::text ORDER BY a.attnum) FROM"
            " pg_attribute AS a WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL) FROM pg_class AS c"
            " WHERE c.relnamespace = 'public'::regnamespace UNION ALL"
            " SELECT p.oid::regprocedure::text, p.proowner::regrole::text, p.proacl::text, p.proconfig FROM pg_proc AS p"
            " WHERE p.pronamespace = 'public'::regnamespace ORDER BY 1"
        ).fetchall()


def test_a_second_run_changes_nothing(deployment: Deployment) -> None:
    assert deployment.made.new == tuple(f"tally_{role}" for role in ROLES) or deployment.made.new == ()
    deployment.roles()
    before = grants(deployment.url)
    assert deployment.roles().new == ()
    assert grants(deployment.url) == before


def test_the_owner_and_superusers_are_told_apart_from_those_who_may_not(deployment: Deployment) -> None:
    told = {}
    for role in ROLES:
        with deployment.connected(role) as conn:
            told[role] = running_as_owner(conn)
    assert told == {"owner": "tally_owner owns the ledger's tables", "writer": None, "reader": None, "reviewer": None, "auditor": None}
    with psycopg.connect(deployment.url) as conn:
        assert "is a superuser" in str(running_as_owner(conn))
        conn.execute("SET ROLE tally_writer")
        assert "acts for" in str(running_as_owner(conn))


def test_a_temporary_table_does_not_stand_in_for_one_of_the_owner(deployment: Deployment) -> None:
    with deployment.connected("writer") as conn:
        conn.execute(
            "CREATE TEMP TABLE order_step (step bigint, high bigint, position bigint, ordered int, holes bigint[], hole_bounds bigint[], dead bigint)"
        )
        conn.execute("INSERT INTO pg_temp.order_step VALUES (1, 1000000, 1000000, 0, '{}', '{}', 0)")
        row = conn.execute("SELECT new_position FROM order_events()").fetchone()
        assert row is not None and row[0] < 1000000


def test_sessions_have_time_limits(deployment: Deployment) -> None:
    with deployment.connected("reader") as conn:
        assert conn.execute("SHOW statement_timeout").fetchone() == ("1min",)
        assert conn.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("10min",)


def test_another_ledger_of_the_cluster_has_roles_of_its_own(deployment: Deployment, sealed: Any) -> None:
    cluster = deployment.cluster
    url = cluster.migrated_database()
    try:
        other = Deployment(cluster, url, "second", sealed)
        assert other.made.new == tuple(f"second_{role}" for role in ROLES)
        with other.opened("writer") as ledger:
            assert ledger.barrier() > 0
        stranger = deployment.url_of("auditor").rpartition("/")[0] + "/" + url.rpartition("/")[2]
        with psycopg.connect(stranger) as conn, pytest.raises(DENIED):
            conn.execute("SELECT * FROM event")
        with deployment.opened("writer") as ledger:
            assert ledger.barrier() > 0
    finally:
        cluster.drop(url)
        drop_roles(cluster.server.url("postgres"), "second")


@pytest.mark.parametrize("prefix", ["", "Tally", "pg_x", "a-b", "x" * 50, 'a"; DROP ROLE x; --'])
def test_names_that_are_no_plain_words_are_refused(ledger: LedgerHandle, prefix: str) -> None:
    with ledger.connection() as conn, pytest.raises(RoleError, match="allowed: up to 49"):
        make_roles(conn, prefix=prefix)


def test_a_login_needs_a_role_and_a_password() -> None:
    with pytest.raises(RoleError, match="allowed: owner, writer"):
        Login("a", "king", "x")
    with pytest.raises(RoleError, match="empty password"):
        Login("a", "writer", "")


def test_no_superuser_is_needed_to_make_roles_and_to_migrate_again(each_cluster: Cluster, sealed: Any) -> None:
    admin = each_cluster.server.url("postgres")
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("CREATE ROLE third_admin LOGIN CREATEROLE CREATEDB PASSWORD 'pw'")
        conn.execute("CREATE DATABASE third_ledger OWNER third_admin")
    host = each_cluster.server.url("third_ledger")
    url = f"postgresql://third_admin:pw@{host.rpartition('@')[2]}"
    try:
        upgrade(url)
        other = Deployment(each_cluster, url, "third", sealed)
        assert refused(other, "writer", ["DELETE FROM event", "UPDATE blob SET size = 1", "TRUNCATE edge"]) == []
        with other.opened("writer") as ledger:
            assert ledger.barrier() > 0
        downgrade_and_up(url)
        assert other.roles().new == ()
    finally:
        each_cluster.drop(host)
        drop_roles(admin, "third")
        with psycopg.connect(admin, autocommit=True) as conn:
            conn.execute("DROP ROLE third_admin")


def downgrade_and_up(url: str) -> None:
    """A migration that replaces a function, as a later release would."""
    downgrade(url, "0002")
    upgrade(url)
