"""Milestones hold place by place, once reached they stay reached, and progress is their share."""

import pytest

from ledger.errors import ProposalError
from training.proposing.milestones import milestones_of, progress, reached, read_milestones
from training.worlds import Change

SPEC = {
    "milestones": milestones_of(
        [
            [Change("/a", 1, 2)],
            [Change("/rows/x", None, {"k": 1}), Change("/b", 0, 5)],
            [Change("/rows/y", {"k": 2}, None)],
            [Change("/c", 0, 9)],
        ]
    )
}


def test_a_milestone_needs_all_its_places_and_an_absent_place_counts_as_none() -> None:
    views = [
        {"a": 1, "b": 0, "rows": {"y": {"k": 2}}, "c": 0},
        {"a": 2, "b": 0, "rows": {"y": {"k": 2}, "x": {"k": 1}}, "c": 0},
        {"a": 1, "b": 5, "rows": {"x": {"k": 1}}, "c": 0},
    ]
    found = reached(SPEC, views, material=lambda view: view)
    assert found == (1, 2, 2, None)
    assert progress(found) == 0.75
    assert [item.name for item in read_milestones(SPEC)] == ["M1", "M2", "M3", "M4"]


def test_a_spec_without_milestones_is_refused() -> None:
    with pytest.raises(ProposalError, match=r"the spec has no milestones; it has \['verifier'\]"):
        read_milestones({"verifier": "end_state"})
