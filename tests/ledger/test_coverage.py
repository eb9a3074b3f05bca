"""Coverage: expected = measured + masked + failed + omitted + unknown at every level, and every score has both denominators."""

from typing import Any

import pytest

from ledger import queries
from ledger.errors import UnknownId
from ledger.events import FindingRaised, GroupDispatched
from ledger.ledger import LedgerHandle
from ledger.queries import Filter
from ledger.queries_rows import Coverage

BUNDLE = "e" * 64


def score(expected: int, succeeded: int, failed: int) -> Coverage:
    return Coverage("e", 0, "p", "w", None, 1, expected, expected - failed, 0, failed, 0, 0, succeeded)


def test_a13_a_score_is_shown_over_all_that_was_expected_and_over_what_was_measured() -> None:
    # F8 of the golden fixtures.
    ten = score(100, 80, 10)
    assert (ten.of_expected, ten.of_measured) == (0.80, pytest.approx(0.8889, abs=1e-4)) and ten.unknown == 0
    two = score(8, 2, 2)
    assert (two.of_expected, two.of_measured) == (0.25, pytest.approx(0.3333, abs=1e-4))
    assert score(4, 0, 4).of_measured is None


def attribution(ledger: LedgerHandle, rollout_id: str, number: int, boundary: Any, fault: str | None) -> None:
    ledger.append([ledger.new(FindingRaised(
        finding_id=f"f-{rollout_id}-{number}", check="attribution", subject=f"rollout-{rollout_id}", severity="error", measured=None,
        evidence_event_ids=[], boundary=boundary, fault=fault,
    ))])  # fmt: skip


def test_a2_a21_a22_what_failed_is_counted_once_and_what_left_no_trace_is_unknown(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    group = GroupDispatched(
        group_id="eight", bundle_id=BUNDLE, size=8, experiment_id="exp1", run_id="run1", round=1, policy="smol", rollout_kind="ordinary"
    )
    ledger.append([ledger.new(group)])
    # A21: no verdict could be read; A1: a limit that was judged; A22: slot 3 has no record anywhere.
    history.start("good", slot=0)
    history.end("good", [])
    history.verdict("good", "v0", True)
    history.start("garbled", slot=1)
    history.end("garbled", [])
    history.verdict("garbled", "v1", None)
    history.start("reset", slot=2)
    history.end("reset", [], "world_error")
    queries.fresh(ledger)
    (line,) = queries.coverage(ledger, Filter(round=0))
    assert (line.expected, line.measured, line.masked, line.failed, line.omitted, line.unknown) == (4, 1, 0, 2, 0, 1)
    assert (line.of_expected, line.of_measured) == (0.25, 1.0)
    # A9: a group of which nothing came.
    (nothing,) = queries.coverage(ledger, by=("group_id",), where=Filter(round=1))
    assert (nothing.group_id, nothing.expected, nothing.unknown, nothing.round) == ("eight", 8, 8, None)
    # An attribution takes the verdict out of what is measured, and can be taken back.
    attribution(ledger, "good", 0, "environment", "wrong_reset")
    queries.fresh(ledger)
    (masked,) = queries.coverage(ledger, Filter(round=0))
    assert (masked.measured, masked.masked, masked.failed, masked.unknown) == (0, 1, 2, 1)
    (one,) = queries.rollouts(ledger, Filter(rollout_id="good")).lines
    assert one.outcome == "env_failed"
    for number, boundary, fault, outcome in (
        (1, None, "undecided", "unknown"), (2, "verifier", "false_accept", "verifier_failed"), (3, "harness", "history_cut", "harness_failed"),
        (4, "task", "side_effect", "succeeded"), (5, None, None, "succeeded"),
    ):  # fmt: skip
        attribution(ledger, "good", number, boundary, fault)
        queries.fresh(ledger)
        assert queries.rollouts(ledger, Filter(rollout_id="good")).lines[0].outcome == outcome
    whole = queries.coverage(ledger, by=())
    assert [(line.expected, line.measured, line.experiment_id) for line in whole] == [(12, 1, None)]
    for level in ("experiment_id", "round", "policy", "world", "group_id"):
        lines = queries.coverage(ledger, by=(level,))
        assert sum(line.expected for line in lines) == 12 and sum(line.unknown for line in lines) == whole[0].unknown
    with pytest.raises(UnknownId, match="colour"):
        queries.coverage(ledger, by=("colour",))


def test_what_was_called_off_is_omitted_and_a_person_overrules_an_attribution_to_the_verifier(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("off", slot=0)
    history.end("off", [], "cancelled", superseded=True)
    history.start("judged", slot=1)
    history.end("judged", [])
    history.verdict("judged", "v1", False)
    attribution(ledger, "judged", 0, "verifier", "false_reject")
    queries.fresh(ledger)
    (line,) = queries.coverage(ledger)
    assert (line.measured, line.masked, line.failed, line.omitted, line.unknown) == (0, 1, 0, 1, 2)
    history.review("judged", "w1", "passed", ["v1"])
    queries.fresh(ledger)
    assert queries.rollouts(ledger, Filter(rollout_id="judged")).lines[0].outcome == "succeeded"
