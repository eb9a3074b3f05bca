"""All deployment settings, read from `TALLY_*` environment variables; nothing else configures a deployment."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ledger.errors import SettingsError


class Settings(BaseSettings):
    """Where this deployment keeps its things.

    Attributes:
        data_dir: folder of the embedded database, models, unpacked wheels and logs.
        database_url: any PostgreSQL 15 or newer; None starts the embedded one.
        dagster_database_url: Dagster's own database; None uses database `dagster` on the embedded server.
        project: namespace of streams and keys within a ledger.
        actor: pseudonym that this process writes as.
        gateway_port, ui_port, dagster_port: loopback ports of the three services.
        secrets: what happens to a blob with text that looks like a credential: off, refuse, or encrypt under a subject of its own.
        secret_patterns_file: TOML with further patterns.
        subject_kek_file: 64 hexadecimal digits, the key around the subjects' keys; None keeps those as they are.
        statement_timeout_s: seconds that one statement may take; 0 for no limit.
        seal_key_file: the key that signs checkpoints; None for `keys/seal.key` in the data folder.
        processes: that share lock-step collections and their verdicts; 0 for as many as there are cores.
        sandbox_allow_missing: names of protections, with commas, that hostile code may run without (`tally sandbox` lists them).
        witness_file: where published checkpoints are kept outside the database; None for `checkpoints.txt` in the data folder.
    """

    model_config = SettingsConfigDict(env_prefix="TALLY_", frozen=True)

    data_dir: Path = Path(".tally")
    database_url: str | None = None
    dagster_database_url: str | None = None
    project: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    actor: str = Field(default="operator", pattern=r"^[a-z0-9][a-z0-9_.:-]{0,62}$")
    gateway_port: int = Field(default=8700, ge=0, le=65535)
    ui_port: int = Field(default=8501, ge=1, le=65535)
    dagster_port: int = Field(default=3000, ge=1, le=65535)
    secrets: Literal["off", "refuse", "encrypt"] = "encrypt"
    secret_patterns_file: Path | None = None
    subject_kek_file: Path | None = None
    processes: int = Field(default=0, ge=0, le=256)
    statement_timeout_s: float = Field(default=600, ge=0, le=86400)
    seal_key_file: Path | None = None
    witness_file: Path | None = None
    sandbox_allow_missing: str = Field(default="", pattern=r"^[a-z_, ]*$")

    @property
    def allowed_missing(self) -> frozenset[str]:
        """Protections that hostile code may run without."""
        return frozenset(name.strip() for name in self.sandbox_allow_missing.split(",") if name.strip())

    @property
    def seal_key(self) -> Path:
        """The file of the signing key."""
        return self.seal_key_file or self.data_dir / "keys" / "seal.key"

    @property
    def witness(self) -> Path:
        """The file of published checkpoints."""
        return self.witness_file or self.data_dir / "checkpoints.txt"

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().resolve()

    @field_validator("database_url", "dagster_database_url")
    @classmethod
    def _postgres(cls, value: str | None) -> str | None:
        if value is None or value == "":
            return None
        scheme, _, rest = value.partition("://")
        if scheme.split("+")[0] not in ("postgresql", "postgres") or not rest:
            raise SettingsError(f"database URL starts with {scheme!r}; allowed: postgresql://user:password@host:port/database")
        return f"postgresql://{rest}"


def public_settings(settings: Settings) -> dict[str, str | int | None]:
    """The settings as plain values, passwords in URLs left out: safe to print and to keep."""
    return {name: value if isinstance(value, int | None) else without_password(str(value)) for name, value in settings.model_dump().items()}


def without_password(text: str) -> str:
    """A URL without its password, and without what follows the path, which may hold one; other text as it is."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    login, at, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{place.partition('?')[0]}"
