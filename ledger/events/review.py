"""What people decide about disagreeing verdicts and about whose text is forgotten, and what audits find."""

from typing import Literal

from ledger.events.base import BlobRef, Edge, EventBody, Identifier, Name


class ReviewDecided(EventBody):
    """A person settles a disagreement about a rollout, with a reason."""

    review_id: Identifier
    rollout_id: Identifier
    verdict_ids: list[Identifier]
    reviewer_id: Identifier
    decision: Literal["passed", "failed", "unclear"]
    right_verdict_id: Identifier | None
    reason: BlobRef

    def stream(self) -> str:
        """`review-<id>`."""
        return f"review-{self.review_id}"

    def key(self) -> str:
        """One a review."""
        return "decided"

    def edges(self) -> list[Edge]:
        """Review to the rollout and the verdicts it settles."""
        edges = [Edge(self.stream(), f"rollout-{self.rollout_id}", "reviews")]
        return edges + [Edge(self.stream(), f"verdict-{verdict}", "settles") for verdict in self.verdict_ids]


class SubjectShredded(EventBody):
    """A subject's salt and key are destroyed: what was encrypted under them cannot be read any more, and every proof stays valid."""

    subject_id: Identifier
    reason: Literal["erasure_request", "retention_over", "secret_stored", "stored_by_mistake"]

    def stream(self) -> str:
        """`subject-<id>`."""
        return f"subject-{self.subject_id}"

    def key(self) -> str:
        """One a subject."""
        return "shredded"


class FindingRaised(EventBody):
    """An audit's finding with the events that are its evidence."""

    finding_id: Identifier
    check: Name
    subject: Name
    severity: Literal["info", "warning", "error"]
    measured: BlobRef | None
    evidence_event_ids: list[Identifier]

    def stream(self) -> str:
        """`finding-<id>`."""
        return f"finding-{self.finding_id}"

    def key(self) -> str:
        """One a finding."""
        return "raised"

    def edges(self) -> list[Edge]:
        """Finding to its subject."""
        return [Edge(self.stream(), self.subject, "concerns")]
