"""One TOML file an experiment: what to seal, who acts, how it is judged and rewarded; recorded as an event."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from ledger.errors import SettingsError
from ledger.events.rollout import RolloutKind
from training.rollout.harness_table import HarnessTable
from training.train_config import Table, TrainTable
from training.worlds.fault_plan import FaultPlan
from training.worlds.source import source_names


class TaskSource(Table):
    """Where task bundles come from.

    Attributes:
        world: a folder of `training/worlds`.
        count: how many, from the first on.
        seed: for generated tasks.
        options: what the world further takes, such as BFCL's category.
        gated: whether the gates look at these tasks; what they do not look at can be attempted and is never trained on.
        verifier: which of the world's verifiers is the bundles' own; the world's first when None.
        stages: names of the stages that learn from these tasks, where they are of the training split; all stages when empty.
    """

    world: str
    count: int = Field(ge=1)
    seed: int = 0
    options: dict[str, Any] = Field(default_factory=dict)
    gated: bool = True
    verifier: str | None = None
    stages: tuple[str, ...] = ()

    @field_validator("world")
    @classmethod
    def _known(cls, world: str) -> str:
        if world not in source_names():
            raise ValueError(f"allowed: {', '.join(source_names())}")
        return world


class Collection(Table):
    """One policy's rollouts.

    Attributes:
        policy: a scripted policy's name, or smollm2.
        size: rollouts a group.
        tasks: names of the bundles to attempt; all of the listed worlds when empty.
        worlds: worlds whose bundles are attempted when `tasks` is empty.
        first: take only the first so many bundles of each world.
        sampling: request fields.
        strict_tools: mark tools as strict, so that an engine constrains calls to their schemas.
        faults: planted in its rollouts and labelled where no attribution reads; see docs/faults.md.
        fault_seed: root seed of the faults; the experiment's when None.
    """

    policy: str
    rollout_kind: RolloutKind = "ordinary"
    size: int = Field(default=1, ge=1)
    tasks: tuple[str, ...] = ()
    worlds: tuple[str, ...] = ()
    first: int | None = Field(default=None, ge=1)
    sampling: dict[str, Any] = Field(default_factory=dict)
    strict_tools: bool = False
    faults: FaultPlan | None = None
    fault_seed: int | None = None

    @model_validator(mode="after")
    def _seeds_something(self) -> "Collection":
        if self.fault_seed is not None and self.faults is None:
            raise ValueError(f"fault_seed {self.fault_seed} seeds nothing; give faults too")
        return self


class RunConfig(Table):
    """An experiment as its file says it.

    Attributes:
        name: the file's name.
        seed: the root of all random streams.
        concurrency: rollouts under way at once.
        reward: the rule that derives rewards from verdicts.
        second_opinions: whether a world's further verifiers judge as well: true everywhere, false nowhere; None in round 0 where there
            is a `collect`, and not in the rounds of training and its evaluation, which the bundle's own verifier judges alone.
        harness: what drives policies.
        tasks: where task bundles come from.
        collect: rollouts of scripted policies and of pretrained models.
        train: what is trained, and how.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    seed: int
    concurrency: int = Field(default=8, ge=1, le=1024)
    reward: str = "all_conditions"
    second_opinions: bool | None = None
    harness: HarnessTable = HarnessTable()
    tasks: tuple[TaskSource, ...] = Field(min_length=1)
    collect: tuple[Collection, ...] = ()
    train: TrainTable | None = None

    def wants_opinions(self, round: int) -> bool:
        """Whether second opinions judge the rollouts of a round."""
        return bool(self.collect) and round == 0 if self.second_opinions is None else self.second_opinions

    @model_validator(mode="after")
    def _does_something(self) -> "RunConfig":
        if not self.collect and self.train is None:
            raise ValueError("it neither collects nor trains; give [[collect]] or [train]")
        known = [stage.name for stage in self.train.stages] if self.train is not None else []
        for name in (name for tasks in self.tasks for name in tasks.stages):
            if name not in known:
                raise ValueError(f"tasks name stage {name!r}; the experiment has {', '.join(known) or 'no stages'}")
        return self


def read_run_config(path: Path) -> RunConfig:
    """The experiment in a TOML file.

    Raises:
        SettingsError: no such file, not TOML, or a value that does not fit; the message names it.
    """
    try:
        return RunConfig.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SettingsError(f"{path}: {where}: {first['msg']}; seen {first.get('input')!r}") from error
