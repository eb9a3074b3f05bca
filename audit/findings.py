"""Findings: what an audit says of one thing, with whose fault it is and the events that show it. Pure but for `raised`, which writes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from audit.results import shown
from audit.taxonomy import boundary_of
from ledger.events import Boundary, FindingRaised
from ledger.events.task import Severity
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle

Level = Literal["info", "warning", "error"]
LEVELS: Mapping[Severity, Level] = {"fail": "error", "warn": "warning", "advisory": "info"}
"""What a policy makes of a failure, as the level of its finding."""
_REASON_CHARS = 500


@dataclass(frozen=True)
class Finding:
    """What an audit says of one thing.

    Attributes:
        check: id of the check, or `attribution`.
        subject: stream of what it is about, such as `rollout-<id>`.
        fault: kind of fault, from `audit.taxonomy`; None for a remark that blames nobody.
        reason: in our own words, with the value seen and the value needed.
        level: info, warning or error.
        evidence_event_ids: events that show it, in the order in which they happened.
        measured: JSON of what was measured.
        method_id: digest of the check's source and parameters; None for what is no method.
        root: finding of which this one is a consequence; None for a root.
    """

    check: str
    subject: str
    fault: str | None
    reason: str
    level: Level = "error"
    evidence_event_ids: tuple[str, ...] = ()
    measured: Any = None
    method_id: str | None = None
    root: "Finding | None" = field(default=None, repr=False)

    @property
    def boundary(self) -> Boundary | None:
        """Whose fault it is; None where it blames nobody."""
        return None if self.fault is None else boundary_of(self.fault)

    def finding_id(self, ledger: LedgerHandle) -> str:
        """The same finding by the same method on the same evidence is the same event."""
        return derived_id(
            "finding", ledger.ledger_id, ledger.project, self.check, self.subject, self.fault, self.method_id, self.reason,
            list(self.evidence_event_ids),
        )  # fmt: skip


def raised(ledger: LedgerHandle, findings: Sequence[Finding]) -> int:
    """Append the findings, roots before their consequences; how many were new."""
    events = []
    for found in sorted(findings, key=lambda item: item.root is not None):
        blob = None if found.measured is None else ledger.pending_json(shown(found.measured))
        body = FindingRaised(
            finding_id=found.finding_id(ledger), check=found.check, subject=found.subject, severity=found.level,
            measured=None if blob is None else blob.ref, evidence_event_ids=list(found.evidence_event_ids), boundary=found.boundary,
            fault=found.fault, reason=found.reason[:_REASON_CHARS],
            root_finding_id=None if found.root is None else found.root.finding_id(ledger), method_id=found.method_id,
        )  # fmt: skip
        events.append(ledger.new(body, *([] if blob is None else [blob])))
    return sum(item.created for start in range(0, len(events), 200) for item in ledger.append(events[start : start + 200]).events)


def roots(failed: Sequence[str], explains: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Each failed check to the one that its failure comes from in the end: itself where no other failure explains it.

    Of several that explain one, the one comes first that itself has no explanation, then the one that explains the most of the others.

    Args:
        explains: check to the checks whose failure is a consequence of its own.
    """
    parents = {name: [other for other in failed if other != name and name in explains[other]] for name in failed}
    found: dict[str, str] = {}
    for name in failed:
        seen, at = {name}, name
        while above := [other for other in parents[at] if other not in seen]:
            at = min(above, key=lambda other: (bool(parents[other]), -len({*explains[other]} & {*failed}), other))
            seen.add(at)
        found[name] = at
    # What stands in a circle of explanations has one root, and a root has none.
    return {name: found[root] if found[root] != name else root for name, root in found.items()}
