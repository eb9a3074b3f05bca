"""Experiment files."""

from pathlib import Path

import pytest

from ledger.errors import SettingsError
from pipelines import SHIPPED
from training.run_config import read_run_config

GOOD = 'name = "x"\nseed = 1\n[[tasks]]\nworld = "ticket_desk"\ncount = 2\n[[collect]]\npolicy = "oracle"\n'


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_experiments_are_read(path: Path) -> None:
    assert read_run_config(path).name == path.stem


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD + "size = 0\n", r"collect\.0\.size.*seen 0"), (GOOD.replace("ticket_desk", "mars"), "tasks.0.world.*'mars'"),
        (GOOD + "polcy = 1\n", "polcy"), ("name = ", "is not TOML"), (GOOD.replace("seed = 1", ""), "seed.*required"), ("", "name"),
        (GOOD.replace("count = 2", 'count = 2\nstages = ["rl"]'), "stage 'rl'; the experiment has no stages"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_naming_the_place_and_the_value(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=told):
        read_run_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.toml: No such file"):
        read_run_config(tmp_path / "nothing.toml")
