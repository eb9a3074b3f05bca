"""The page of the survey's boundaries names all fifty, and nothing that is not there."""

import importlib
import re
from pathlib import Path

import pytest

from audit.run import check_ids
from audit.severity import load_policy
from ledger.methods import Family

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "boundary-checks.md"
ROWS = re.findall(r"^\| (AUD-\d\d) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
NAMED = [
    (aud, family.strip(), name)
    for aud, _, kind, what in ROWS
    if kind == "check"
    for family, names in re.findall(r"(\w+): ((?:`[\w.]+`(?:, )?)+)", what)
    for name in re.findall(r"`([\w.]+)`", names)
]
FOLDERS = {"bundle": ("bundle_checks", "world_checks"), "statistic": ("statistics",)}


def known(kind: str) -> set[str]:
    """Ids of all checks of a kind."""
    found: set[str] = set()
    for folder in FOLDERS.get(kind, (f"{kind}_checks",)):
        family: Family = getattr(importlib.import_module(f"audit.{folder}"), folder)
        names = family.names()
        found |= set(names) if kind == "statistic" else {name for one in names for name in check_ids(family.bind(one))}
    return found


def test_all_fifty_are_there_once_and_in_order() -> None:
    assert [row[0] for row in ROWS] == [f"AUD-{number:02d}" for number in range(1, 51)]
    assert {row[2] for row in ROWS} == {"check", "caveat", "waiting"}


def test_every_row_that_is_a_check_names_one() -> None:
    assert {aud for aud, _, _ in NAMED} == {row[0] for row in ROWS if row[2] == "check"}
    assert {kind for _, kind, _ in NAMED} <= {"bundle", "rollout", "update", "claim", "statistic"}


@pytest.mark.parametrize("kind", ["bundle", "rollout", "update", "claim", "statistic"])
def test_every_check_that_is_named_exists(kind: str) -> None:
    there = known(kind)
    assert [(aud, name) for aud, family, name in NAMED if family == kind and name not in there] == []


def test_checks_of_bundles_have_a_severity() -> None:
    severity = load_policy("v2").severity
    assert [name for _, kind, name in NAMED if kind == "bundle" and name not in severity] == []


def test_a_caveat_names_its_page_and_what_waits_names_its_system() -> None:
    for aud, _, kind, what in ROWS:
        if kind == "caveat":
            (page,) = re.findall(r"docs/[\w-]+\.md", what)
            assert (ROOT / page).exists(), aud
        if kind == "waiting":
            assert re.search(r"\bS\d\d\b", what), aud
