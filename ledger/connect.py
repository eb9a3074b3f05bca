"""Opens the ledger that the settings name: a foreign database as it is, the embedded server started and migrated when it has to be."""

from sqlalchemy.exc import OperationalError

from ledger import embedded
from ledger.errors import LedgerUnavailable, SchemaMismatch
from ledger.ledger import LedgerHandle, open_ledger
from ledger.migrate import upgrade
from ledger.settings import Settings

DATABASE = "tallystick"


def connect(settings: Settings | None = None, *, pool_size: int = 8) -> LedgerHandle:
    """The open ledger of this deployment; closed by the caller, or by a `with`.

    The embedded database belongs to this installation alone, so it is migrated here; a foreign one only by `tally migrate`.

    Args:
        settings: of the deployment; None reads the environment.
        pool_size: most connections at a time.
    Raises:
        LedgerUnavailable: the database cannot be reached.
        SchemaMismatch: a foreign database is behind this release, or any database is ahead of it; the message says what to do.
        EmbeddedPostgresError: the embedded server cannot be started.
    """
    asked = Settings() if settings is None else settings
    url = database_url(asked)
    try:
        return open_ledger(url, project=asked.project, actor_id=asked.actor, pool_size=pool_size)
    except SchemaMismatch:
        if asked.database_url is not None:
            raise
    migrate(asked)
    return open_ledger(url, project=asked.project, actor_id=asked.actor, pool_size=pool_size)


def migrate(settings: Settings) -> None:
    """Bring the database of the settings, the embedded or a foreign one, to this release's schema.

    Raises:
        LedgerUnavailable: the database cannot be reached.
        SchemaMismatch: the database is ahead of this release.
    """
    url = database_url(settings)
    try:
        upgrade(url)
    except OperationalError as error:
        raise LedgerUnavailable(f"{url.rpartition('@')[2]}: {str(error.orig).strip()}") from error


def database_url(settings: Settings) -> str:
    """URL of the ledger's database; starts the embedded server and makes the database when no other is named.

    Raises:
        EmbeddedPostgresError: the embedded server cannot be started.
    """
    if settings.database_url is not None:
        return settings.database_url
    return embedded.ensure_database(embedded.start(settings.data_dir / "postgres"), DATABASE)
