"""Environments are pinned, made once, shared by processes that ask at once, and never half-made."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.errors import SettingsError, VenvFailed
from training.worlds.package_venv import package_venv


def recording_uv(folder: Path, *, fails: str = "") -> Path:
    """A program in place of uv that writes down what it was asked and makes the folder that `uv venv` would make."""
    program = folder / "uv"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {folder}/asked
for last; do :; done
case "$1" in
venv) mkdir -p "$last/bin" ;;
esac
case "$1 $2" in
"pip {fails or "nothing"}") echo "no such package" >&2; exit 2 ;;
"pip freeze") printf 'zlib-thing==2\\nabc==1\\n' ;;
esac
"""
    )
    program.chmod(0o755)
    return program


def test_an_environment_is_made_once_also_when_many_ask_at_once(tmp_path: Path) -> None:
    uv = recording_uv(tmp_path)
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: package_venv("p", ["abc==1"], tmp_path / "venvs", uv=uv), range(4)))
    assert len(set(made)) == 1
    assert made[0].frozen == "abc==1\nzlib-thing==2\n"
    assert made[0].python.parent.parent.parent == tmp_path / "venvs"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[:2] for line in asked if line.startswith("pip")] == [["pip", "install"], ["pip", "freeze"]]
    assert asked[1].endswith("abc==1")


def test_other_requirements_are_another_environment(tmp_path: Path) -> None:
    uv = recording_uv(tmp_path)
    homes = {package_venv("p", [requirement], tmp_path, uv=uv).python for requirement in ("abc==1", "abc==2", "abc[x]==1")}
    assert len(homes) == 3


def test_a_failed_installation_is_typed_says_why_and_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(VenvFailed, match="ended with 2: no such package"):
        package_venv("p", ["abc==1"], tmp_path / "venvs", uv=recording_uv(tmp_path, fails="install"))
    assert package_venv("p", ["abc==1"], tmp_path / "venvs", uv=recording_uv(tmp_path)).frozen
    with pytest.raises(VenvFailed, match="nowhere"):
        package_venv("q", ["abc==1"], tmp_path / "venvs", uv=tmp_path / "nowhere")


@pytest.mark.parametrize("loose", ["abc", "abc>=1", "abc==1.*", "git+https://x/y", "-r file"])
def test_a_requirement_that_is_not_pinned_is_refused(tmp_path: Path, loose: str) -> None:
    with pytest.raises(SettingsError, match="is not pinned; allowed: name==version"):
        package_venv("p", [loose], tmp_path, uv=recording_uv(tmp_path))
