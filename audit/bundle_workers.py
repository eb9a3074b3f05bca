"""How many bundles are worked on at once, and in which processes. Starts processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar

from training.worlds import World

P = ParamSpec("P")
Result = TypeVar("Result")
_BUNDLES_EACH = 20
"""Fewer bundles than this are not worth the start of a process."""
_THREADS = 2
_begun: list[Callable[..., Any]] = []


class Workers(NamedTuple):
    """Threads of this process that ask for decisions, and processes that make them; without any this one does."""

    threads: int = 1
    processes: int = 0


ONE = Workers()


def workers_for(world: World[Any], bundles: int) -> Workers:
    """What so many bundles are worth: threads where the world runs in processes of its own, else processes."""
    if hasattr(world, "close"):
        return Workers(_THREADS)
    found = min(len(os.sched_getaffinity(0)), bundles // _BUNDLES_EACH)
    return Workers(found, found) if found > 1 else ONE


@contextmanager
def apart(function: Callable[P, Result], processes: int) -> Iterator[Callable[P, Result]]:
    """The function as it is called in one of so many processes, from any thread; the function itself when there are none.

    Args:
        function: sent to each process once, so it and what is bound to it can be pickled.
    """
    if not processes:
        yield function
        return
    # Started afresh: a fork would take along the connections and locks of this process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(function,)) as pool:

        def called(*args: P.args, **kwargs: P.kwargs) -> Result:
            made: Result = pool.submit(_call, *args, **kwargs).result()
            return made

        yield called


def _begin(function: Callable[..., Any]) -> None:
    _begun.append(function)


def _call(*args: Any, **kwargs: Any) -> Any:
    return _begun[-1](*args, **kwargs)
