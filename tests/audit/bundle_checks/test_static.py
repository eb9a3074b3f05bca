"""Checks that look at what is declared."""

from dataclasses import replace
from typing import Any

import pytest

from tests.audit.desk_gates import draft, ran, subject


def pinning(**provenance: Any) -> Any:
    return ran("static_dependency_pinning", subject(draft(provenance=provenance)))["static.dependency_pinning"]


@pytest.mark.parametrize(
    "pinned",
    [
        {"dependencies": ["numpy==2.3.1", f"pkg @ git+https://example.org/x@{'a' * 40}"]},
        {"source": {"wheel": "bfcl-eval==2026.3.23"}},
        {"requirements": {"numpy": "2.3.1"}},
        {"image": f"desk@sha256:{'0' * 64}"},
        {"judge_model": "judge@2026-01-01"},
    ],
)
def test_a_pinned_dependency_passes(pinned: Any) -> None:
    result = pinning(**pinned)
    assert result.status == "pass" and len(result.measured["declared"]) >= 1


@pytest.mark.parametrize(
    "loose",
    [
        {"dependencies": ["numpy"]},
        {"dependencies": ["numpy>=2"]},
        {"packages": ["numpy==2.*"]},
        {"requirements": {"numpy": ">=2"}},
        {"source": {"package": "git+https://example.org/x@main"}},
        {"image": "desk:latest"},
        {"judge_model": "judge"},
    ],
)
def test_a_loose_dependency_fails(loose: Any) -> None:
    assert pinning(**loose).status == "fail"


def test_a_manifest_names_every_part_that_is_missing() -> None:
    made = draft(provenance={}, request={"turns": [[{"role": "system", "content": "x"}]]})
    result = ran("static_manifest", subject(made))["static.manifest"]
    assert result.measured["faults"] == 3
    assert list(result.evidence) == [
        "turn 0 has no user message with text", "provenance.proposer is None; allowed: text", "provenance.licence is None; allowed: text",
    ]  # fmt: skip


def test_limits_are_positive_and_below_the_ceiling() -> None:
    seen = subject()
    passed = ran("static_limits", seen)
    assert {result.status for result in passed.values()} == {"pass"}
    late = ran("static_limits", replace(seen, limits={**seen.limits, "wall_s": 3601}))
    assert late["static.timeout_ceiling"].reason == "the time limit is above the ceiling: wall_s is 3601; allowed: up to 3600"
    bad = ran("static_limits", replace(seen, limits={"calls": 0, "max_tokens": float("inf")}))
    assert bad["static.resource_declaration"].measured["faults"] == 3
    assert ran("static_limits", replace(seen, limits={}))["static.timeout_ceiling"].status == "fail"


def test_a_hint_without_values_passes_and_one_with_an_address_does_not() -> None:
    address = next(iter(draft().initial_state["owners"].values()))["email"]
    assert (
        ran("hint_no_literal_state", subject(draft(hint="Query the open P1 tickets, then mail.")))["hint.no_literal_state"].status == "pass"
    )
    assert address in ran("hint_no_literal_state", subject(draft(hint=f"Write to {address}.")))["hint.no_literal_state"].reason
    assert ran("hint_no_literal_state", subject(draft(hint=None)))["hint.no_literal_state"].status == "skip"
