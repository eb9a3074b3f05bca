"""What people decide about verdicts, about what turned out wrong and about whose text is forgotten, and what audits find."""

from typing import Literal

from pydantic import Field

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


class SubjectRecalled(EventBody):
    """A person withdraws trust from something that was recorded; nothing is changed by it, and what came of it can be counted.

    Attributes:
        subject: `<noun>-<id>`, such as `verifier-<digest>`; it is recalled once.
        counts: noun to number of what had come of it directly, up to `position`.
    """

    recall_id: Identifier
    subject: Name
    reason: BlobRef
    recalled_by: Identifier
    position: int = Field(ge=0)
    counts: dict[str, int] = Field(default_factory=dict)

    def stream(self) -> str:
        """`recall-<id>`."""
        return f"recall-{self.recall_id}"

    def key(self) -> str:
        """One a recall."""
        return "recalled"

    def edges(self) -> list[Edge]:
        """Recall to its subject."""
        return [Edge(self.stream(), self.subject, "recalls")]


class Rejudged(EventBody):
    """A rollout was judged again in place of a verdict that is no longer trusted; both verdicts stay."""

    rejudgement_id: Identifier
    rollout_id: Identifier
    old_verdict_id: Identifier
    new_verdict_id: Identifier
    recall_id: Identifier | None = None

    def stream(self) -> str:
        """`rejudgement-<id>`."""
        return f"rejudgement-{self.rejudgement_id}"

    def key(self) -> str:
        """One a rejudgement."""
        return "rejudged"

    def edges(self) -> list[Edge]:
        """Rejudgement to both verdicts and to the recall; the new verdict did not come from the old one."""
        me = self.stream()
        edges = [Edge(me, f"verdict-{self.old_verdict_id}", "replaces"), Edge(me, f"verdict-{self.new_verdict_id}", "replaced_by")]
        return edges if self.recall_id is None else [*edges, Edge(me, f"recall-{self.recall_id}", "follows")]
