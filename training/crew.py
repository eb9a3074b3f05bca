"""Processes that have an experiment open too, for work whose results do not depend on where it is done. Starts processes."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Concatenate, ParamSpec, TypeVar

from ledger.connect import connect
from ledger.errors import TallyError
from ledger.settings import Settings
from training.lab import Lab
from training.run_config import RunConfig

P = ParamSpec("P")
Item = TypeVar("Item")
Result = TypeVar("Result")
_ITEMS_EACH = 48
"""Less work than this is not worth the start of a process."""
_ORPHANED_S = 0.5
_mine: list[Lab] = []


class Crew:
    """So many processes with the experiment and its ledger open; must be closed. They end when this process does, however it ends."""

    def __init__(self, config: RunConfig, settings: Settings, processes: int) -> None:
        self.processes = processes
        # Started afresh: a fork would take along the connections and locks of this process.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(config, settings, os.getpid()))

    def each(
        self, function: Callable[Concatenate[Lab, Sequence[Item], P], Result], items: Sequence[Item], *args: P.args, **kwargs: P.kwargs
    ) -> list[Result]:
        """What a function gives for the shares of the items, one a process.

        Args:
            function: called in the other processes with their laboratory, a share of the items and the arguments; like those, and like
                what it gives, it can be pickled.
        Raises:
            TallyError: a process ended before its work did.
        """
        shares = [items[first :: self.processes] for first in range(min(self.processes, len(items)))]
        doing: list[Future[Result]] = [self._pool.submit(_do, function, share, *args, **kwargs) for share in shares]
        try:
            return [future.result() for future in doing]
        except BrokenProcessPool as error:
            raise TallyError("a process that shared the work ended early; what it began is done anew by the next try") from error

    def close(self) -> None:
        """Wait for what is under way, then end the processes."""
        self._pool.shutdown(cancel_futures=True)


def crew_of(lab: Lab, items: int) -> Crew | None:
    """The laboratory's crew, started where it is not; None where so many items, or so few cores, are not worth one."""
    processes = lab.settings.processes or len(os.sched_getaffinity(0))
    if min(processes, items // _ITEMS_EACH) < 2:
        return None
    if lab.crew is None:
        crew = Crew(lab.config, lab.settings, processes)
        lab.closing(crew.close)
        lab.crew = crew
    return lab.crew


def _begin(config: RunConfig, settings: Settings, parent: int) -> None:
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    _mine.append(Lab(config, connect(settings), settings))


def _follow(parent: int) -> None:
    """End with the process that this one works for: it would wait for work for ever."""
    while os.getppid() == parent:
        time.sleep(_ORPHANED_S)
    os._exit(1)


def _do(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(_mine[-1], *args, **kwargs)
