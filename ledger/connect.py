"""Opens the ledger that the settings name: a foreign database as it is, the embedded server started and migrated when it has to be."""

import logging

from ledger import embedded
from ledger.errors import LedgerUnavailable, SchemaMismatch
from ledger.ledger import Guards, LedgerHandle, open_ledger
from ledger.roles import running_as_owner
from ledger.secrets import scanner
from ledger.settings import Settings
from ledger.subjects import read_kek

DATABASE = "tallystick"
_LOG = logging.getLogger(__name__)


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
        opened = open_ledger(url, project=asked.project, actor_id=asked.actor, pool_size=pool_size, guards=guards(asked))
    except SchemaMismatch:
        if asked.database_url is not None:
            raise
        migrate(asked)
        opened = open_ledger(url, project=asked.project, actor_id=asked.actor, pool_size=pool_size, guards=guards(asked))
    if asked.database_url is not None:
        with opened.connection() as conn:
            why = running_as_owner(conn)
        if why is not None:
            _LOG.warning("%s: nothing but triggers keeps this process from changing the log; `tally roles` makes a login that may not", why)
    return opened


def guards(settings: Settings) -> Guards:
    """Limits, scanner and keys of a deployment.

    Raises:
        SettingsError: a file that the settings name cannot be read or holds something else.
    """
    return Guards(
        scanner=scanner(settings.secrets, settings.secret_patterns_file), kek=read_kek(settings.subject_kek_file),
        statement_s=settings.statement_timeout_s or None,
    )  # fmt: skip


def migrate(settings: Settings) -> None:
    """Bring the database of the settings, the embedded or a foreign one, to this release's schema.

    Raises:
        LedgerUnavailable: the database cannot be reached.
        SchemaMismatch: the database is ahead of this release.
    """
    # Only this needs what it takes half a second to load.
    from sqlalchemy.exc import OperationalError

    from ledger.migrate import upgrade

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
