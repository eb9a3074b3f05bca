"""A sequencer that is killed: orders whatever is committed, again and again. Run as a program."""

import sys
import time

import psycopg

from ledger import order
from ledger.errors import LedgerUnavailable
from ledger.ledger import open_ledger


def main(url: str) -> None:
    """Order in small steps until killed."""
    with open_ledger(url, project="test", actor_id="sequencer", pool_size=1) as ledger:
        while True:
            order.step(ledger.pool, max_events=50)
            time.sleep(0.001)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (psycopg.OperationalError, LedgerUnavailable):
        sys.exit(3)
