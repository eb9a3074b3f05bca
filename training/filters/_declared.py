"""What a filter needs beside the view as it was read. Pure."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def reads_trainer(keep: F) -> F:
    """The filter, declared to read `view.trainer_logprob_T`, which is computed for a round only where a filter of it reads it."""
    keep.__dict__["reads_trainer"] = True
    return keep


def judges_lag(keep: F) -> F:
    """The filter, declared to say which lag is too old: without one of these every rollout that is not on policy is left out."""
    keep.__dict__["judges_lag"] = True
    return keep
