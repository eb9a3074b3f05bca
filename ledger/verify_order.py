"""Verification of the order: positions dense, and every row of the ordering step derived again from those before it. Reads the database."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg

from ledger.verify_report import Problem

Connection = psycopg.Connection[Any]
_STEPS = "SELECT step, high, position, ordered, holes, hole_bounds, dead FROM order_step ORDER BY step"


class _Step(NamedTuple):
    step: int
    high: int
    position: int
    ordered: int
    holes: tuple[int, ...]
    hole_bounds: tuple[int, ...]
    dead: int


class StepPass:
    """Follows the ordering step by step while somebody else goes over positions; `problems` holds what did not fit so far.

    Only the transaction ids in `hole_bounds` cannot be derived; where a hole stays, its bound must stay too.
    """

    def __init__(self, conn: Connection) -> None:
        self.problems: list[Problem] = []
        self._cursor = psycopg.ServerCursor(conn, "verify_steps")
        self._cursor.execute(_STEPS)
        self._steps = self._read()
        self._before = _Step(0, 0, 0, 0, (), (), 0)
        self._step = next(self._steps, None)
        self._ids: list[int] = []

    def feed(self, position: int, ident: int) -> None:
        """Take the next position, with the id of its event."""
        while self._step is not None and position > self._step.position:
            self._end(self._step)
        self._ids.append(ident)

    def close(self, position: int) -> None:
        """All positions, up to this one, have been given."""
        while self._step is not None:
            self._end(self._step)
        self._cursor.close()
        if self._before.position != position or self._ids:
            self.problems.append(
                Problem(None, "ordering step", f"it says that {self._before.position} events are ordered; there are {position}")
            )

    def _read(self) -> Iterator[_Step]:
        while rows := self._cursor.fetchmany(1000):
            for row in rows:
                yield _Step(row[0], row[1], row[2], row[3], tuple(row[4]), tuple(row[5]), row[6])

    def _end(self, step: _Step) -> None:
        """Compare a step with what follows from the one before it and from the events that it ordered."""
        before, ids = self._before, self._ids
        subject = f"step {step.step} of the order, positions {before.position + 1} to {step.position}"
        if step.step != before.step + 1:
            self.problems.append(Problem(before.position + 1, subject, f"it follows step {before.step}"))
        late = set(before.holes)
        fresh = [ident for ident in ids if ident not in late]
        gone = late.difference(ids)
        high = max([before.high, *fresh])
        opened = set(range(before.high + 1, high + 1)).difference(fresh) if high - before.high < 10_000_000 else set(step.holes)
        held = [(hole, bound) for hole, bound in zip(before.holes, before.hole_bounds, strict=False) if hole in gone]
        kept = [(hole, bound) for hole, bound in zip(step.holes, step.hole_bounds, strict=False) if hole <= before.high]
        new = [(hole, bound) for hole, bound in zip(step.holes, step.hole_bounds, strict=False) if hole > before.high]
        # A restore sets bounds to 0: the transactions that they name are gone with the other server.
        bounds = dict(held)
        as_before = all(hole in bounds and bound in (bounds[hole], 0) for hole, bound in kept)
        faults = [
            ("positions", step.position == before.position + len(ids) == before.position + step.ordered),
            ("ids ascending", ids == sorted(set(ids)) and all(ident > before.high for ident in fresh)),
            ("high", step.high == high),
            ("holes", as_before and [hole for hole, _ in new] == sorted(opened) and len(step.holes) == len(step.hole_bounds)),
            ("hole bounds", len({bound for _, bound in new}) <= 1 and all(bound <= new[0][1] for _, bound in held[:1] if new)),
            ("dead", step.dead == before.dead + len(held) - len(kept)),
        ]
        wrong = [what for what, fits in faults if not fits]
        if wrong:
            self.problems.append(Problem(before.position + 1, subject, f"{', '.join(wrong)}: not what follows from step {before.step}"))
        self._before, self._ids, self._step = step, [], next(self._steps, None)
