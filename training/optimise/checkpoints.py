"""Model versions and optimiser states as folders of a run, each there whole or not at all. Writes and deletes files."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from ledger.errors import TrainingBroken
from training.rollout.pretrained import template_digest, tokenizer_digest, version_digest, weights_digest

STATES = "optimiser"
TENSORS, STATE = "state.safetensors", "state.json"
_SCRATCH = ".making-"
_VERSION = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,150}$")


@dataclass(frozen=True)
class MadeVersion:
    """A version's folder, durable under its name.

    Attributes:
        version: `<name>-<digest>`.
        folder: where it is.
        weights_digest, tokenizer_digest, template_digest: hex SHA-256.
        new: whether the folder was not there before; the same weights are the same version.
    """

    version: str
    folder: Path
    weights_digest: str
    tokenizer_digest: str
    template_digest: str
    new: bool


@dataclass(frozen=True)
class OptimiserState:
    """An optimiser's state after an update.

    Attributes:
        tensors: by name.
        cursor: where the training stands: stage, steps taken and the like.
    """

    tensors: Mapping[str, Tensor]
    cursor: Mapping[str, Any]


class Checkpoints:
    """The versions of one run: `<root>/<version>` for weights, `<root>/optimiser/<update id>` for optimiser states."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, version: str) -> Path:
        """Where a version of this run is.

        Raises:
            TrainingBroken: it is not there, or is not what its name says.
        """
        folder = self.root / version
        if not folder.is_dir():
            raise TrainingBroken(f"the weights of model version {version} are not in {folder}; allowed: a run whose folders are kept")
        if not version.endswith(f"-{version_digest(folder)}"):
            raise TrainingBroken(f"{folder} holds version digest {version_digest(folder)}; allowed: the one that its name says")
        return folder

    def keep_version(self, name: str, write: Callable[[Path], object]) -> MadeVersion:
        """The version that `write` makes, under the name that its contents give it.

        Args:
            name: first part of the version.
            write: makes the policy folder that it is given, which is not there yet.
        Raises:
            TrainingBroken: the name cannot be that of a folder.
        """
        if not _VERSION.match(name):
            raise TrainingBroken(f"version name {name!r}; allowed: letters, digits, dots, dashes and underscores")
        with _scratch(self.root) as scratch:
            made = Path(scratch) / "policy"
            write(made)
            version = f"{name}-{version_digest(made)}"
            new = _move(made, self.root / version)
        folder = self.root / version
        return MadeVersion(version, folder, weights_digest(folder), tokenizer_digest(folder), template_digest(folder), new)

    def keep_state(self, update_id: str, state: OptimiserState) -> str:
        """Hex SHA-256 of the optimiser's state, durable from now on."""
        with _scratch(self.root) as scratch:
            made = Path(scratch) / "state"
            made.mkdir()
            save_file(dict(state.tensors), str(made / TENSORS))
            about = {"cursor": dict(state.cursor), "tensors_sha256": _sha256(made / TENSORS)}
            (made / STATE).write_text(json.dumps(about, sort_keys=True, allow_nan=False), encoding="utf-8")
            _move(made, self.root / STATES / update_id)
        return self.state_digest(update_id)

    def state_digest(self, update_id: str) -> str:
        """Hex SHA-256 of what is kept of an optimiser after an update.

        Raises:
            TrainingBroken: nothing is kept of it.
        """
        path = self.root / STATES / update_id / STATE
        if not path.is_file():
            raise TrainingBroken(
                f"the optimiser's state after update {update_id} is not in {path.parent}; allowed: the newest `keep_checkpoints`"
            )
        return _sha256(path)

    def state(self, update_id: str) -> OptimiserState:
        """The optimiser's state after an update.

        Raises:
            TrainingBroken: nothing is kept of it, or its tensors are not those that were kept.
        """
        self.state_digest(update_id)
        folder = self.root / STATES / update_id
        about = json.loads((folder / STATE).read_text(encoding="utf-8"))
        if _sha256(folder / TENSORS) != about["tensors_sha256"]:
            raise TrainingBroken(f"{folder / TENSORS} is not what was kept after update {update_id}")
        return OptimiserState(load_file(str(folder / TENSORS)), about["cursor"])

    def discard_orphans(self, *, versions: Collection[str], updates: Collection[str]) -> dict[str, int]:
        """How many folders were deleted because no event names them: versions, optimiser states, and what was being made.

        Only the process that trains the run may call this.

        Args:
            versions: published versions.
            updates: ids of the updates that were applied.
        """
        counts = {"orphan_versions": 0, "orphan_states": 0, "unfinished_folders": 0}
        if not self.root.is_dir():
            return counts
        for path in sorted(self.root.iterdir()):
            if path.name.startswith(_SCRATCH):
                counts["unfinished_folders"] += _delete(path)
            elif path.name != STATES and path.name not in versions:
                counts["orphan_versions"] += _delete(path)
        for path in sorted((self.root / STATES).iterdir()) if (self.root / STATES).is_dir() else []:
            if path.name not in updates:
                counts["orphan_states"] += _delete(path)
        return counts

    def keep_only(self, updates: Collection[str]) -> int:
        """How many optimiser states were deleted because they are not of these updates; weights stay."""
        states = self.root / STATES
        return sum(_delete(path) for path in sorted(states.iterdir()) if path.name not in updates) if states.is_dir() else 0


def _scratch(root: Path) -> "tempfile.TemporaryDirectory[str]":
    root.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=root)


def _move(made: Path, target: Path) -> bool:
    """Whether `target` is new: `made` under its name, synced; what is there already stays."""
    for path in sorted(made.rglob("*")):
        _sync(path)
    _sync(made)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return False
    made.rename(target)
    _sync(target.parent)
    return True


def _delete(path: Path) -> int:
    # Renamed first, so that a deletion that is broken off leaves nothing that looks whole.
    doomed = path if path.name.startswith(_SCRATCH) else path.rename(path.parent / f"{_SCRATCH}deleted-{path.name}")
    shutil.rmtree(doomed) if doomed.is_dir() else doomed.unlink()
    return 1


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
