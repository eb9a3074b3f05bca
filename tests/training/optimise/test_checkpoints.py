"""Checkpoints: there whole or not at all, named after what they hold, and swept when no event names them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ledger.errors import TrainingBroken
from training.optimise.checkpoints import STATES, TENSORS, Checkpoints, OptimiserState


def write_policy(folder: Path, value: float = 1.0) -> None:
    folder.mkdir()
    save_file({"lm_head.weight": torch.full((2, 2), value)}, str(folder / "model.safetensors"))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_text("{}")


def moments(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"steps": torch.tensor(5), "exp_avg.lm_head.weight": torch.full((2, 2), value)}


def test_a_version_is_named_after_what_it_holds(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "run")
    first, same, other = (kept.keep_version("desk", lambda folder, value=value: write_policy(folder, value)) for value in (1.0, 1.0, 2.0))
    assert first.version == same.version != other.version and (first.new, same.new) == (True, False)
    assert kept.folder(first.version) == first.folder and sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        [first.version, other.version]
    )


def test_a_folder_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    made = kept.keep_version("desk", write_policy)
    save_file({"lm_head.weight": torch.zeros(2, 2)}, str(made.folder / "model.safetensors"))
    with pytest.raises(TrainingBroken, match="allowed: the one that its name says"):
        kept.folder(made.version)
    with pytest.raises(TrainingBroken, match="are not in"):
        kept.folder("desk-000000000000")


def test_an_optimisers_state_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    digests = [kept.keep_state(f"u{value}", OptimiserState(moments(value), {"step": 5})) for value in (1.0, 2.0)]
    restored = kept.state("u2.0")
    assert restored.cursor == {"step": 5} and all(torch.equal(tensor, moments(2.0)[name]) for name, tensor in restored.tensors.items())
    assert digests[0] != digests[1] == kept.state_digest("u2.0")


def test_a_state_that_was_changed_is_refused(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.keep_state("u1", OptimiserState(moments(), {}))
    path = tmp_path / STATES / "u1" / TENSORS
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    with pytest.raises(TrainingBroken, match="is not what was kept after update u1"):
        kept.state("u1")


def test_what_no_event_names_is_swept_and_counted(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    named, orphan = (kept.keep_version("desk", lambda folder, value=value: write_policy(folder, value)) for value in (1.0, 2.0))
    for update in ("u1", "u2"):
        kept.keep_state(update, OptimiserState(moments(), {}))
    (tmp_path / ".making-abc" / "policy").mkdir(parents=True)
    counts = kept.discard_orphans(versions={named.version}, updates={"u1"})
    assert counts == {"orphan_versions": 1, "orphan_states": 1, "unfinished_folders": 1}
    assert named.folder.is_dir() and not orphan.folder.exists() and kept.state("u1").cursor == {}
    assert kept.discard_orphans(versions={named.version}, updates={"u1"}) == dict.fromkeys(counts, 0)


def test_states_of_older_updates_are_dropped_and_weights_stay(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    made = kept.keep_version("desk", write_policy)
    for update in ("u1", "u2", "u3"):
        kept.keep_state(update, OptimiserState(moments(), {}))
    assert kept.keep_only({"u2", "u3"}) == 1 and made.folder.is_dir()
    with pytest.raises(TrainingBroken, match="keep_checkpoints"):
        kept.state("u1")


def test_a_making_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def half(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({}))
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Checkpoints(tmp_path).keep_version("desk", half)
    assert list(tmp_path.iterdir()) == []
