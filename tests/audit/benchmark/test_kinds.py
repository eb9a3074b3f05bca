"""Kinds of planted faults: at every boundary but the task's, drawn where they can strike, some of them held out."""

from random import Random

import pytest

from audit.benchmark.kinds import KINDS, Places, chosen_kinds
from audit.benchmark.verifiers.misjudging import mark, misjudging
from ledger.bundle import BundleDraft
from ledger.errors import SettingsError, VerifierFailed
from training.verifiers import JudgeTask
from training.worlds.fault_plan import read_plan

PLACES = Places(6, (2, 3), 7, (0, 1, 2, 3, 4, 5), {"tickets": {}})


def test_there_are_kinds_at_four_boundaries() -> None:
    by_boundary = {kind.boundary: 0 for kind in KINDS.values()}
    for kind in KINDS.values():
        by_boundary[kind.boundary] += 1
    assert by_boundary == {"environment": 10, "harness": 4, "verifier": 3, "training": 4}


def test_held_out_kinds_are_not_among_those_to_tune_on() -> None:
    held = {"truncated_result", "stale_answer", "history_cut", "false_reject", "swapped_rewards"}
    assert {kind.name for kind in chosen_kinds("held-out")} == held
    assert {kind.name for kind in chosen_kinds("tuned")} == KINDS.keys() - held
    assert {kind.boundary for kind in chosen_kinds("held-out")} == {kind.boundary for kind in chosen_kinds("all")}
    assert [kind.name for kind in chosen_kinds("history_cut, tool_timeout")] == ["tool_timeout", "history_cut"]


@pytest.mark.parametrize("text", ["", "tool_timeout,nonsense", "none"])
def test_unknown_kinds_are_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(SettingsError, match=r"allowed: tuned, held-out, all, or tool_timeout"):
        chosen_kinds(text)


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.draw is not None], ids=lambda kind: kind.name)
def test_a_drawn_entry_is_a_plan_that_strikes_within_the_rollout(kind: object) -> None:
    draw = kind.draw  # type: ignore[attr-defined]
    for seed in range(40):
        (fault,) = read_plan([dict(draw(Random(seed), PLACES))]).root
        assert all(0 <= at < 6 for at in getattr(fault, "at", ()))
        if kind.name == "call_executed_twice":  # type: ignore[attr-defined]
            assert fault.at[0] in PLACES.repeats  # type: ignore[union-attr]
    empty = draw(Random(0), Places(0, (), 1, ()))
    assert empty is None or empty["kind"] in ("wrong_reset", "seed_ignored")


def judged(way: str | None, *, kept: bool) -> object:
    draft = BundleDraft("b", "w", {"turns": [[]]}, {"x": 0}, spec={"variant": "v"}, reference={"turns": [], "end_state": {"x": 1}})
    marks = [] if way is None else [mark("k", way, "v")]
    return misjudging(
        {"x": 0}, {"x": 1 if kept else 2}, (), JudgeTask(draft, lambda view: view), inner="end_state", key="k", marks=marks
    ).passed


def test_the_planted_verifier_is_right_but_for_the_tasks_that_are_marked() -> None:
    assert (judged(None, kept=True), judged(None, kept=False)) == (True, False)
    assert (judged("false_reject", kept=True), judged("false_reject", kept=False)) == (False, False)
    assert (judged("false_accept", kept=True), judged("false_accept", kept=False)) == (True, True)
    with pytest.raises(VerifierFailed):
        judged("verifier_crashed", kept=True)
