"""The schedule numbers all updates of a run and seeds its streams."""

import pytest

from ledger.errors import SettingsError
from training.optimise.schedule import STEPS_A_VERSION, place_of, schedule, stream_seed
from training.train_config import TrainTable

TRAIN = TrainTable.model_validate({
    "stages": [
        {"stage": "copy", "steps": STEPS_A_VERSION + 20, "optimiser": {"learning_rate": 1e-3}},
        {"stage": "supervised", "traces": [{"rollouts": 8}], "steps": 30, "optimiser": {"learning_rate": 1e-3}},
        {"stage": "reinforce", "rounds": 3, "optimiser": {"learning_rate": 1e-3}},
    ]
})  # fmt: skip


def test_rounds_are_numbered_through_all_stages() -> None:
    places = schedule(TRAIN)
    assert [(place.label, place.round) for place in places] == [
        ("copy/1", 1),
        ("copy/2", 2),
        ("sft/1", 3),
        ("rl/1", 4),
        ("rl/2", 5),
        ("rl/3", 6),
    ]
    assert [list(place.steps)[-1] for place in places[:3]] == [99, 119, 29]


def test_a_label_names_one_update_or_the_last_of_a_stage() -> None:
    places = schedule(TRAIN)
    assert (place_of(places, "rl").round, place_of(places, "rl/2").round) == (6, 5)
    with pytest.raises(SettingsError, match="copy/1 to /2, sft/1 to /1, rl/1 to /3"):
        place_of(places, "rl/4")


def test_streams_differ_by_name_and_place_alone() -> None:
    seeds = [
        stream_seed(7, "data", "rl", 0),
        stream_seed(7, "data", "rl", 1),
        stream_seed(7, "init", "rl", 0),
        stream_seed(8, "data", "rl", 0),
    ]
    assert len(set(seeds)) == 4 and stream_seed(7, "data", "rl", 0) == seeds[0]
