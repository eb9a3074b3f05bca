"""The partitions of every asset: one a round of an experiment, never one a rollout."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import dagster as dg

from ledger.errors import SettingsError

EXPERIMENT_ROUNDS = dg.DynamicPartitionsDefinition(name="experiment_round")
_KEY = re.compile(r"(?P<experiment>[a-z0-9][a-z0-9_-]{0,62})\.r(?P<round>0|[1-9][0-9]{0,5})")


@dataclass(frozen=True)
class ExperimentRound:
    """A round of an experiment: the experiment's name and the 0-based round."""

    experiment: str
    round: int

    @property
    def key(self) -> str:
        """The partition key, such as `demo.r0`."""
        return f"{self.experiment}.r{self.round}"


def parse_key(key: str) -> ExperimentRound:
    """The round that a partition key names.

    Raises:
        SettingsError: the key has another form.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise SettingsError(f"partition {key!r} is not <experiment>.r<round>; allowed: keys such as demo.r0")
    return ExperimentRound(match["experiment"], int(match["round"]))


def first_rounds(experiments: Iterable[str], present: Iterable[str]) -> list[str]:
    """The keys of the first rounds of experiments that are not among the `present` keys, sorted."""
    return sorted({ExperimentRound(name, 0).key for name in experiments} - set(present))
