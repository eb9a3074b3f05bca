"""Milestones of a hidden specification: which of them held when, for any rendering of the world that the agent saw. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.errors import ProposalError
from training.verifiers.pointed_conditions import value_at
from training.worlds import Change


@dataclass(frozen=True)
class Milestone:
    """One step of the specification: after it, each place holds its value; None is a place that is empty or not there."""

    name: str
    expected: Mapping[str, Any]

    def holds(self, material: Any) -> bool:
        """Whether every place of a material state holds what it must."""
        return all(value_at(material, path) == value for path, value in self.expected.items())


def milestones_of(steps: Sequence[Sequence[Change]]) -> list[dict[str, Any]]:
    """The specification's milestones as JSON, one a step, from what the step changed."""
    return [{"name": f"M{n}", "expected": {change.path: change.after for change in changes}} for n, changes in enumerate(steps, start=1)]


def read_milestones(spec: Mapping[str, Any]) -> tuple[Milestone, ...]:
    """The milestones of a draft's spec.

    Raises:
        ProposalError: it has none.
    """
    written = spec.get("milestones")
    if not isinstance(written, list | tuple) or not written:
        raise ProposalError(f"the spec has no milestones; it has {sorted(spec)}")
    return tuple(Milestone(item["name"], item["expected"]) for item in written)


def reached(spec: Mapping[str, Any], views: Sequence[Any], *, material: Callable[[Any], Any]) -> tuple[int | None, ...]:
    """For each milestone the first index of `views` at which it held, or None; once reached it stays reached.

    Args:
        spec: a draft's spec with milestones.
        views: the world's views after each call, the one at the request first.
        material: the world's own.
    Source: Tev (arXiv 2610.18868), progress over a latent specification.
    """
    states = [material(view) for view in views]
    return tuple(next((at for at, state in enumerate(states) if step.holds(state)), None) for step in read_milestones(spec))


def progress(found: Sequence[int | None]) -> float:
    """Share of milestones that were reached, in [0, 1]."""
    return sum(at is not None for at in found) / len(found)
