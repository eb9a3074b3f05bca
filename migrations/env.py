"""Alembic's entry: runs migrations on the database of `-x url=...`, of the caller's connection, or of the settings."""

from typing import Any

import sqlalchemy as sa
from alembic import context
from sqlmodel import SQLModel

import ledger.tables  # noqa: F401
from ledger.settings import Settings


def _url() -> str:
    url = context.get_x_argument(as_dictionary=True).get("url") or Settings().database_url
    if url is None:
        raise SystemExit("no database: give `-x url=postgresql://...` or set TALLY_DATABASE_URL")
    return url


def _run(connection: Any) -> None:
    context.configure(connection=connection, target_metadata=SQLModel.metadata, compare_type=True, compare_server_default=False)
    with context.begin_transaction():
        context.run_migrations()


def main() -> None:
    """Run the migrations online; there is no offline mode."""
    given = context.config.attributes.get("connection")
    if given is not None:
        _run(given)
        return
    engine = sa.create_engine(_url().replace("postgresql://", "postgresql+psycopg://", 1), poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        _run(connection)


main()
