"""Migrations: bring a database to this release's schema, and refuse one that is ahead. Writes the database."""

import re
from typing import Any

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from ledger.errors import SchemaMismatch
from ledger.revisions import LOCATION, ahead, head_revision, known_revisions


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(LOCATION).replace("%", "%%"))
    return config


def upgrade(url: str, revision: str = "head", *, partition_width: int | None = None) -> None:
    """Bring the database to `revision`; at most one process does it, the others wait.

    Args:
        url: of the database.
        revision: of this release's migrations.
        partition_width: ids in a partition of a new database; None for 2^24.
    Raises:
        SchemaMismatch: the database is at a revision that this release does not know.
    """
    with _engine(url).connect() as connection:
        connection.execute(sa.text("SELECT pg_advisory_lock(74616, 3)"))
        connection.commit()
        current = MigrationContext.configure(connection).get_current_revision()
        connection.commit()
        known = known_revisions()
        if current is not None and current not in known:
            raise SchemaMismatch(ahead(current))
        if revision not in known and revision != "head":
            raise SchemaMismatch(f"revision {revision} is not known to this release, which knows up to {head_revision()}")
        config = _config()
        config.attributes["connection"] = connection
        config.attributes["partition_width"] = partition_width
        command.upgrade(config, revision)
        connection.commit()
        at_head = MigrationContext.configure(connection).get_current_revision() == head_revision()
        connection.commit()
        if at_head:
            # The read models know the tables and the ledger, which know the migrations.
            from ledger.projections import MODELS, generations

            generations.make_missing(_driver(connection), MODELS.values())
            _driver(connection).commit()


def downgrade(url: str, revision: str) -> None:
    """Take the database back to `revision`, or to `base` for none: for a new database that holds nothing yet."""
    with _engine(url).connect() as connection:
        from ledger.projections import MODELS, generations

        generations.drop_all(_driver(connection), MODELS.values())
        _driver(connection).commit()
        config = _config()
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
        connection.commit()


def differences(url: str) -> list[Any]:
    """What autogenerate would change to make the database fit the tables; empty when they agree."""
    # The tables take seconds to build, and only this comparison needs them.
    from sqlmodel import SQLModel

    import ledger.tables  # noqa: F401

    with _engine(url).connect() as connection:
        options = {"compare_type": True, "include_object": _is_declared}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), SQLModel.metadata))


def _is_declared(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
    # Partitions are made as the log grows, generations of read models whenever their source changes.
    if kind == "table" and reflected and compare_to is None:
        return not re.fullmatch(r".*_(p\d+|[0-9a-f]{8}(_\d+)?)", name or "")
    return not (kind == "table" and item.info.get("read_model"))


def _driver(connection: sa.Connection) -> "psycopg.Connection[Any]":
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def _engine(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=sa.pool.NullPool)
