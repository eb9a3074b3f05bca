"""What the assets are given: the deployment's ledger and the folders of experiment files. Reads files, opens connections."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger.connect import connect
from ledger.errors import SettingsError
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from pipelines import SHIPPED
from pipelines.partitions import ExperimentRound
from training.lab import Lab
from training.run_config import RunConfig, read_run_config


@dataclass(frozen=True)
class Deployment:
    """The deployment that an asset works in; without given settings, those of the environment at the time of the step."""

    given: Settings | None = None

    @property
    def settings(self) -> Settings:
        """Its settings."""
        return self.given or Settings()

    def connect(self) -> LedgerHandle:
        """Its ledger, opened for one step."""
        return connect(self.settings)


@dataclass(frozen=True)
class ExperimentFiles:
    """Experiment files, one TOML an experiment, in folders; a folder that does not exist has none.

    Attributes:
        folders: where to look. Without any: those that come with the package, and `experiments` in the data folder.
    """

    folders: tuple[Path, ...] = ()

    def paths(self) -> dict[str, Path]:
        """Experiment name to file, sorted by name; the name is the file's.

        Raises:
            SettingsError: two folders have an experiment of the same name.
        """
        folders = self.folders or (SHIPPED, Settings().data_dir / "experiments")
        found: dict[str, Path] = {}
        for path in (path for folder in folders for path in sorted(folder.glob("*.toml"))):
            other = found.setdefault(path.stem, path)
            if other is not path:
                raise SettingsError(f"experiment {path.stem!r} is in {other} and in {path}; rename one of them")
        return dict(sorted(found.items()))

    def read(self, name: str) -> RunConfig:
        """The experiment of this name.

        Raises:
            SettingsError: there is none, its file does not fit, or the file gives it another name.
        """
        paths = self.paths()
        if name not in paths:
            raise SettingsError(f"no experiment {name!r}; there are {', '.join(paths) or 'none'}")
        config = read_run_config(paths[name])
        if config.name != name:
            raise SettingsError(f"{paths[name]} names its experiment {config.name!r}; expected the file's name, {name!r}")
        return config


@contextmanager
def opened_lab(deployment: Deployment, experiments: ExperimentFiles, part: ExperimentRound, *, say: Callable[[str], None]) -> Iterator[Lab]:
    """The lab of a partition's experiment, closed with its ledger at the end.

    Raises:
        SettingsError: no such experiment, or its file does not fit.
        LedgerUnavailable: the database cannot be reached.
    """
    config = experiments.read(part.experiment)
    with deployment.connect() as ledger, Lab(config, ledger, deployment.settings, say=say) as lab:
        yield lab
