"""Findings: what an audit says of one thing, with whose fault it is and the events that show it. Pure but for `raised`, which writes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from audit.results import shown
from audit.taxonomy import boundary_of
from ledger.events import Boundary, FindingRaised
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle

Level = Literal["info", "warning", "error"]
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
