"""Does the policy read the request? Actions counted by what the request asks for at each opportunity. Reads the ledger."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from audit.evaluation import Cell, CellKey
from ledger.evaluated import Called, tool_calls
from ledger.ledger import LedgerHandle
from training.bundles import load
from training.worlds.opportunities import Act, Opportunities, Opportunity
from training.worlds.source import source_of


@dataclass(frozen=True)
class BehaviourCount:
    """Opportunities of one condition in all rollouts of a cell.

    Attributes:
        wanted: whether the request wants the action.
        acted, looked_at: at how many the policy acted, and looked.
        acted_after_look: at how many of those that it looked at it acted.
        total: opportunities.
    """

    condition: str
    wanted: bool
    acted: int
    looked_at: int
    acted_after_look: int
    total: int

    @property
    def right(self) -> int:
        """Opportunities at which the policy did as the request wants."""
        return self.acted if self.wanted else self.total - self.acted


@dataclass(frozen=True)
class Behaviour:
    """All conditions of one cell; `rollouts` are the measured ones whose task is classified, `unclassified` the others."""

    key: CellKey
    scripted: bool
    rollouts: int
    unclassified: int
    counts: tuple[BehaviourCount, ...]


def behaviours(ledger: LedgerHandle, cells: Sequence[Cell]) -> tuple[Behaviour, ...]:
    """The behaviour of each cell whose worlds classify their tasks; cells of other worlds alone are left out.

    Raises:
        BlobError: a task or a tool call cannot be read.
    """
    classifiers = {world: source_of(world).opportunities for world in {line.world for cell in cells for line in cell.measured}}
    places: dict[str, tuple[Opportunity, ...]] = {}
    found = []
    for cell in cells:
        lines = [line for line in cell.measured if classifiers[line.world] is not None]
        for bundle_id, world in {line.bundle_id: line.world for line in lines}.items():
            classifier = classifiers[world]
            if bundle_id not in places and classifier is not None:
                places[bundle_id] = tuple(classifier.opportunities(load(ledger, bundle_id).draft))
        lines = [line for line in lines if places[line.bundle_id]]
        calls = tool_calls(ledger, [line.rollout_id for line in lines if line.rollout_id is not None])
        counts = counted((_known(classifiers, line.world), places[line.bundle_id], calls[str(line.rollout_id)]) for line in lines)
        if lines:
            found.append(Behaviour(cell.key, cell.scripted, len(lines), len(cell.measured) - len(lines), counts))
    return tuple(found)


def counted(rollouts: Iterable[tuple[Opportunities, Sequence[Opportunity], Sequence[Called]]]) -> tuple[BehaviourCount, ...]:
    """Counts by condition, those that are wanted first.

    A call counts when its arguments could be read and the world carried it out.

    Args:
        rollouts: what reads calls, the task's opportunities, and the calls in order.
    """
    sums: dict[tuple[bool, str], list[int]] = {}
    for classifier, places, calls in rollouts:
        done = [Act(call.name, call.arguments) for call in calls if call.error_class is None and call.arguments is not None]
        acted, looked = classifier.acted(done), classifier.looked_at(done)
        for place in places:
            line = sums.setdefault((not place.wanted, place.condition), [0, 0, 0, 0])
            flags = (place.key in acted, place.key in looked, place.key in acted and place.key in looked, True)
            line[:] = [count + flag for count, flag in zip(line, flags, strict=True)]
    return tuple(BehaviourCount(name, not skip, *line) for (skip, name), line in sorted(sums.items()))


def _known(classifiers: Mapping[str, Opportunities | None], world: str) -> Opportunities:
    found = classifiers[world]
    assert found is not None
    return found
