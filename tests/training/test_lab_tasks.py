"""Which bundles a stage learns from."""

from pathlib import Path

from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from tests.training.optimise.lab_files import admit, config
from training import stages
from training.lab import Lab
from training.optimise import trainer
from training.optimise.opened import Training
from training.optimise.rounds import round_groups


def test_a_stage_learns_from_its_own_tasks_and_from_those_that_name_no_stage(ledger: LedgerHandle, tmp_path: Path) -> None:
    made = config()
    for_all = made.tasks[0].model_copy(update={"count": 2})
    for_sft = made.tasks[0].model_copy(update={"count": 3, "seed": 4, "stages": ("sft",)})
    for_rl = made.tasks[0].model_copy(update={"count": 4, "seed": 5, "stages": ("rl",)})
    with Lab(made.model_copy(update={"tasks": (for_all, for_sft, for_rl)}), ledger, Settings(data_dir=tmp_path)) as lab:
        stages.worlds(lab)
        stages.task_bundles(lab)
        admit(ledger, lab)
        both, sft, rl = lab.bundles[:2], lab.bundles[2:5], lab.bundles[5:]
        assert list(lab.training_bundles("sft").values()) == [*both, *sft]
        assert list(lab.training_bundles("rl").values()) == [*both, *rl]
        assert lab.training_bundles("copy").keys() == lab.training_bundles("sft").keys() & lab.training_bundles("rl").keys()
        trainer.supervised_traces(lab)
        training = Training(lab)
        place = training.places[-1]
        chosen = {group.bundle.bundle_id for group in round_groups(training, place, "tiny-1")}
        assert chosen <= lab.training_bundles("rl").keys()
