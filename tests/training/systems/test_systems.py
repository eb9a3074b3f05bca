"""Rows of published systems: every file is complete, its methods exist and take its parameters, its test is there."""

from pathlib import Path
from typing import Any

import pytest

from audit.systems_command import ALL_FAMILIES
from ledger.errors import MethodError, SettingsError
from training.systems import FAMILIES, FOLDER, bound_methods, read_system, read_systems

ROOT = Path(__file__).parents[3]
GOOD = """
id = "S99"
name = "A system"
what = "Something."
boundary = "Not everything."
works = "It does."
test = "tests/test_methods.py"
source = { paper = "arXiv 1", read = "paper" }
methods = [{ family = "proposers", name = "state_first", params = { most = 2 }, does = "all" }]
"""


def test_all_rows_bind_and_name_a_test_that_is_there() -> None:
    found = read_systems(ALL_FAMILIES)
    assert [system.id for system in found] == ["D30", "D70", "S02", "S20", "S25", "S46", "S48"]
    for system in found:
        assert (ROOT / system.test).is_file(), system.test
        assert len(bound_methods(system, ALL_FAMILIES)) == len(system.methods)
    assert len(list(FOLDER.glob("*.toml"))) == len(found)


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('boundary = "Not everything."', "", SettingsError, "x.toml: boundary: Field required"),
        ('id = "S99"', 'id = "99"', SettingsError, "x.toml: id: String should match"),
        ('read = "paper"', 'read = "rumour"', SettingsError, "x.toml: source.read: Input should be"),
        ('"proposers"', '"prophets"', SettingsError, "system S99 names family 'prophets'; there are proposers, rewards, verifiers"),
        ('"state_first"', '"state_last"', MethodError, "has no method 'state_last'"),
        ("most = 2", "mostly = 2", MethodError, "takes no parameter 'mostly'"),
        ('id = "S99"', "id = ", SettingsError, "x.toml: Invalid value"),
    ],
)
def test_what_does_not_fit_is_named(old: str, new: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    assert old in GOOD
    (tmp_path / "x.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(error, match=message):
        read_systems(FAMILIES, folder=tmp_path)


def test_two_rows_may_not_share_an_id(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(GOOD)
    assert read_system(tmp_path / "a.toml").id == "S99"
    with pytest.raises(SettingsError, match="b.toml: id S99 is that of 'A system' already"):
        read_systems(FAMILIES, folder=tmp_path)


def test_a_row_of_another_package_s_method_needs_its_family() -> None:
    with pytest.raises(SettingsError, match="system D30 names family 'bundle_checks'"):
        read_systems(FAMILIES)


def test_the_command_lists_the_rows_with_their_boundary_and_refuses_an_unknown_one(capsys: Any) -> None:
    import typer

    from audit.systems_command import systems

    app = typer.Typer()
    app.command()(systems)
    app([], standalone_mode=False)
    listed = capsys.readouterr().out
    assert "S25" in listed and "can punish legal alternatives" in listed
    app(["s46"], standalone_mode=False)
    assert "arXiv 2610.18868 (read: second hand)" in capsys.readouterr().out
    with pytest.raises(SettingsError, match="no system 'S01'; there are D30, D70"):
        app(["S01"], standalone_mode=False)
