"""The 800 multi-turn tasks of the wheel as bundle drafts."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft, Split
from ledger.canonical import MAX_INT, canonical_bytes
from ledger.errors import BundleError
from training.worlds.bfcl.calls import parse_call
from training.worlds.bfcl.docs import DATA, WHEEL, FunctionDocs, documented, load_docs, read_json_lines

CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
NEW_FUNCTIONS_MESSAGE = "I have updated some more functions you can choose from. What about now?"
"""What the leaderboard's own harness says in the turn in which withheld functions appear."""


def load_tasks(unpacked: Path, *, categories: Iterable[str] = CATEGORIES) -> list[BundleDraft]:
    """The tasks of the categories in the wheel's order; end states of the references are left open (see `with_end_state`).

    Variants of one task (the same number in another category, or another number with the same initial configuration) are
    always in the same split: 7 in 10 groups train, 1 validation, 2 test, by the digest of the group's name.

    Args:
        unpacked: folder of the unpacked wheel.
        categories: some of `CATEGORIES`.

    Raises:
        BundleError: an unknown category, or a folder that is not the wheel.
    """
    wanted = tuple(categories)
    for category in wanted:
        if category not in CATEGORIES:
            raise BundleError(f"category {category!r} is none of {', '.join(CATEGORIES)}")
    docs = load_docs(unpacked)
    entries = {category: read_json_lines(unpacked / DATA / f"BFCL_v4_{category}.json") for category in CATEGORIES}
    groups = _groups([entry for rows in entries.values() for entry in rows])
    drafts: list[BundleDraft] = []
    for category in wanted:
        file = f"BFCL_v4_{category}.json"
        answers = {row["id"]: row["ground_truth"] for row in read_json_lines(unpacked / DATA / "possible_answer" / file)}
        drafts.extend(_draft(entry, answers[entry["id"]], category, group=groups[_number(entry)], docs=docs) for entry in entries[category])
    return drafts


def _draft(entry: Mapping[str, Any], answer: Sequence[Sequence[str]], category: str, *, group: int, docs: FunctionDocs) -> BundleDraft:
    withheld: Mapping[str, list[str]] = entry.get("missed_function", {})
    turns = [
        [{"role": "user", "content": NEW_FUNCTIONS_MESSAGE}] if str(index) in withheld and not messages else messages
        for index, messages in enumerate(entry["question"])
    ]
    functions = documented(docs, entry["involved_classes"])
    source = {"wheel": WHEEL, "file": str(DATA / f"BFCL_v4_{category}.json"), "id": entry["id"]}
    if "excluded_function" in entry:
        source["excluded_function"] = entry["excluded_function"]
    name = f"bfcl-multi-turn-{group}"
    return BundleDraft(
        name=entry["id"],
        world="bfcl",
        request={"system": None, "turns": turns, "withheld": withheld},
        initial_state={
            "classes": entry["involved_classes"],
            "config": _storable(entry["initial_config"]),
            "long_context": category == "multi_turn_long_context",
        },
        spec={"category": category, "entry": entry["id"]},
        reference={"turns": [[parse_call(call, functions) for call in calls] for calls in answer], "end_state": None},
        hint="Functions on a solution's path: " + ", ".join(step.rpartition(".")[2] for step in entry["path"]) + ".",
        split=_split(name),
        provenance={"proposer": "bfcl", "seed": None, "source": source, "licence": "Apache-2.0", "group": name},
    )


def _storable(value: Any) -> Any:
    """The value with every integer beyond the canonical range as `{"$integer": text}`, which the worker reads back."""
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, int) and abs(value) > MAX_INT:
        return {"$integer": str(value)}
    return value


def _split(group: str) -> Split:
    tenth = int(hashlib.sha256(group.encode()).hexdigest()[:8], 16) % 10
    return "train" if tenth < 7 else "validation" if tenth == 7 else "test"


def _number(entry: Mapping[str, Any]) -> int:
    return int(entry["id"].rpartition("_")[2])


def _groups(entries: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Task number to the smallest number among the tasks that it is tied to by an equal initial configuration."""
    parent: dict[int, int] = {}

    def root(number: int) -> int:
        while parent.setdefault(number, number) != number:
            number = parent[number]
        return number

    first_with: dict[bytes, int] = {}
    for entry in entries:
        number = root(_number(entry))
        other = root(first_with.setdefault(canonical_bytes(_storable(entry["initial_config"]), allow_nul=True), number))
        parent[max(number, other)] = min(number, other)
    return {number: root(number) for number in list(parent)}
