"""Findings: whose fault, on which evidence, and what follows from what."""

import pytest

from audit.findings import Finding, raised
from audit.taxonomy import BOUNDARIES, FAULTS, boundary_of
from ledger.errors import UnknownFault
from ledger.events import FindingRaised
from ledger.ledger import LedgerHandle


def test_every_kind_of_fault_happens_at_one_of_five_boundaries() -> None:
    assert set(FAULTS.values()) == set(BOUNDARIES) == {"task", "environment", "verifier", "harness", "training"}
    with pytest.raises(UnknownFault, match="'bad_luck'; allowed: .*tool_timeout"):
        boundary_of("bad_luck")


def test_a_finding_is_one_event_and_a_consequence_names_its_root(ledger: LedgerHandle) -> None:
    root = Finding("mask_eq_sampled", "update-1", "inverted_mask", "mask on 3 tokens that nobody sampled", measured={"tokens": 3})
    after = Finding("denominator_eq_mask_sum", "update-1", "wrong_denominator", "sum 3, mask 5", root=root)
    assert raised(ledger, [after, root]) == 2 and raised(ledger, [root, after]) == 0
    ledger.barrier()
    bodies = [event.body for event in ledger.read(kinds=["FindingRaised"])]
    assert [body.boundary for body in bodies if isinstance(body, FindingRaised)] == ["training", "training"]
    first, second = bodies
    assert isinstance(first, FindingRaised) and isinstance(second, FindingRaised)
    assert second.root_finding_id == first.finding_id == root.finding_id(ledger) and first.root_finding_id is None


def test_a_finding_that_blames_nobody_has_no_boundary() -> None:
    assert Finding("zero_std_fraction", "update-1", None, "0.4 of the groups", level="info").boundary is None
