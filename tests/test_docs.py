"""The documents say what is there: every command, setting, target, dependency and shipped experiment."""

import re
import tomllib
from pathlib import Path

import pytest

from ledger.settings import Settings
from tests.write_docs import PAGE, commands_page

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])


def test_the_page_of_commands_is_what_the_commands_print() -> None:
    assert PAGE.read_text() == commands_page(), "run `make docs`"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_documented(name: str) -> None:
    assert f"`TALLY_{name.upper()}`" in (ROOT / "docs" / "operations.md").read_text()


def test_every_dependency_has_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cpu"], *project["optional-dependencies"]["dev"]]
    page = (ROOT / "docs" / "dependencies.md").read_text()
    names = {re.split(r"[\[=<>~! ]", item)[0] for item in wanted} - {"pandas-stubs"}
    assert sorted(name for name in names if name not in page) == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", path.read_text()) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_targets_and_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make (?:[A-Z]+=\S+ )?([a-z]+)`", text)) <= targets
    named = re.findall(r"`((?:ledger|training|audit|pipelines|ui|tests|migrations)/[\w/.]+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_project_speaks_of_itself_alone() -> None:
    foreign = re.compile(r"\b(issue #?\d+|sub[a]gent|cl[a]ude|anthr[o]pic)\b", re.IGNORECASE)
    files = [
        path
        for folder in ("ledger", "training", "audit", "pipelines", "ui", "docs")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".md", ".toml")
    ]
    assert [path.name for path in files if foreign.search(path.read_text())] == []
