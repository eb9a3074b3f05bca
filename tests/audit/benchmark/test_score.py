"""Scores of attributions: numbers by hand, what is scored apart, and what is refused."""

import pytest

from audit.benchmark.attributing import Answer
from audit.benchmark.picture import confusion_png
from audit.benchmark.score import score
from audit.benchmark.truth import Truth
from ledger.errors import StatisticRefused, UnknownId


def told(*rows: tuple[str, str | None, str, str]) -> tuple[list[Truth], list[Answer]]:
    """Truths and answers of (true class, planted kind, sort, said class)."""
    truths = [
        Truth(f"rollout-{n}", boundary, planted if sort == "caused" else None, planted, sort, f"t{n}")  # type: ignore[arg-type]
        for n, (boundary, planted, sort, _) in enumerate(rows)
    ]
    answers = [Answer(f"rollout-{n}", said, rows[n][1] if said == rows[n][0] else None) for n, (_, _, _, said) in enumerate(rows)]
    return truths, answers


def test_precision_and_recall_of_a_class_with_wilsons_bounds_by_hand() -> None:
    rows = [("environment", "tool_timeout", "caused", "environment")] * 8 + [("environment", "tool_timeout", "caused", "task")] * 2
    rows += [("task", None, "genuine", "task")] * 9 + [("task", None, "genuine", "environment")]
    found = {one.name: one for one in score(*told(*rows)).classes}
    assert (found["environment"].recall.value, found["environment"].precision.value) == (0.8, 8 / 9)
    # Wilson's interval of 8 of 10 at 95 %.
    assert found["environment"].recall.interval == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert (found["task"].recall.value, found["task"].precision.value) == (0.9, 9 / 11)
    assert score(*told(*rows)).missed == ("environment", "task")


def test_the_goal_needs_enough_cases_not_only_no_error() -> None:
    def perfect(n: int) -> tuple[str, ...]:
        return score(*told(*[("task", None, "genuine", "task")] * n)).missed

    # n of n has the lower bound n / (n + 1.96 squared): 72 give 0.9493 and 73 give 0.9500.
    assert (perfect(72), perfect(73)) == (("task",), ())


def test_incidental_faults_are_scored_apart_and_recovered_ones_as_successes() -> None:
    found = score(*told(
        ("task", "tool_timeout", "incidental", "environment"), ("none", "tool_timeout", "recovered", "environment"),
        ("none", "tool_timeout", "recovered", "none"), ("environment", "tool_timeout", "caused", "environment"),
    ))  # fmt: skip
    assert found.incidental == {"environment": 1}
    assert sum(found.confusion.values()) == 3
    (kind,) = found.kinds
    assert (kind.counts, kind.blamed.hits, kind.blamed.n) == ({"incidental": 1, "recovered": 2, "caused": 1}, 1, 2)
    assert (kind.boundary.hits, kind.named.hits) == (1, 1)


def test_a_class_of_which_nothing_is_said_has_no_precision_and_misses_the_goal() -> None:
    found = score(*told(("verifier", "false_accept", "caused", "unknown")))
    (verifier,) = found.classes
    assert (verifier.precision.value, verifier.precision.interval, verifier.recall.value) == (None, None, 0.0)
    assert found.missed == ("verifier",)


def test_each_subject_has_exactly_one_answer() -> None:
    truths, answers = told(("task", None, "genuine", "task"), ("none", None, "clean", "none"))
    with pytest.raises(UnknownId, match="1 answers to 2 subjects, 1 of them without the other"):
        score(truths, answers[:1])
    with pytest.raises(UnknownId, match="allowed: one each"):
        score(truths, [*answers, answers[0]])


def test_the_picture_is_a_png_and_an_empty_one_is_refused() -> None:
    found = score(*told(("environment", "tool_timeout", "caused", "environment"), ("task", None, "genuine", "task")))
    assert confusion_png(found, title="t")[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(StatisticRefused, match="0 subjects"):
        confusion_png(score([], []))
