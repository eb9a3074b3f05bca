"""Reading stored bodies: every version that ever existed stays readable, by upcast steps and never by edits."""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from ledger.canonical import parse
from ledger.errors import UnknownEventKind
from ledger.events import EVENT_CLASSES, EventBody

Step = Callable[[dict[str, Any]], dict[str, Any]]

CLASSES: dict[str, type[EventBody]] = {cls.__name__: cls for cls in EVENT_CLASSES}


def _tokens_by_commitment(body: dict[str, Any]) -> dict[str, Any]:
    """ModelCalled 1 to 2: the blob that held an array was named by what is now its commitment."""
    arrays = {name: body.get(name) for name in ("prompt_ids", "sampled_ids", "logprobs")}
    return body | {
        name: {"count": array["count"], "commitment": array["data"]["blob_id"]} for name, array in arrays.items() if array is not None
    }


STEPS: dict[tuple[str, int], Step] = {("ModelCalled", 1): _tokens_by_commitment}
"""(kind, version) to the function that makes a body of the next version out of one of this version."""


def decode(kind: str, schema_version: int, body: bytes) -> EventBody:
    """The body as the class of this release.

    Raises:
        UnknownEventKind: a kind this release does not know, a version newer than its own, or bytes that do not fit the schema.
    """
    cls = CLASSES.get(kind)
    if cls is None:
        raise UnknownEventKind(f"event kind {kind!r} is not known to this release; it knows {', '.join(sorted(CLASSES))}")
    if schema_version > cls.schema_version:
        raise UnknownEventKind(f"{kind} has schema version {schema_version}; this release reads up to {cls.schema_version}: upgrade it")
    value = parse(body)
    for version in range(schema_version, cls.schema_version):
        value = STEPS[kind, version](value)
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        raise UnknownEventKind(f"{kind} version {schema_version} does not fit its schema: {error.errors()[0]}") from error
