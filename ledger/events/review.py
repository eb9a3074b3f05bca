"""What people decide about verdicts, about what turned out wrong and about whose text is forgotten, and what audits find."""

from typing import ClassVar, Literal

from pydantic import Field

from ledger.events.base import BlobRef, Digest, Edge, EventBody, Finite, Grown, Identifier, Name, ShortText

Boundary = Literal["environment", "harness", "verifier", "task", "training"]
"""Whose fault a failure is; the order is that in which a tie is decided, training apart, which classifies updates."""


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


class FindingRaised(Grown, EventBody):
    """An audit's finding with the events that are its evidence.

    Attributes:
        check: id of the check that found it, or `attribution`.
        subject: stream of what it is about, such as `rollout-<id>` or `update-<id>`.
        boundary, fault: whose fault it is and of which kind, from `audit.taxonomy`; None where it names none.
        reason: in our own words, with the value seen and the value needed.
        root_finding_id: the finding of which this one is a consequence; None for a root.
        method_id: digest of the check's source and parameters.
    """

    later: ClassVar[frozenset[str]] = frozenset({"boundary", "fault", "reason", "root_finding_id", "method_id"})

    finding_id: Identifier
    check: Name
    subject: Name
    severity: Literal["info", "warning", "error"]
    measured: BlobRef | None
    evidence_event_ids: list[Identifier]
    boundary: Boundary | None = None
    fault: Name | None = None
    reason: ShortText = ""
    root_finding_id: Identifier | None = None
    method_id: Digest | None = None

    def stream(self) -> str:
        """`finding-<id>`."""
        return f"finding-{self.finding_id}"

    def key(self) -> str:
        """One a finding."""
        return "raised"

    def edges(self) -> list[Edge]:
        """Finding to its subject, and a consequence to its root."""
        edges = [Edge(self.stream(), self.subject, "concerns")]
        return edges if self.root_finding_id is None else [*edges, Edge(self.stream(), f"finding-{self.root_finding_id}", "follows_from")]


class ReviewRequested(EventBody):
    """Something waits for a person: what, why, and the events to look at.

    Attributes:
        subject: stream of what is to be looked at.
        queue: such as `verifier_disagreement`, `reward_hacking` or `counterexample`.
        priority: between 0 and 1; the highest comes first.
    """

    request_id: Identifier
    subject: Name
    queue: Name
    reason: BlobRef
    priority: Finite = Field(default=0.5, ge=0, le=1)
    evidence_event_ids: list[Identifier] = Field(default_factory=list)

    def stream(self) -> str:
        """`request-<id>`."""
        return f"request-{self.request_id}"

    def key(self) -> str:
        """One a request."""
        return "requested"

    def edges(self) -> list[Edge]:
        """Request to its subject."""
        return [Edge(self.stream(), self.subject, "concerns")]


class ClaimMade(EventBody):
    """A number that somebody states, with its source; what is measured here never shares a series with it.

    Attributes:
        metric: what is claimed, such as `success`.
        unit: of the value.
        source: where it is stated: a DOI, a URL, a run.
        stated_on: ISO date of the source; empty where it has none.
        axis: what the arms of a comparison were matched on: updates, tokens, compute, time or money; None where it is not said.
        boundary: what the claim covers and what it does not, in the source's terms, as a blob.
        subject: what it is about, such as a system or a model, by name.
        settings: of the claimed measurement: arms, split, samples and the like.
        replaces: the claim that this one corrects.
    """

    claim_id: Identifier
    subject: Name
    metric: Name
    value: Finite | None
    low: Finite | None = None
    high: Finite | None = None
    unit: ShortText = ""
    source: ShortText
    stated_on: ShortText = ""
    axis: Literal["updates", "tokens", "compute", "time", "money"] | None = None
    boundary: BlobRef
    settings: dict[str, int | Finite | str | None] = Field(default_factory=dict)
    replaces: Identifier | None = None

    def stream(self) -> str:
        """`claim-<id>`."""
        return f"claim-{self.claim_id}"

    def key(self) -> str:
        """One a claim."""
        return "made"

    def edges(self) -> list[Edge]:
        """Claim to the one that it corrects."""
        return [] if self.replaces is None else [Edge(self.stream(), f"claim-{self.replaces}", "corrects")]


class ArtifactProposed(EventBody):
    """Something that may become part of what is trusted, such as a counterexample of a verifier's regression set; not trusted yet.

    Attributes:
        artifact_kind: such as `counterexample`.
        parent: stream of what it would become part of, such as `verifier-name-<name>`.
        content: JSON of it.
        proposer: who or what proposes it.
    """

    artifact_id: Identifier
    artifact_kind: Name
    parent: Name
    content: BlobRef
    proposer: Identifier
    evidence_event_ids: list[Identifier] = Field(default_factory=list)

    def stream(self) -> str:
        """`artifact-<id>`."""
        return f"artifact-{self.artifact_id}"

    def key(self) -> str:
        """One an artifact."""
        return "proposed"

    def edges(self) -> list[Edge]:
        """Artifact to what it would become part of."""
        return [Edge(self.stream(), self.parent, "extends")]


class ArtifactPromoted(EventBody):
    """A person or a gate made an artifact part of what is trusted, or refused it.

    Attributes:
        promoted: False for a refusal.
        decided_by: pseudonym of the person, or id of the gate.
        reason: as a blob.
    """

    artifact_id: Identifier
    promoted: bool
    decided_by: Identifier
    reason: BlobRef

    def stream(self) -> str:
        """`artifact-<id>`."""
        return f"artifact-{self.artifact_id}"

    def key(self) -> str:
        """One an artifact: a decision stands."""
        return "decided"


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
