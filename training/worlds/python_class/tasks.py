"""Folders of class worlds: one `<name>.py` a class, and `tasks.json` with the tasks in them. Reads files."""

import json
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import parse
from ledger.errors import BundleError, CanonicalError
from training.worlds.python_class.world import NAME, PythonClasses
from training.worlds.reference_scripts import with_end_state

EXAMPLES = Path(__file__).parent / "examples"
TASKS = "tasks.json"
_NEEDED = {"name", "class", "request"}
_ALLOWED = _NEEDED | {"state", "seed", "system", "spec", "reference", "hint", "split", "provenance"}


def read_sources(folder: Path) -> dict[str, str]:
    """Class world to the text of its class.

    Raises:
        BundleError: the folder cannot be read or holds no class.
    """
    try:
        sources = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")}
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"class worlds in {folder} cannot be read: {error}") from error
    if not sources:
        raise BundleError(f"{folder} holds no class world; allowed: a folder with one <name>.py a class, and {TASKS}")
    return sources


def read_tasks(folder: Path, world: PythonClasses) -> list[BundleDraft]:
    """The tasks of a folder, with the end state of each reference that names none replayed in `world`.

    A task is `{"name", "class", "request"}`, where `request` is a text or a list of texts, one a user turn; further keys are those of a
    draft: `system`, `state`, `seed`, `spec`, `reference`, `hint`, `split`, `provenance`. `defaults` at the top holds values for all.

    Raises:
        BundleError: the file cannot be read or a task lacks a part.
        WorldFailed: a reference cannot be replayed.
    """
    try:
        listed = parse((folder / TASKS).read_bytes())
    except (OSError, CanonicalError) as error:
        raise BundleError(f"{folder / TASKS} cannot be read: {error}") from error
    if not isinstance(listed, dict) or not isinstance(listed.get("tasks"), list):
        raise BundleError(f"{folder / TASKS} must hold an object with the list `tasks`, seen {json.dumps(listed)[:60]}")
    return [_draft({**listed.get("defaults", {}), **task}, world) for task in listed["tasks"]]


def _draft(task: dict[str, Any], world: PythonClasses) -> BundleDraft:
    if not _NEEDED <= task.keys() <= _ALLOWED:
        raise BundleError(
            f"task {task.get('name')!r} has {sorted(task)}; it needs {sorted(_NEEDED)} and may have {sorted(_ALLOWED - _NEEDED)}"
        )
    texts = [task["request"]] if isinstance(task["request"], str) else task["request"]
    initial = {"class": task["class"], "state": task.get("state", {})}
    if "seed" in task:
        initial["seed"] = task["seed"]
    draft = BundleDraft(
        name=task["name"],
        world=NAME,
        request={"system": task.get("system"), "turns": [[{"role": "user", "content": text}] for text in texts]},
        initial_state=initial,
        spec=task.get("spec", {}),
        reference=task.get("reference"),
        hint=task.get("hint"),
        split=task.get("split", "train"),
        provenance=task.get("provenance", {}),
    )
    return draft if draft.reference is None or draft.reference.get("end_state") is not None else with_end_state(draft, world)
