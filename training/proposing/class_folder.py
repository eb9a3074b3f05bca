"""Keeps proposed class worlds in a folder from which `python_class` opens them. Writes files."""

import json
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import ProposalError
from training.proposers import Proposed
from training.worlds.python_class.tasks import TASKS

PREFIX = "class/"


def write_folder(proposed: Proposed, folder: Path) -> int:
    """The number of classes written: one `<name>.py` each, and their tasks, for the world's option `folder`.

    Raises:
        ProposalError: nothing was proposed, or the folder is not empty.
    """
    sources = {name.removeprefix(PREFIX): text for name, text in proposed.artifacts.items() if name.startswith(PREFIX)}
    if not sources:
        raise ProposalError(f"no class among the artifacts {sorted(proposed.artifacts)}")
    if folder.exists() and any(folder.iterdir()):
        raise ProposalError(f"folder {folder} is not empty; allowed: an empty or a new one")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    tasks = {"tasks": [_task(draft) for draft in proposed]}
    (folder / TASKS).write_text(json.dumps(tasks, ensure_ascii=False, indent=1), encoding="utf-8")
    return len(sources)


def _task(draft: BundleDraft) -> dict[str, Any]:
    texts = ["\n".join(message["content"] for message in turn) for turn in draft.request["turns"]]
    return {
        "name": draft.name, "class": draft.initial_state["class"], "state": draft.initial_state["state"], "request": texts,
        "system": draft.request.get("system"), "spec": dict(draft.spec), "reference": draft.reference, "hint": draft.hint,
        "split": draft.split, "provenance": dict(draft.provenance),
    }  # fmt: skip
