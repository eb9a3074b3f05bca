"""A writer that is killed: appends until it dies and notes every event it got a receipt for. Run as a program."""

import os
import random
import sys
import time

import psycopg

from ledger import store
from ledger.errors import LedgerUnavailable
from ledger.events import RewardDerived
from ledger.ledger import open_ledger


class GivenUp(Exception):
    """The transaction is rolled back, so the ids that it took stay holes."""


def main(url: str, acknowledged: str, seed: int, commit: str) -> None:
    """Append random batches; some are given up half-way, some are held open for a while.

    Args:
        url: of the database.
        acknowledged: file that gets one line an event: its id.
        seed: of what is done.
        commit: synchronous_commit of this writer: on, or off for the control that must lose.
    """
    rng = random.Random(seed)
    file = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with open_ledger(url, project="test", actor_id=f"writer-{seed}") as ledger:
        serial = 0
        while True:
            size = rng.choice((1, 1, 1, 2, 5, 60))
            serial += size
            events = [
                ledger.new(
                    RewardDerived(
                        reward_id=f"{seed}-{os.getpid()}-{serial - n}", rollout_id=f"r{rng.randrange(50)}", rule="rule", rule_id="0" * 64,
                        verdict_ids=[], value=rng.random(), reason="x" * rng.randrange(300),
                    )
                )
                for n in range(size)
            ]  # fmt: skip
            try:
                with psycopg.connect(url, options=f"-c synchronous_commit={commit}") if commit == "off" else ledger.connection() as conn:
                    receipt = store.append(conn, ledger.ledger_id, "test", events)
                    if rng.random() < 0.05:
                        time.sleep(rng.random() * 0.05)
                    if rng.random() < 0.1:
                        raise GivenUp
            except GivenUp:
                continue
            os.write(file, "".join(f"{item.event_id}\n" for item in receipt.events).encode())


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    except (psycopg.OperationalError, LedgerUnavailable):
        sys.exit(3)
