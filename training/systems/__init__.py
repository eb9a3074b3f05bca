"""Published systems as recipes of methods: one TOML a system, with source, stated boundary and what shows that it works. Reads files."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.errors import SettingsError
from ledger.methods import Bound, Family
from training.proposers import proposers
from training.rewards import rewards
from training.verifiers import verifiers

FOLDER = Path(__file__).parent
FAMILIES: Mapping[str, Family[Any]] = {"proposers": proposers, "rewards": rewards, "verifiers": verifiers}
"""The families of this package; those of other packages are added by whoever reads."""

_Text = Annotated[str, Field(min_length=1, max_length=2000)]
_Form = partial(ConfigDict, extra="forbid", frozen=True, strict=True)


class Source(BaseModel):
    """Where a system is from, and what of it was read.

    Attributes:
        paper: its id, such as `arXiv 2605.18703`.
        repository: `owner/name@commit`, where there is public code.
        read: the code, the paper, or only what others say of it.
    """

    model_config = _Form()

    paper: _Text
    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+(@[0-9a-f]{7,40})?$")] | None = None
    read: Literal["code", "paper", "second hand"]


class Part(BaseModel):
    """A method of a system with its parameters, and which piece of the system it stands for."""

    model_config = _Form()

    family: _Text
    name: _Text
    params: dict[str, Any] = Field(default_factory=dict)
    does: _Text


class System(BaseModel):
    """One published system.

    Attributes:
        id: the row's id.
        name: what its authors call it.
        what: what of it is here.
        boundary: what it does not show, as stated.
        works: what shows that it works on our worlds.
        test: the test that shows it, `file::function`.
        methods: its parts.
    """

    model_config = _Form()

    id: Annotated[str, Field(pattern=r"^[A-Z][0-9]{2}$")]
    name: _Text
    what: _Text
    boundary: _Text
    works: _Text
    test: Annotated[str, Field(pattern=r"^tests/[\w/]+\.py$")]
    source: Source
    methods: Annotated[list[Part], Field(min_length=1)]


def read_systems(families: Mapping[str, Family[Any]] = FAMILIES, *, folder: Path = FOLDER) -> tuple[System, ...]:
    """All systems of a folder, sorted by id, each with methods that exist and take its parameters.

    Args:
        families: family name to family.
        folder: of the TOML files.
    Raises:
        SettingsError: a file is malformed, two have one id, or one names a family that there is not.
        MethodError: a method does not exist or does not take a parameter.
    """
    found: dict[str, System] = {}
    for path in sorted(folder.glob("*.toml")):
        system = read_system(path)
        if system.id in found:
            raise SettingsError(f"{path.name}: id {system.id} is that of {found[system.id].name!r} already")
        bound_methods(system, families)
        found[system.id] = system
    return tuple(found[key] for key in sorted(found))


def read_system(path: Path) -> System:
    """The system in a TOML file.

    Raises:
        SettingsError: it is malformed; the message names the fields.
    """
    try:
        return System.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path.name}: {error}") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise SettingsError(f"{path.name}: {faults}") from error


def bound_methods(system: System, families: Mapping[str, Family[Any]] = FAMILIES) -> Sequence[Bound[Any]]:
    """The system's methods with their parameters bound, in its order.

    Raises:
        SettingsError: it names a family that there is not.
        MethodError: a method does not exist or does not take a parameter.
    """
    bound = []
    for part in system.methods:
        if part.family not in families:
            raise SettingsError(f"system {system.id} names family {part.family!r}; there are {', '.join(sorted(families))}")
        bound.append(families[part.family].bind(part.name, **part.params))
    return bound
