"""Bundles that were proposed together, indexed by what must not meet: texts, n-grams and pools across splits. Pure."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ledger.bundle import SPLITS, Bundle, BundleDraft
from ledger.canonical import digest

POOLS = ("family", "wording", "names", "group")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class BundleBatch:
    """Bundles among which leaks and double meanings are looked for."""

    bundles: Sequence[Bundle]

    @cached_property
    def batch_digest(self) -> str:
        """Hex SHA-256 over what the bundles are to each other: their ids, splits, references' ends and pools."""
        rows = [
            [item.bundle_id, item.draft.name, item.draft.split, (item.draft.reference or {}).get("end_state"), pools_of(item.draft)]
            for item in self.bundles
        ]
        return digest(sorted(rows, key=lambda row: (str(row[0]), str(row[1]))), allow_nul=True)

    @cached_property
    def by_text(self) -> Mapping[str, Sequence[Bundle]]:
        """Digest of all that a policy is told, to the bundles that tell it."""
        return _grouped((digest(dict(bundle.draft.request), allow_nul=True), bundle) for bundle in self.bundles)

    @cached_property
    def by_task(self) -> Mapping[str, Sequence[Bundle]]:
        """Digest of user text and initial state, to the bundles that have them."""
        return _grouped((task_digest(bundle.draft), bundle) for bundle in self.bundles)

    @cached_property
    def by_pool(self) -> Mapping[tuple[str, str], Sequence[Bundle]]:
        """Kind and name of a pool (a family, a wording, a set of names) to the bundles that draw from it."""
        return _grouped(((kind, pool), bundle) for bundle in self.bundles for kind, pool in pools_of(bundle.draft))

    @property
    def straddling(self) -> list[str]:
        """What bundles of several splits have in common: all that a policy is told, text with initial state, or a pool."""
        shared: list[tuple[str, Sequence[Bundle]]] = [("request", with_own_text(found)) for found in self.by_text.values()]
        shared += [("text and initial state", found) for found in self.by_task.values()]
        shared += [(f"{kind} {name}", found) for (kind, name), found in self.by_pool.items()]
        return [
            f"{what} of {found[0].draft.name} in {', '.join(splits)}"
            for what, found in shared
            if len(splits := sorted({bundle.draft.split for bundle in found})) > 1
        ]

    def grams(self, split: str, length: int) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Every n-gram of user texts of a split, to the names of the bundles that hold it; worked out once.

        Args:
            length: words a gram; a shorter text is one gram.
        """
        known: dict[tuple[str, int], Mapping[tuple[str, ...], Sequence[str]]] = self.__dict__.setdefault("_grams", {})
        if (split, length) not in known:
            held = (bundle.draft for bundle in self.bundles if bundle.draft.split == split and "text" in holds_out(bundle.draft))
            known[split, length] = _grouped((gram, draft.name) for draft in held for gram in set(grams_of(user_text(draft), length)))
        return known[split, length]


ALONE = BundleBatch(())
"""No other bundles."""


def more_held_out(split: str) -> Sequence[str]:
    """The splits that must not leak into `split`: validation and test into train, test into validation."""
    return SPLITS[SPLITS.index(split) + 1 :]


def user_text(draft: BundleDraft) -> str:
    """What the users say, without the system prompt, which all tasks of a world share."""
    return "\n".join(str(message.get("content", "")) for turn in draft.request["turns"] for message in turn)


def task_digest(draft: BundleDraft) -> str:
    """Digest of user text and initial state."""
    return digest([user_text(draft), draft.initial_state], allow_nul=True)


def holds_out(draft: BundleDraft) -> Collection[str]:
    """What of the draft no less held-out split may have, beside text and state together: `text`, or kinds of pools; all unless it says."""
    said: Collection[str] = draft.provenance.get("held_out", ("text", *POOLS))
    return said


def with_own_text(bundles: Sequence[Bundle]) -> list[Bundle]:
    """The bundles whose text no less held-out split may have."""
    return [bundle for bundle in bundles if "text" in holds_out(bundle.draft)]


def pools_of(draft: BundleDraft) -> list[tuple[str, str]]:
    """(kind, name) of the pools that a draft's provenance says it draws from and holds out; a list of names is several."""
    found: list[tuple[str, str]] = []
    for kind in (kind for kind in POOLS if kind in holds_out(draft)):
        value = draft.provenance.get(kind)
        values = value if isinstance(value, list | tuple) else [] if value is None else [value]
        found += [(kind, str(item)) for item in values]
    return found


def words_of(text: str) -> list[str]:
    """The words of a text in lower case."""
    return _WORD.findall(text.lower())


def grams_of(text: str, length: int) -> list[tuple[str, ...]]:
    """All runs of `length` words; the whole text as one run when it is shorter."""
    words = words_of(text)
    return [tuple(words[start : start + length]) for start in range(max(1, len(words) - length + 1))] if words else []


def _grouped(pairs: Iterator[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    grouped: dict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        grouped[key].append(value)
    return dict(grouped)
