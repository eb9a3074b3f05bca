"""The declaration that every weighting makes. Pure."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def slice_invariant(holds: bool) -> Callable[[F], F]:
    """A decorator that sets the attribute `slice_invariant`: whether re-cutting rollouts into rows changes neither weight nor gradient."""

    def declare(weigh: F) -> F:
        weigh.__dict__["slice_invariant"] = holds
        return weigh

    return declare
