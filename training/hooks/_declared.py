"""The declarations that every hook makes. Pure."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def rewrites(does: bool, *, asks: bool = False) -> Callable[[F], F]:
    """A decorator that sets two attributes: `rewrites`, whether the hook may change what the conversation already holds, and `asks`,
    whether it may ask the model for a summary."""

    def declare(hook: F) -> F:
        hook.__dict__.update(rewrites=does, asks=asks)
        return hook

    return declare
