"""Does the policy read the request? Actions counted by what the request asks for at each opportunity. Reads the ledger."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from audit.evaluation import Cell, CellKey
from ledger.bundle import BundleDraft
from ledger.evaluated import Called, tool_calls
from ledger.ledger import LedgerHandle
from training.bundles import load
from training.worlds.opportunities import Act, Opportunities
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
    drafts: dict[str, BundleDraft] = {}
    found = []
    for cell in cells:
        lines = [line for line in cell.measured if classifiers[line.world] is not None]
        for bundle_id in {line.bundle_id for line in lines} - drafts.keys():
            drafts[bundle_id] = load(ledger, bundle_id).draft
        calls = tool_calls(ledger, [line.rollout_id for line in lines if line.rollout_id is not None])
        seen = [(classifiers[line.world], drafts[line.bundle_id], calls[str(line.rollout_id)]) for line in lines]
        counts, classified = counted(seen)
        if classified:
            found.append(Behaviour(cell.key, cell.scripted, classified, len(cell.measured) - classified, counts))
    return tuple(found)


def counted(rollouts: Iterable[tuple[Opportunities | None, BundleDraft, Sequence[Called]]]) -> tuple[tuple[BehaviourCount, ...], int]:
    """Counts by condition, those that are wanted first, and the number of rollouts that had any opportunity.

    A call counts when its arguments could be read and the world carried it out.

    Args:
        rollouts: what classifies, the task, and the calls in order.
    """
    sums: dict[tuple[bool, str], list[int]] = {}
    classified = 0
    for classifier, draft, calls in rollouts:
        places = [] if classifier is None else list(classifier.opportunities(draft))
        if classifier is None or not places:
            continue
        classified += 1
        done = [Act(call.name, call.arguments) for call in calls if call.error_class is None and call.arguments is not None]
        acted, looked = classifier.acted(done), classifier.looked_at(done)
        for place in places:
            line = sums.setdefault((not place.wanted, place.condition), [0, 0, 0, 0])
            flags = (place.key in acted, place.key in looked, place.key in acted and place.key in looked, True)
            line[:] = [count + flag for count, flag in zip(line, flags, strict=True)]
    rows = tuple(BehaviourCount(name, not skip, *(int(value) for value in line)) for (skip, name), line in sorted(sums.items()))
    return rows, classified
