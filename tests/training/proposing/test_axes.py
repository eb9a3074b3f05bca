"""Balance over declared axes, by hand."""

from dataclasses import replace
from random import Random

import pytest

from ledger.errors import ProposalError
from tests.tiny_world import Library, library_task
from training.proposers import ProposalContext, proposers
from training.proposing.axes import balance, draw_cell, off_balance

AXES = {"length": ("one", "two"), "form": ("actions", "goals")}


def test_the_balance_table_counts_every_value_also_those_that_nothing_has() -> None:
    cells = [{"length": "one", "form": "actions"}] * 3 + [{"length": "two", "form": "actions"}]
    drafts = [replace(library_task(), provenance={"axes": cell}) for cell in cells]
    rows = balance(drafts, AXES)
    assert [(row.axis, row.value, row.count, row.share, row.aimed) for row in rows] == [
        ("length", "one", 3, 0.75, 0.5), ("length", "two", 1, 0.25, 0.5), ("form", "actions", 4, 1.0, 0.5), ("form", "goals", 0, 0.0, 0.5),
    ]  # fmt: skip
    assert off_balance(rows) == 0.5


def test_each_axis_is_drawn_on_its_own_and_evenly() -> None:
    rng = Random(2)
    cells = [draw_cell(AXES, rng) for _ in range(2000)]
    share = {(a, b): sum(cell == {"length": a, "form": b} for cell in cells) / 2000 for a in AXES["length"] for b in AXES["form"]}
    assert all(abs(value - 0.25) < 0.03 for value in share.values())


def test_a_draft_fills_the_cell_that_it_names() -> None:
    context = ProposalContext(Library(), drafts=(library_task(),))
    got = proposers["axes_sampler"](
        context, 6, rng=Random(1), axes={"tool": ("move", "post_notice"), "length": ("one", "two"), "form": ("actions",)}
    )
    for draft in got:
        cell, calls = draft.provenance["axes"], (draft.reference or {})["turns"][0]
        assert calls[0]["name"] == cell["tool"]
        assert len(calls) == {"one": 1, "two": 2}[cell["length"]]
    assert {row["axis"]: row["count"] for row in got.artifacts["balance"] if row["value"] in ("actions", "any")} == {"form": 6}


def test_an_axis_or_value_that_there_is_not_is_refused() -> None:
    context = ProposalContext(Library(), drafts=(library_task(),))
    with pytest.raises(ProposalError, match=r"axis 'form' has values \['prose'\]; allowed: \['actions', 'goals'\]"):
        proposers["axes_sampler"](context, 1, axes={"form": ("prose",)})
    with pytest.raises(ProposalError, match=r"axis 'mood' has values \['good'\]"):
        proposers["axes_sampler"](context, 1, axes={"mood": ("good",)})
    with pytest.raises(ProposalError, match=r"axis 'form' has values \['goals', 'goals'\]; allowed: one or more, all different"):
        proposers["axes_sampler"](context, 1, axes={"form": ("goals", "goals")})
