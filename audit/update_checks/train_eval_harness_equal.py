"""Are policies evaluated by the harness that they are trained with?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import parts_of, said, skipped

HELD_OUT = ("validation", "test")


@answers("train_eval_harness_equal")
def train_eval_harness_equal(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """In each world the run's training tasks and its held-out tasks were attempted with the same harness versions.

    Source: case K1: summarising was turned off in training and stayed on in evaluation.
    """
    trained = subject.harnesses.get("train", {})
    held: dict[str, set[str]] = {}
    for split in HELD_OUT:
        for world, ids in subject.harnesses.get(split, {}).items():
            held.setdefault(world, set()).update(ids)
    worlds = sorted(trained.keys() & held.keys())
    if not worlds:
        return skipped("train_eval_harness_equal", "the run attempted no world in training and in evaluation")
    faults = [
        {"world": world, "train": sorted(trained[world]), "evaluation": sorted(held[world])}
        for world in worlds
        if set(trained[world]) != held[world]
    ]
    return said(
        "train_eval_harness_equal",
        faults,
        why="training and evaluation have different harnesses",
        remedy="evaluate with the training's harness",
        fault="harness_differs",
        events=parts_of(subject),
        worlds=len(worlds),
    )
