"""The settings that a command runs with, and the ledger that they name. Opens database connections."""

import typer
from pydantic import ValidationError

from ledger.connect import connect
from ledger.errors import SettingsError
from ledger.ledger import LedgerHandle
from ledger.settings import Settings


def asked_settings(ctx: typer.Context) -> Settings:
    """The settings that the caller gave, else those of the environment.

    Raises:
        SettingsError: an environment variable holds what is not allowed.
    """
    given = ctx.find_root().obj
    if isinstance(given, Settings):
        return given
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "TALLY_" + "_".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(f"{name} is {first['input']!r}: {first['msg']}") from error


def open_asked(ctx: typer.Context) -> LedgerHandle:
    """The ledger that a command works on; closed by the caller's `with`."""
    return connect(asked_settings(ctx), pool_size=4)
