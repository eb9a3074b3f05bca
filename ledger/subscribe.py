"""Following the log: batches of ordered events as they come, and consumers whose position commits with what they wrote. Reads the database.

`consume` and `follow` also write what their handler writes, and the consumer's cursor.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import psycopg

from ledger import order
from ledger.errors import LedgerUnavailable
from ledger.ledger import LedgerHandle
from ledger.order import Recorded

CHANNEL = "tally_ordered"
Connection = psycopg.Connection[Any]
Handler = Callable[[Connection, Sequence[Recorded]], None]


@dataclass
class Counters:
    """How a subscription learnt of events: told by a notification, or only found by looking; and how often it had to connect again."""

    told: int = 0
    found: int = 0
    reconnected: int = 0


class Subscription:
    """Batches of ordered events above a position, each event once and in order, for as long as it is iterated.

    The ordering step notifies once for each batch that it orders; the subscription also looks by itself every `poll_s`, and helps to
    order, so a lost notification or a missing sequencer costs time and never an event. Use it as `with subscribe(ledger) as batches`.

    Attributes:
        position: of the last event that was handed out; kept by the caller, it is where the next subscription goes on.
        counters: how events were learnt of.
    """

    def __init__(self, ledger: LedgerHandle, since: int, kinds: Sequence[str] | None, batch: int, poll_s: float) -> None:
        self.ledger, self.position, self.kinds, self.batch, self.poll_s = ledger, since, kinds, batch, poll_s
        self.counters = Counters()
        self._conn: Connection | None = None
        self._closed = False

    def __enter__(self) -> "Subscription":
        self._listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration, from any thread, within `poll_s`."""
        self._closed = True

    def __iter__(self) -> Iterator[list[Recorded]]:
        told = False
        try:
            while not self._closed:
                order.step(self.ledger.pool)
                goal = order.high(self.ledger.pool)
                while self.position < goal and not self._closed:
                    events = self._read(goal)
                    self.position = (events[-1].position or goal) if len(events) == self.batch else goal
                    if events:
                        self.counters.told += told
                        self.counters.found += not told
                        yield events
                told = not self._closed and self._wait()
        finally:
            if self._conn is not None:
                self._conn.close()

    def _read(self, goal: int) -> list[Recorded]:
        return order.read(self.ledger.pool, self.ledger.project, self.position, kinds=self.kinds, limit=self.batch, until=goal)

    def _listen(self) -> None:
        self._conn = psycopg.connect(self.ledger.url, autocommit=True, application_name="tallystick-subscription")
        self._conn.execute(f"LISTEN {CHANNEL}")

    def _wait(self) -> bool:
        try:
            if self._conn is None:
                self._listen()
                self.counters.reconnected += 1
            assert self._conn is not None
            return any(True for _ in self._conn.notifies(timeout=self.poll_s, stop_after=1))
        except psycopg.OperationalError:
            self._conn = None
            time.sleep(self.poll_s)
            return False


def subscribe(
    ledger: LedgerHandle, since: int = 0, *, kinds: Sequence[str] | None = None, batch: int = 1000, poll_s: float = 0.1
) -> Subscription:
    """Ordered events of the handle's project above `since`, as they come, in batches.

    Args:
        ledger: whose events.
        since: position of the last event already seen.
        kinds: of event wanted; None for all.
        batch: most events at a time.
        poll_s: seconds between looks when no notification comes.
    """
    return Subscription(ledger, since, kinds, batch, poll_s)


def consume(ledger: LedgerHandle, name: str, handle: Handler, *, kinds: Sequence[str] | None = None, batch: int = 1000) -> int:
    """The position of the consumer after one batch; its cursor commits in the transaction in which `handle` writes.

    So each event has its effect exactly once, whatever dies in between, and of several processes with one name one works at a time.

    Args:
        ledger: whose events.
        name: of the consumer.
        handle: called with the transaction's connection and the next events, at most once; what it raises undoes the batch.
        kinds: of event wanted; None for all.
        batch: most events at a time.
    """
    order.step(ledger.pool)
    with ledger.connection() as conn:
        conn.execute("INSERT INTO consumer_cursor (name, position) VALUES (%s, 0) ON CONFLICT DO NOTHING", (name,))
        row = conn.execute("SELECT position FROM consumer_cursor WHERE name = %s FOR UPDATE", (name,)).fetchone()
        if row is None:
            raise LedgerUnavailable(f"the cursor of consumer {name!r} vanished")
        goal = order.high_in(conn)
        query = order.read_query(ledger.project, int(row[0]), kinds=kinds, limit=batch, until=goal)
        events = [order.recorded(found) for found in conn.execute(*query)]
        reached = (events[-1].position or goal) if len(events) == batch else max(goal, int(row[0]))
        if events:
            handle(conn, events)
        if reached != row[0]:
            conn.execute("UPDATE consumer_cursor SET position = %s WHERE name = %s", (reached, name))
    return reached


def follow(
    ledger: LedgerHandle, name: str, handle: Handler, *, kinds: Sequence[str] | None = None, stop: Callable[[], bool], poll_s: float = 0.1
) -> int:
    """The position reached when `stop` says so: `consume` again and again, woken by the ordering step.

    Args:
        ledger, name, handle, kinds: as for `consume`.
        stop: asked between batches and at least every `poll_s`.
        poll_s: seconds between looks when no notification comes.
    """
    with psycopg.connect(ledger.url, autocommit=True, application_name="tallystick-consumer") as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        reached = 0
        while not stop():
            reached = consume(ledger, name, handle, kinds=kinds)
            if reached >= order.high(ledger.pool):
                any(True for _ in listener.notifies(timeout=poll_s, stop_after=1))
    return reached
