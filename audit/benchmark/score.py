"""Scores of an attribution against the truth: precision and recall with Wilson's intervals, a class and a kind, and the confusion. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.benchmark.attributing import Answer
from audit.benchmark.truth import Truth
from audit.statistics.success_rate import wilson
from ledger.errors import UnknownId

CLASSES = ("environment", "harness", "verifier", "task", "training", "none")
SAID = (*CLASSES, "unknown")
GOAL = 0.95
"""Lowest bound of precision and of recall that each class shall reach."""
_LEVEL = 0.95


@dataclass(frozen=True)
class Share:
    """A share with Wilson's interval at 95 %, which takes the subjects as independent; without any, neither value nor interval."""

    hits: int
    n: int

    @property
    def value(self) -> float | None:
        """The share."""
        return self.hits / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's score interval."""
        return wilson(self.hits, self.n, level=_LEVEL) if self.n else None

    @property
    def reaches_goal(self) -> bool:
        """Whether its lower bound is at least `GOAL`."""
        return self.interval is not None and self.interval[0] >= GOAL

    def as_json(self) -> dict[str, Any]:
        """The share as a JSON object."""
        low, high = self.interval or (None, None)
        return {"hits": self.hits, "n": self.n, "value": self.value, "low": low, "high": high}


@dataclass(frozen=True)
class ClassScore:
    """How well one class is found: of what is said to be of it, and of what is of it."""

    name: str
    precision: Share
    recall: Share

    @property
    def reaches_goal(self) -> bool:
        """Whether both bounds are high enough."""
        return self.precision.reaches_goal and self.recall.reaches_goal


@dataclass(frozen=True)
class KindScore:
    """How one planted kind is found, where it was the cause.

    Attributes:
        boundary, named: shares of the caused cases whose boundary, and whose kind too, were said.
        counts: number of its cases by sort: caused, incidental, recovered.
        blamed: share of its recovered cases of which anything but `none` was said.
    """

    name: str
    boundary: Share
    named: Share
    counts: Mapping[str, int]
    blamed: Share


@dataclass(frozen=True)
class Score:
    """An attribution's score.

    Attributes:
        classes: those that something is of, or is said to be of.
        kinds: planted kinds, in the order of the truth.
        confusion: (true class, said class) to subjects, incidental faults apart.
        by_kind: (planted kind that was the cause, said class) to subjects.
        incidental: said class to subjects that failed with and without a planted fault.
        tasks: distinct tasks; subjects of one task are not independent.
    """

    classes: tuple[ClassScore, ...]
    kinds: tuple[KindScore, ...]
    confusion: Mapping[tuple[str, str], int]
    by_kind: Mapping[tuple[str, str], int]
    incidental: Mapping[str, int]
    tasks: int

    @property
    def missed(self) -> tuple[str, ...]:
        """Classes that do not reach the goal."""
        return tuple(found.name for found in self.classes if not found.reaches_goal)

    def as_json(self) -> dict[str, Any]:
        """The score as a JSON object."""
        return {
            "goal": GOAL, "missed": list(self.missed), "tasks": self.tasks, "incidental": dict(self.incidental),
            "classes": {
                found.name: {"precision": found.precision.as_json(), "recall": found.recall.as_json(), "goal": found.reaches_goal}
                for found in self.classes
            },
            "kinds": {
                found.name: {
                    "boundary": found.boundary.as_json(), "named": found.named.as_json(), "blamed": found.blamed.as_json(),
                    "counts": dict(found.counts),
                }
                for found in self.kinds
            },
            "confusion": _nested(self.confusion), "by_kind": _nested(self.by_kind),
        }  # fmt: skip


def score(truths: Sequence[Truth], answers: Sequence[Answer]) -> Score:
    """The score of answers to exactly the subjects of the truths.

    Raises:
        UnknownId: a subject has no answer, or an answer has no truth.
    """
    said = {answer.subject: answer for answer in answers}
    strange = said.keys() ^ {truth.subject for truth in truths}
    if strange or len(said) < len(answers):
        raise UnknownId(f"{len(answers)} answers to {len(truths)} subjects, {len(strange)} of them without the other; allowed: one each")
    scored = [truth for truth in truths if truth.sort != "incidental"]
    confusion = Counter((str(truth.boundary), said[truth.subject].boundary) for truth in scored)
    caused = [truth for truth in truths if truth.sort == "caused"]
    return Score(
        tuple(_class_score(name, confusion) for name in CLASSES if any(name in pair for pair in confusion)),
        tuple(_kind_score(kind, truths, said) for kind in dict.fromkeys(truth.planted for truth in truths) if kind is not None),
        confusion, Counter((str(truth.fault), said[truth.subject].boundary) for truth in caused),
        Counter(said[truth.subject].boundary for truth in truths if truth.sort == "incidental"),
        len({truth.task for truth in truths}),
    )  # fmt: skip


def _class_score(name: str, confusion: Mapping[tuple[str, str], int]) -> ClassScore:
    hits = confusion.get((name, name), 0)
    claimed = sum(count for (_, told), count in confusion.items() if told == name)
    there = sum(count for (true, _), count in confusion.items() if true == name)
    return ClassScore(name, Share(hits, claimed), Share(hits, there))


def _kind_score(kind: str, truths: Sequence[Truth], said: Mapping[str, Answer]) -> KindScore:
    mine = [truth for truth in truths if truth.planted == kind]
    caused = [truth for truth in mine if truth.sort == "caused"]
    recovered = [truth for truth in mine if truth.sort == "recovered"]
    found = sum(said[truth.subject].boundary == truth.boundary for truth in caused)
    named = sum((said[truth.subject].boundary, said[truth.subject].fault) == (truth.boundary, truth.fault) for truth in caused)
    blamed = sum(said[truth.subject].boundary != "none" for truth in recovered)
    return KindScore(
        kind, Share(found, len(caused)), Share(named, len(caused)), Counter(truth.sort for truth in mine), Share(blamed, len(recovered))
    )


def _nested(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (row, column), count in sorted(counts.items()):
        found.setdefault(row, {})[column] = count
    return found
