"""Experiment files are found by name, and a file that does not fit says what is wrong with it."""

from pathlib import Path

import pytest

from ledger.errors import SettingsError
from pipelines.resources import SHIPPED, ExperimentFiles
from tests.pipelines.conftest import ONE_TASK
from training.lab import SMOLLM2
from training.optimise.recipe import method_ids
from training.worlds.source import source_of


def test_the_shipped_experiments_fit_and_name_scripts_that_exist() -> None:
    files = ExperimentFiles((SHIPPED,))
    assert list(files.paths()) == [
        "class_worlds", "demo", "desk_rl", "desk_study", "gymnasium", "mcp_notes", "openenv", "shop", "smoke", "smollm2", "textworld", "verifiers_tasks",
    ]  # fmt: skip
    for name in files.paths():
        config = files.read(name)
        for collection in config.collect:
            worlds = collection.worlds or tuple({source.world for source in config.tasks})
            assert collection.policy == SMOLLM2 or all(collection.policy in source_of(world).scripts for world in worlds), collection
        if config.train is not None:
            scripts = [name for source in config.tasks for name in source_of(source.world).scripts]
            traces = [trace.policy for stage in config.train.stages if stage.stage == "supervised" for trace in stage.traces]
            assert {*config.train.evaluation.scripts, *traces} <= set(scripts)
            assert method_ids(config.train)


def test_the_smoke_experiment_needs_no_model_and_no_download() -> None:
    config = ExperimentFiles((SHIPPED,)).read("smoke")
    assert {source.world for source in config.tasks} == {"ticket_desk"}
    assert SMOLLM2 not in {collection.policy for collection in config.collect}


def test_an_unknown_experiment_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no experiment 'absent'; there are none"):
        ExperimentFiles((tmp_path,)).read("absent")


def test_one_name_in_two_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "smoke.toml").write_text(ONE_TASK.format(name="smoke", calls_per_turn=12))
    with pytest.raises(SettingsError, match="experiment 'smoke' is in"):
        ExperimentFiles((SHIPPED, tmp_path)).paths()


def test_a_file_that_gives_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(ONE_TASK.format(name="other", calls_per_turn=12))
    with pytest.raises(SettingsError, match="names its experiment 'other'; expected the file's name, 'mine'"):
        ExperimentFiles((tmp_path,)).read("mine")


def test_a_folder_that_does_not_exist_has_no_experiments(tmp_path: Path) -> None:
    assert ExperimentFiles((tmp_path / "absent",)).paths() == {}
