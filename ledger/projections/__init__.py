"""Read models folded from the ordered log, one file each; rows and cursor commit together. Writes the read models and their cursors."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from psycopg.errors import LockNotAvailable

from ledger import order
from ledger.errors import UnknownId, WaitTimeout
from ledger.ledger import LedgerHandle
from ledger.projections import generations
from ledger.projections.generations import Generation, source_digest
from ledger.projections.read_model import ReadModel, Row, Rows, folded
from ledger.projections.registry import MODELS

__all__ = [
    "MODELS",
    "ReadModel",
    "Rebuilt",
    "Row",
    "Rows",
    "catch_up",
    "folded",
    "positions",
    "rebuild",
    "source_digest",
    "wait_projected",
]

BATCH = 50_000
SWAP_WAIT_S = 30.0
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild has done.

    Attributes:
        positions: name to the position that the view shows.
        dropped: tables of old generations that were dropped.
        left: tables of old generations that readers still hold; the next rebuild drops them.
    """

    positions: dict[str, int]
    dropped: int
    left: int


def catch_up(ledger: LedgerHandle, name: str | None = None, *, batch: int = BATCH) -> dict[str, int]:
    """Name to position of one read model or of all, each folded up to the highest position at the time it was looked at.

    A read model whose source has changed is folded again from the start into a new generation; readers see the old rows until that has
    caught up.

    Args:
        ledger: where to fold; all of its projects are.
        name: of the read model; None for all.
        batch: most positions folded in one transaction.
    Raises:
        UnknownId: no read model of that name.
        UnknownEventKind: an event is of a later release.
        WaitTimeout: a reader did not let go of a view that had to be replaced.
    """
    models = _chosen([] if name is None else [name])
    goal = order.high(ledger.pool)
    while True:
        with ledger.connection() as conn:
            shown = [g for g in generations.found(conn, models) if g.shown and g.current]
            stale = [model for model in models if all(g.model is not model for g in shown)]
            if any(g.position < goal for g in shown):
                # Those that another process has replaced meanwhile are gone, and looked for again.
                held = generations.locked(conn, shown)
                shown = generations.advance(conn, held, goal, batch) if held else []
        if stale:
            _renew(ledger, stale, batch, again=False)
        elif len(shown) == len(models) and all(g.position >= goal for g in shown):
            return {g.model.NAME: g.position for g in shown}


def rebuild(ledger: LedgerHandle, *names: str, batch: int = BATCH, progress: Progress | None = None) -> Rebuilt:
    """The read models of these names, or all, folded again from the start beside the ones that readers see, then shown all at once.

    A rebuild that was broken off goes on where it was.

    Args:
        ledger: where to fold.
        names: of read models.
        batch: most positions folded in one transaction.
        progress: called with the positions done and the positions there are.
    Raises:
        UnknownId: no read model of that name.
        UnknownEventKind: an event is of a later release.
        WaitTimeout: a reader did not let go of a view; the new rows are kept, and the next rebuild shows them.
    """
    dropped, left = _renew(ledger, _chosen(names), batch, again=True, progress=progress)
    at = positions(ledger)
    return Rebuilt({model.NAME: at[model.NAME] for model in _chosen(names)}, dropped, left)


def wait_projected(ledger: LedgerHandle, name: str, position: int, timeout_s: float = 10.0) -> int:
    """The position, at least `position`, that the read model has been folded up to; helps to order and to fold.

    Raises:
        UnknownId: no read model of that name.
        WaitTimeout: not there in time; it says nothing about what was written.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        order.step(ledger.pool)
        reached = catch_up(ledger, name)[name]
        if reached >= position:
            return reached
        if time.monotonic() > deadline:
            raise WaitTimeout(f"read model {name!r} is at position {reached} after {timeout_s} s; wanted {position}")
        time.sleep(0.01)


def positions(ledger: LedgerHandle) -> dict[str, int]:
    """Name to the position that readers of the read model see, 0 where it was never folded."""
    with ledger.connection() as conn:
        known = {g.model.NAME: g.position for g in generations.found(conn, MODELS.values()) if g.shown}
    return {name: known.get(name, 0) for name in MODELS}


def _chosen(names: Sequence[str]) -> list[ReadModel]:
    for name in names:
        if name not in MODELS:
            raise UnknownId(f"no read model {name!r}; there are {', '.join(MODELS)}")
    return [model for name, model in MODELS.items() if not names or name in names]


def _renew(
    ledger: LedgerHandle, models: Sequence[ReadModel], batch: int, *, again: bool, progress: Progress | None = None
) -> tuple[int, int]:
    """How many tables of old generations were dropped and left, after new ones have taken the place of those that were shown.

    Args:
        again: also where this release's source has folded what is shown.
    """
    dropped, _ = _sweep(ledger)
    with ledger.connection() as conn:
        building = generations.begin(conn, models, again=again)
    behind = True
    while behind:
        goal = order.high(ledger.pool)
        with ledger.connection() as conn:
            held = generations.locked(conn, building)
            # Another process may have shown them meanwhile, or something newer in their place.
            under_way = [g for g in held if not g.shown]
            if under_way:
                under_way = generations.advance(conn, under_way, goal, batch)
        reached = min((g.position for g in under_way), default=goal)
        behind = reached < goal
        if progress is not None:
            progress(reached, goal)
    with ledger.connection() as conn:
        generations.index(conn, building)
    _swap(ledger, building, batch)
    after, left = _sweep(ledger)
    return dropped + after, left


def _swap(ledger: LedgerHandle, building: Sequence[Generation], batch: int) -> None:
    deadline, pause = time.monotonic() + SWAP_WAIT_S, 0.02
    while True:
        try:
            with ledger.connection() as conn:
                generations.show(conn, building, order.high(ledger.pool), batch)
            return
        except LockNotAvailable as error:
            if time.monotonic() > deadline:
                views = ", ".join(generation.model.VIEW for generation in building)
                raise WaitTimeout(f"readers have held {views} for {SWAP_WAIT_S} s; they go on seeing the old rows") from error
        # The pauses grow, so that readers who queued behind an attempt get through before the next one.
        time.sleep(pause)
        pause = min(pause * 2, 1.0)


def _sweep(ledger: LedgerHandle) -> tuple[int, int]:
    """How many tables of generations that are over were dropped, and how many readers still hold."""
    models = list(MODELS.values())
    with ledger.connection() as conn:
        tables = generations.leftovers(conn, models)
    done = 0
    for table in tables:
        with ledger.connection() as conn:
            done += generations.drop_leftover(conn, models, table)
    return done, len(tables) - done
