"""End states of the references, replayed once for a world version and kept in a file. Writes the file."""

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes, digest
from training.worlds.bfcl.world import Bfcl
from training.worlds.reference_scripts import reference_turns, with_end_state

THREADS = 2


def reference_ends(world: Bfcl, drafts: Sequence[BundleDraft], folder: Path) -> list[BundleDraft]:
    """The drafts with the end states of their references; replayed only when no file of this world version and these tasks is there.

    Args:
        world: where references are replayed.
        drafts: tasks with references.
        folder: where the file is kept; a file whose content does not have the digest it claims is made again.
    """
    asked = digest([[draft.name, draft.initial_state, list(reference_turns(draft))] for draft in drafts], allow_nul=True)
    path = folder / f"{world.version[:16]}-{asked[:16]}.json"
    ends = _read(path, len(drafts))
    if ends is None:
        with ThreadPoolExecutor(THREADS) as threads:
            made = list(threads.map(lambda draft: with_end_state(draft, world), drafts))
        ends = [(draft.reference or {})["end_state"] for draft in made]
        _write(path, ends)
    return [replace(draft, reference={**(draft.reference or {}), "end_state": end}) for draft, end in zip(drafts, ends, strict=True)]


def _read(path: Path, count: int) -> list[Any] | None:
    try:
        claimed, _, data = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if hashlib.sha256(data).hexdigest().encode() != claimed:
        return None
    ends: list[Any] = json.loads(data)
    return ends if len(ends) == count else None


def _write(path: Path, ends: Sequence[Any]) -> None:
    data = canonical_bytes(list(ends), allow_nul=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    Path(name).replace(path)
