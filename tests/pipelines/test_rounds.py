"""Rounds belong to updates: round 0 has all before the first rollouts, and a stage of imitation between rollouts has a round of its own."""

import dagster as dg
import pytest

from pipelines.partitions import ExperimentRound
from pipelines.rounds import is_due, next_round, sampled_for, update_of
from training.optimise.schedule import schedule
from training.train_config import TrainTable

RATE = {"learning_rate": 1e-3}
REINFORCE = {"stage": "reinforce", "rounds": 1, "optimiser": RATE}
IMITATE = {"stage": "supervised", "steps": 5, "traces": [{"rollouts": 2}], "optimiser": RATE}
TRAIN = TrainTable.model_validate(
    {"stages": [{**IMITATE, "name": "sft"}, REINFORCE, {**IMITATE, "name": "again"}, {**REINFORCE, "name": "more"}]}
)


def part(round: int) -> ExperimentRound:
    return ExperimentRound("mine", round)


def test_rounds_follow_one_another_to_the_last_update() -> None:
    followed = [next_round(TRAIN, part(n)) for n in range(5)]
    assert [None if item is None else item.round for item in followed] == [2, 2, 3, 4, None]
    assert next_round(None, part(0)) is None


def test_what_a_round_makes_and_samples() -> None:
    made, sampled = [update_of(TRAIN, part(n)) for n in range(5)], [sampled_for(TRAIN, part(n)) for n in range(5)]
    assert [place and place.label for place in made] == [None, None, "rl/1", "again/1", "more/1"]
    assert [place and place.label for place in sampled] == [None, None, "rl/1", None, "more/1"]
    with pytest.raises(dg.Failure, match="rounds up to r4"):
        update_of(TRAIN, part(5))


def test_every_version_is_evaluated_in_exactly_one_round() -> None:
    due = [[place.label for place in schedule(TRAIN) if is_due(TRAIN, part(n), place)] for n in range(5)]
    assert due == [["sft/1"], [], ["rl/1"], ["again/1"], ["more/1"]]
