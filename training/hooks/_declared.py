"""The declaration that every hook makes. Pure."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def rewrites(does: bool) -> Callable[[F], F]:
    """A decorator that sets the attribute `rewrites`: whether the hook may change what the conversation already holds."""

    def declare(hook: F) -> F:
        hook.__dict__["rewrites"] = does
        return hook

    return declare
