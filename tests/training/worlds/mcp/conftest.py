"""The environment of the `mcp` package, made once a session, and worlds over servers in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from training.worlds.mcp.world import REQUIREMENTS, McpWorld, server_of
from training.worlds.package_venv import package_venv

OpenWorld = Callable[..., McpWorld]


@pytest.fixture(scope="session")
def venvs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the package's environment."""
    folder = tmp_path_factory.mktemp("venvs")
    package_venv("mcp", REQUIREMENTS, folder)
    return folder


@pytest.fixture(scope="module")
def open_world(venvs: Path) -> Iterator[OpenWorld]:
    """Opens worlds by their options; they are closed at the end of the module."""
    worlds: list[McpWorld] = []

    def opened(**options: Any) -> McpWorld:
        worlds.append(McpWorld(server_of(options), venvs))
        return worlds[-1]

    yield opened
    for world in worlds:
        world.close()
