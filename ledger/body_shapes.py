"""Bodies as their classes without validating them again, for reading what was validated when it was written. Pure."""

from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from ledger.events import BlobRef, EventBody
from ledger.events.base import Grown

_set = object.__setattr__


def shaped(cls: type[EventBody], value: dict[str, Any], refs: list[str]) -> EventBody:
    """The body in a parsed JSON object, which becomes part of it; a field that is missing raises AttributeError where it is asked for.

    Fields that a class got later are left out where they have their defaults, so those are put in.

    Args:
        cls: its class.
        value: of the schema version of that class.
        refs: takes the ids of the blobs that it names.
    """
    body = _shaped(cls, value, refs)
    assert isinstance(body, EventBody)
    return body


def _shaped(cls: type[BaseModel], value: dict[str, Any], refs: list[str]) -> BaseModel:
    if cls is BlobRef:
        refs.append(value["blob_id"])
    for name, part in _nested(cls):
        held = value.get(name)
        if type(held) is dict:
            value[name] = _shaped(part, held, refs)
        elif held:
            value[name] = [_shaped(part, item, refs) for item in held]
    for name, default in _left_out(cls):
        value.setdefault(name, default)
    made = cls.__new__(cls)
    _set(made, "__dict__", value)
    return made


@cache
def _left_out(cls: type[BaseModel]) -> tuple[tuple[str, Any], ...]:
    later = cls.later if issubclass(cls, Grown) else frozenset[str]()
    return tuple((name, cls.model_fields[name].get_default(call_default_factory=True)) for name in sorted(later))


@cache
def _nested(cls: type[BaseModel]) -> tuple[tuple[str, type[BaseModel]], ...]:
    found = ((name, _model(field.annotation)) for name, field in cls.model_fields.items())
    return tuple((name, part) for name, part in found if part is not None)


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    parts = {part for part in map(_model, get_args(annotation)) if part is not None}
    if len(parts) > 1 or (parts and get_origin(annotation) is dict):
        raise TypeError(f"{annotation} holds models in a form that is not known; allowed: one model, or a list of it")
    return next(iter(parts), None)
