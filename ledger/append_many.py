"""Long runs of events: while one transaction is written, the next is made ready. Writes the database from a thread of its own."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from ledger.ledger import LedgerHandle
from ledger.store import New, Receipt

EVENTS = 1000


def append_many(ledger: LedgerHandle, events: Iterable[New], *, events_each: int = EVENTS) -> Iterator[Receipt]:
    """Receipts of transactions of `events_each` events, in order; each is durable when it is handed out.

    Args:
        ledger: to append to.
        events: read only as far as they are needed.
        events_each: events in a transaction; the last may have fewer.
    Raises:
        TallyError: as for `LedgerHandle.append`; the transaction in question is not written, those handed out before it are.
    """
    source = iter(events)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tally-append-many") as thread:
        under_way: Future[Receipt] | None = None
        while chunk := list(islice(source, events_each)):
            batch = ledger.prepare(chunk)
            if under_way is not None:
                yield under_way.result()
            under_way = thread.submit(ledger.append_prepared, batch)
        if under_way is not None:
            yield under_way.result()
