"""What all event bodies share: strict fields, the stream and key they belong to, the edges and blobs they name."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from ledger.canonical import validated_bytes

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$")]
Name = Annotated[str, Field(min_length=1, max_length=200)]
ShortText = Annotated[str, Field(max_length=500)]


Finite = Annotated[float, Field(allow_inf_nan=False)]


class Edge(NamedTuple):
    """`child` came from `parent`; both are stream names `<noun>-<id>`, or `call-<id>` for a model call.

    `weight` is set where the parent's share in the child is a number: the weight that a reward had in a loss.
    """

    child: str
    parent: str
    relation: str
    weight: float | None = None


class Fields(BaseModel):
    """Base of everything inside a body: strict, frozen, no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _mark_later(schema: dict[str, Any], cls: type[Any]) -> None:
    for name in cls.later:
        schema["properties"][name]["later"] = True


class Grown(Fields):
    """Base of what got fields later: `later` names them, and each is left out of the canonical form while it has its default.

    So what was written before it had the field and what is written now without using it have the same bytes and the same hash.
    """

    model_config = ConfigDict(json_schema_extra=_mark_later)
    later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _used(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = serialize(self)
        for name, default in _later_defaults(type(self)):
            if getattr(self, name) == default:
                data.pop(name, None)
        return data


class BlobRef(Fields):
    """A reference to bytes kept outside the body.

    Attributes:
        blob_id: hex SHA-256 over the subject's salt and the bytes.
        size: number of bytes.
        media: MIME type, or int32 / float32 for little-endian arrays.
    """

    blob_id: Digest
    size: int = Field(ge=0)
    media: str = Field(max_length=100)


class EventBody(Fields):
    """Base of all event bodies; the class name is the event's kind."""

    schema_version: ClassVar[int] = 1

    @property
    def kind(self) -> str:
        """The event's kind: the class name."""
        return type(self).__name__

    def stream(self) -> str:
        """The stream that the event is appended to."""
        raise LookupError(f"{self.kind} does not name its stream")

    def key(self) -> str:
        """The idempotency key within the stream."""
        raise LookupError(f"{self.kind} does not name its key")

    def canonical_bytes(self) -> bytes:
        """The body in canonical form: what is hashed and stored.

        Raises:
            CanonicalError: it has none.
        """
        return validated_bytes(self.__pydantic_serializer__.to_python(self, mode="json"), integers=_has_integers(type(self)))

    def edges(self) -> list[Edge]:
        """Lineage that the event states."""
        return []

    def blobs(self) -> list[BlobRef]:
        """All blobs that the body refers to, in field order."""
        return list(_blobs_in(self))


def _blobs_in(value: Any) -> Iterator[BlobRef]:
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, BaseModel):
        for name in _blob_fields(type(value)):
            yield from _blobs_in(getattr(value, name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _blobs_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _blobs_in(item)


@cache
def _later_defaults(cls: type[Grown]) -> tuple[tuple[str, Any], ...]:
    """The fields that a class got later, each with its default, which is only ever compared with."""
    return tuple((name, cls.model_fields[name].get_default(call_default_factory=True)) for name in sorted(cls.later))


@cache
def _has_integers(cls: type[BaseModel]) -> bool:
    return "'integer'" in str(cls.model_json_schema())


@cache
def _blob_fields(cls: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, field in cls.model_fields.items() if _may_hold_blobs(field.annotation))


def _may_hold_blobs(annotation: Any) -> bool:
    if annotation is BlobRef:
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return bool(_blob_fields(annotation))
    return any(_may_hold_blobs(part) for part in get_args(annotation))


class LedgerCreated(EventBody):
    """The first event of a ledger; its id is in every later key."""

    ledger_id: Identifier
    software: Name

    def stream(self) -> str:
        """`ledger-<id>`."""
        return f"ledger-{self.ledger_id}"

    def key(self) -> str:
        """One a ledger."""
        return "created"


class LogForked(EventBody):
    """The log goes on under a new name, because the database no longer holds what its last checkpoints covered.

    Attributes:
        fork: number of the fork, from 1.
        origin: name of the log from here on.
        previous_origin: name that the log had.
        common_size: number of events in the newest published checkpoint that the database still agrees with; 0 for none.
        common_root: its root.
        lost_size: number of events in the largest published checkpoint of the previous name, which it does not agree with.
        lost_root: its root.
    """

    ledger_id: Identifier
    fork: int = Field(ge=1)
    origin: Name
    previous_origin: Name
    common_size: int = Field(ge=0)
    common_root: Digest
    lost_size: int = Field(ge=1)
    lost_root: Digest

    def stream(self) -> str:
        """`ledger-<id>`."""
        return f"ledger-{self.ledger_id}"

    def key(self) -> str:
        """One a fork."""
        return f"fork-{self.fork}"
