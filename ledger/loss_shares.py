"""How much of the loss behind each model version came from a scope, in the updates that made it and in those of its ancestors. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Version = TypeVar("Version", bound=Hashable)


@dataclass(frozen=True)
class LossShare:
    """Loss weight behind a model version.

    Attributes:
        own_total, own_scope: summed over the updates that made this version, and the part of it that came from the scope.
        total, scope: the same summed over this version and all its ancestors, each once.
        unrecorded: how many of these have a parent and no recorded update, so that their weight is missing from the sums.
    """

    own_total: float
    own_scope: float
    total: float
    scope: float
    unrecorded: int

    @property
    def share(self) -> float | None:
        """`scope` / `total`; None when no weight is recorded."""
        return self.scope / self.total if self.total > 0 else None

    @property
    def own_share(self) -> float | None:
        """Share of the version's own updates: `own_scope` / `own_total`; None when no weight is recorded."""
        return self.own_scope / self.own_total if self.own_total > 0 else None

    @property
    def direct(self) -> float | None:
        """The part of `share` that its own updates brought: `own_scope` / `total`."""
        return self.own_scope / self.total if self.total > 0 else None

    @property
    def inherited(self) -> float | None:
        """The part of `share` that its ancestors brought; `direct` and `inherited` add up to `share`."""
        return (self.scope - self.own_scope) / self.total if self.total > 0 else None


def loss_shares(own: Mapping[Version, tuple[float, float]], parents: Mapping[Version, Sequence[Version]]) -> dict[Version, LossShare]:
    """Every model version to its share, ancestors before descendants.

    For a version m with ancestors A(m), all versions that it was trained from directly or through others:
    share(m) = Σ scope weight over m and A(m) / Σ weight over m and A(m). Weights of one update are relative to each other; across updates
    they are summed as recorded.

    Args:
        own: version to (weight, scope weight) of the updates that made it; versions without a recorded update are left out.
        parents: version to the versions that it was trained from.
    """
    before = {version: [p for p in dict.fromkeys(found) if p != version] for version, found in parents.items()}
    versions = list(dict.fromkeys([*own, *before, *(p for found in before.values() for p in found)]))
    sums: dict[Version, tuple[float, float, int]] = {}
    ordered = _in_order(versions, before)
    # Versions in a circle, which no training makes, and those after them have no order.
    circled = [version for version in versions if version not in set(ordered)] if len(ordered) < len(versions) else []
    for version in [*ordered, *circled]:
        above = before.get(version, [])
        # With one parent, whoever is above the parent is above this version, and nobody else; a merge may meet an ancestor twice.
        if len(above) <= 1 and all(p in sums for p in above) and version not in circled:
            held = [sums[p] for p in above] + [_single(version, own, before)]
        else:
            held = [_single(each, own, before) for each in _line(version, before)]
        sums[version] = (sum(one[0] for one in held), sum(one[1] for one in held), sum(one[2] for one in held))
    return {version: _share(own.get(version, (0.0, 0.0)), found) for version, found in sums.items()}


def _share(own: tuple[float, float], line: tuple[float, float, int]) -> LossShare:
    return LossShare(own_total=own[0], own_scope=own[1], total=line[0], scope=line[1], unrecorded=line[2])


def _single(
    version: Version, own: Mapping[Version, tuple[float, float]], before: Mapping[Version, list[Version]]
) -> tuple[float, float, int]:
    return (*own.get(version, (0.0, 0.0)), int(version not in own and bool(before.get(version))))


def _in_order(versions: Sequence[Version], before: Mapping[Version, list[Version]]) -> list[Version]:
    """Parents first; versions in a circle and those after them are left out."""
    waiting = {version: len(before.get(version, ())) for version in versions}
    after: dict[Version, list[Version]] = {}
    for version, found in before.items():
        for parent in found:
            after.setdefault(parent, []).append(version)
    ready = [version for version in versions if not waiting[version]]
    for version in ready:
        for child in after.get(version, ()):
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    return ready


def _line(version: Version, before: Mapping[Version, list[Version]]) -> set[Version]:
    """The version and all its ancestors."""
    found, ahead = {version}, [version]
    while ahead:
        for parent in before.get(ahead.pop(), ()):
            if parent not in found:
                found.add(parent)
                ahead.append(parent)
    return found
