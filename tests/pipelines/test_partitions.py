"""Partition keys name an experiment and a round, and nothing else."""

import pytest

from ledger.errors import SettingsError
from pipelines.partitions import ExperimentRound, first_rounds, parse_key


@pytest.mark.parametrize("part", [ExperimentRound("demo", 0), ExperimentRound("a-b_c", 12), ExperimentRound("r0", 3)])
def test_a_key_gives_back_its_round(part: ExperimentRound) -> None:
    assert parse_key(part.key) == part


@pytest.mark.parametrize("key", ["", "demo", "demo.r", "demo.r-1", "demo.r01", "Demo.r0", "demo.r0.r1 ", "../demo.r0", "demo.r1234567"])
def test_a_key_of_another_form_is_refused_with_an_example(key: str) -> None:
    with pytest.raises(SettingsError, match=r"allowed: keys such as demo\.r0"):
        parse_key(key)


def test_only_missing_first_rounds_are_added() -> None:
    assert first_rounds(["smoke", "demo", "demo"], ["demo.r0", "smoke.r1"]) == ["smoke.r0"]
