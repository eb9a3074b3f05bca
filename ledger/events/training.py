"""Runs and model versions."""

from ledger.events.base import BlobRef, Digest, Edge, EventBody, Identifier, Name


class RunConfigured(EventBody):
    """A run begins: its experiment digest and the whole configuration it was started with."""

    run_id: Identifier
    experiment_id: Identifier
    name: Name
    config: BlobRef
    config_digest: Digest
    root_seed: int

    def stream(self) -> str:
        """`run-<id>`."""
        return f"run-{self.run_id}"

    def key(self) -> str:
        """One a run."""
        return "configured"


class ModelVersionPublished(EventBody):
    """Weights, tokenizer and template that together are one model version; scripted policies have their source instead."""

    model_version: Identifier
    name: Name
    weights_digest: Digest | None
    tokenizer_digest: Digest | None
    template_digest: Digest | None
    source: BlobRef | None = None
    scripted: bool
    parent: Identifier | None = None
    licence: Name | None = None

    def stream(self) -> str:
        """`model-<version>`."""
        return f"model-{self.model_version}"

    def key(self) -> str:
        """One a version."""
        return "published"

    def edges(self) -> list[Edge]:
        """Model version to its parent."""
        return [] if self.parent is None else [Edge(self.stream(), f"model-{self.parent}", "trained_from")]
