"""Do failures that are not counted follow some action more than others, and more with each version? Then breaking things pays. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from audit.attribution import Attribution
from audit.rollout_subject import RolloutSubject
from ledger.events import ToolCalled

FEWEST = 10
"""Rollouts of an action and version below which a share says nothing."""
GROWTH = 0.05
"""By how much a share may grow from one version to the next that has enough rollouts before it is a warning."""
NO_ACTION = "(none)"
_ROUNDING = 1e-12


@dataclass(frozen=True)
class EscapeShare:
    """Rollouts of one model version whose last tool call before the failure, or before the end, was of one tool.

    Attributes:
        action: the tool's name; `(none)` before any call.
        excluded: how many of them are no evidence about the policy.
    """

    action: str
    model_version: str
    rollouts: int
    excluded: int

    @property
    def share(self) -> float:
        """Excluded of all."""
        return self.excluded / self.rollouts


@dataclass(frozen=True)
class Escape:
    """An action after which more and more rollouts are excluded."""

    action: str
    before: EscapeShare
    after: EscapeShare


def escape_shares(seen: Sequence[tuple[RolloutSubject, Attribution]]) -> tuple[EscapeShare, ...]:
    """Shares by action and model version, versions in the order in which they were first seen."""
    counts: dict[tuple[str, str], list[int]] = {}
    for subject, attribution in seen:
        version = next((p.model_version for p in subject.started.participants if p.role == "agent" and p.model_version), "unknown")
        line = counts.setdefault((version, _action_before(subject, attribution)), [0, 0])
        line[0] += 1
        line[1] += attribution.policy_evidence is not True
    return tuple(EscapeShare(action, version, *line) for (version, action), line in counts.items())


def escapes(shares: Sequence[EscapeShare], *, fewest: int = FEWEST, growth: float = GROWTH) -> tuple[Escape, ...]:
    """The actions whose excluded share grew from one version to a later one.

    Args:
        shares: as `escape_shares` orders them.
        fewest: rollouts that a share needs.
        growth: difference above which it is a warning.
    """
    found = []
    by_action: dict[str, list[EscapeShare]] = {}
    for share in shares:
        if share.rollouts >= fewest:
            by_action.setdefault(share.action, []).append(share)
    for action, line in by_action.items():
        lowest = line[0]
        for share in line[1:]:
            if share.share - lowest.share > growth + _ROUNDING:
                found.append(Escape(action, lowest, share))
                break
            lowest = min(lowest, share, key=lambda one: one.share)
    return tuple(found)


def as_json(shares: Sequence[EscapeShare]) -> list[Mapping[str, object]]:
    """The shares as JSON objects."""
    return [
        {"action": one.action, "model_version": one.model_version, "rollouts": one.rollouts, "excluded": one.excluded, "share": one.share}
        for one in shares
    ]


def _action_before(subject: RolloutSubject, attribution: Attribution) -> str:
    """The tool of the newest call up to the first evidence of the fault; of all calls where the evidence is none of the rollout's own."""
    version = {event.event_id: event.version for event in subject.own}
    first = min((version[event] for event in attribution.evidence_event_ids if event in version), default=len(version))
    calls: list[ToolCalled] = [body for event_id, body in subject.tools if version[event_id] <= first]
    return subject.text(calls[-1].name) if calls else NO_ACTION
