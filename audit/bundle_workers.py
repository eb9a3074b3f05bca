"""Decisions on bundles made in processes of their own, for worlds and verifiers that keep this one's only core busy. Starts processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.bundle_batch import BundleBatch
from audit.world_gate import WorldGate
from ledger.bundle import Bundle
from ledger.queries_rows import RolloutLine

if TYPE_CHECKING:
    from audit.bundle_gate import Decision, Gates

BUNDLES_EACH = 20
"""Fewer bundles than this are not worth the start of a process."""
Decide = Callable[[Bundle, Sequence[RolloutLine]], "Decision"]


@dataclass(frozen=True)
class Work:
    """What every decision of a batch needs."""

    gates: "Gates"
    world: WorldGate
    batch: BundleBatch

    def decide(self, bundle: Bundle, attempts: Sequence[RolloutLine]) -> "Decision":
        """The decision on one bundle."""
        return self.gates.decide(bundle, self.world, batch=self.batch, attempts=attempts)


def workers_for(bundles: int) -> int:
    """How many processes so many bundles are worth: 0 for none."""
    found = min(len(os.sched_getaffinity(0)), bundles // BUNDLES_EACH)
    return found if found > 1 else 0


@contextmanager
def deciders(work: Work, processes: int) -> Iterator[Decide]:
    """A function that decides, in one of so many processes, or in this one when there are none. It may be called from many threads."""
    if not processes:
        yield work.decide
        return
    # Started afresh: a fork would take along the connections and locks of this process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(work,)) as pool:
        yield lambda bundle, attempts: pool.submit(_decide, bundle, attempts).result()


_begun: list[Work] = []


def _begin(work: Work) -> None:
    _begun.append(work)


def _decide(bundle: Bundle, attempts: Sequence[RolloutLine]) -> "Decision":
    return _begun[-1].decide(bundle, attempts)
