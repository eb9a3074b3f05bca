"""eventsourcing's PostgresApplicationRecorder, with the table lock that its order rests on, under concurrent writers. Writes the database.

It prints `{"events_per_s": …}`. Calls stay far below the ~1 MB in one pipeline message at which psycopg 3.3 waits for ever.
"""

import argparse
import hashlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from importlib.metadata import version

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
from psycopg.conninfo import conninfo_to_dict

MOST_BYTES_A_CALL = 256 * 1024


def body(writer: int, n: int, size: int) -> bytes:
    """Canonical JSON of about `size` bytes that no other event has."""
    seed = hashlib.sha256(f"{writer}-{n}".encode()).hexdigest()
    fields = {"call_id": seed, "index": n, "participant": "policy", "text": (seed * (size // 64 + 1))[: size - 150], "writer": writer}
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def calls(writer: int, events_a_call: int, size: int) -> Iterator[list[StoredEvent]]:
    """What one writer appends: 30 events to a stream, then the next stream."""
    n = 0
    while True:
        streams = [uuid.uuid5(uuid.NAMESPACE_OID, f"{writer}-{k // 30}") for k in range(n, n + events_a_call)]
        yield [
            StoredEvent(
                originator_id=stream, originator_version=(n + k) % 30 + 1, topic="tallystick:ModelCalled", state=body(writer, n + k, size)
            )
            for k, stream in enumerate(streams)
        ]
        n += events_a_call


def main(options: argparse.Namespace) -> dict[str, object]:
    """What the writers did together."""
    if options.events_a_call * options.body_bytes > MOST_BYTES_A_CALL:
        raise SystemExit(
            f"{options.events_a_call} events of {options.body_bytes} bytes a call; allowed: {MOST_BYTES_A_CALL} bytes, or psycopg hangs"
        )
    at = conninfo_to_dict(options.database_url)
    datastore = PostgresDatastore(
        str(at["dbname"]), str(at["host"]), str(at.get("port", 5432)), str(at["user"]), str(at.get("password", "")),
        pool_size=options.writers, connect_timeout=30.0,
    )  # fmt: skip
    recorder = PostgresApplicationRecorder(datastore)
    recorder.create_table()
    counts, latencies = [0] * options.writers, [[0.0] for _ in range(options.writers)]
    start = threading.Barrier(options.writers + 1)
    end = threading.Event()

    def write(writer: int) -> None:
        todo = calls(writer, options.events_a_call, options.body_bytes)
        start.wait()
        while not end.is_set():
            events = next(todo)
            began = time.perf_counter()
            recorder.insert_events(events)
            latencies[writer].append(time.perf_counter() - began)
            counts[writer] += len(events)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(options.writers)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    end.wait(options.seconds)
    end.set()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    with datastore.transaction() as cursor:
        cursor.execute("SELECT count(*) AS n FROM stored_events")
        stored = cursor.fetchone()["n"]
    datastore.close()
    if stored != sum(counts):
        raise SystemExit(f"{sum(counts)} events were acknowledged, {stored} are stored")
    taken = sorted(value for mine in latencies for value in mine[1:])
    return {
        "events": stored, "seconds": seconds, "events_per_s": stored / seconds, "p50_ms": 1000 * taken[len(taken) // 2],
        "p99_ms": 1000 * taken[int(0.99 * len(taken))], "version": version("eventsourcing"),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True, help="an empty database")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--events-a-call", type=int, default=1)
    parser.add_argument("--body-bytes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0)
    print(json.dumps(main(parser.parse_args())))
