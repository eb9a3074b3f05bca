"""Model calls: the intent before the upstream is asked, then what really went in and came out."""

from typing import ClassVar, Literal

from pydantic import Field

from ledger.events.base import BlobRef, Digest, Edge, EventBody, Fields, Finite, Identifier, Name, ShortText

CallRole = Literal[
    "agent", "sub_agent", "summary", "judge", "reward_model", "world_model", "proposer", "teacher", "simulated_user", "unknown"
]
ErrorSource = Literal["provider", "engine", "gateway", "client"]


def call_stream(rollout_id: str | None, call_id: str) -> str:
    """The rollout's stream, or a stream of the call's own when nobody says which rollout it belongs to."""
    return f"unattributed-{call_id}" if rollout_id is None else f"rollout-{rollout_id}"


def dispatched_key(call_id: str) -> str:
    """The key of a call's ModelCallDispatched in its stream."""
    return f"dispatched:{call_id}"


def called_key(call_id: str) -> str:
    """The key of a call's ModelCalled in its stream."""
    return f"called:{call_id}"


class TokenArray(Fields):
    """Token ids or logprobs kept in the token tables: their number, and hex SHA-256 over the subject's salt and the array's bytes.

    The bytes are little-endian, int32 for ids and float32 for logprobs.
    """

    count: int = Field(ge=0)
    commitment: Digest


class VersionSpan(Fields):
    """Sampled tokens `start` to `end` (half open) came from the weights of `model_version`."""

    model_version: Identifier
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class ModelCallDispatched(EventBody):
    """A request is about to be sent upstream; without its ModelCalled it is a dangling intent.

    `request_digest` covers the request's salted commitment, its participant and its role; `retry_key` commits to the client's
    idempotency key.
    """

    call_id: Identifier
    rollout_id: Identifier | None
    index: int = Field(ge=0)
    participant: Name
    role: CallRole
    request: BlobRef
    request_digest: Digest
    upstream: ShortText
    model: ShortText
    stream_requested: bool
    retry_of: Identifier | None = None
    retry_key: Digest | None = None
    added_fields: list[str] = Field(default_factory=list)

    def stream(self) -> str:
        """The rollout's stream, or one of its own."""
        return call_stream(self.rollout_id, self.call_id)

    def key(self) -> str:
        """One a call."""
        return dispatched_key(self.call_id)


class ModelCalled(EventBody):
    """The answer to a dispatched call, or the error in its place.

    `status` is completed, upstream_error, timeout, client_aborted, capture_mismatch or interrupted. Token arrays and logprobs are None
    where the upstream does not give them, with the reason in `tokens_missing`. In version 1 each array was a blob of its own.
    """

    schema_version: ClassVar[int] = 2

    call_id: Identifier
    rollout_id: Identifier | None
    index: int = Field(ge=0)
    participant: Name
    role: CallRole
    status: Literal["completed", "upstream_error", "timeout", "client_aborted", "capture_mismatch", "interrupted"]
    error_source: ErrorSource | None = None
    error: BlobRef | None = None
    http_status: int | None = None
    response: BlobRef | None = None
    prompt_ids: TokenArray | None = None
    sampled_ids: TokenArray | None = None
    logprobs: TokenArray | None = None
    logprobs_mode: Name | None = None
    tokens_missing: ShortText | None = None
    finish_reason: Name | None = None
    sampling: dict[str, int | float | str | bool | None] = Field(default_factory=dict)
    usage: dict[str, int | None] = Field(default_factory=dict)
    version_spans: list[VersionSpan] = Field(default_factory=list)
    attempts: int = Field(ge=0)
    latency_s: Finite
    queued_s: Finite = 0.0
    stream_complete: bool | None = None

    def stream(self) -> str:
        """The rollout's stream, or one of its own."""
        return call_stream(self.rollout_id, self.call_id)

    def key(self) -> str:
        """One a call."""
        return called_key(self.call_id)

    def edges(self) -> list[Edge]:
        """Call to its rollout and to the model versions that sampled it."""
        edges = [] if self.rollout_id is None else [Edge(f"call-{self.call_id}", f"rollout-{self.rollout_id}", "made_in")]
        models = sorted({span.model_version for span in self.version_spans})
        return edges + [Edge(f"call-{self.call_id}", f"model-{model}", "sampled_by") for model in models]
