"""MLflow's tracing with PostgreSQL as its store: rollouts of ten spans, each stored when its call returns. Writes the database, runs a process.

It prints `{"spans_per_s": …}`, counted in MLflow's own table. Default: the client writes to the store itself, which is the faster way; `--server` puts
`mlflow server` between them, as teams run it.
"""

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from importlib.metadata import version

os.environ.update(
    MLFLOW_ENABLE_ASYNC_TRACE_LOGGING="false",
    MLFLOW_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="true",
    GIT_PYTHON_REFRESH="quiet",
    MLFLOW_LOGGING_LEVEL="ERROR",
)

import mlflow
import psycopg2


def start_server(database_url: str) -> tuple["subprocess.Popen[bytes]", str]:
    """A running server on this database, and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database_url, "--default-artifact-root", f"{os.getcwd()}/artifacts",
        "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
    ]  # fmt: skip
    with open("mlflow-server.log", "ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    for _ in range(1200):
        if server.poll() is not None:
            raise SystemExit(f"mlflow server ended with {server.returncode} while starting; see mlflow-server.log")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return server, url
        except OSError:
            time.sleep(0.1)
    raise SystemExit("mlflow server did not answer within 120 s")


def rollout(writer: int, number: int, spans: int, span_bytes: int) -> None:
    """One trace: a root and its children, stored when this returns."""
    seed = hashlib.sha256(f"{writer}-{number}".encode()).hexdigest()
    text = (seed * (span_bytes // 64 + 1))[:span_bytes]
    with mlflow.start_span("rollout") as root:
        root.set_inputs({"text": text})
        for n in range(spans - 1):
            with mlflow.start_span(f"call-{n}") as span:
                span.set_inputs({"text": text, "index": n})


def stored_spans(database_url: str) -> int:
    """Spans in MLflow's table."""
    connection = psycopg2.connect(database_url)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM spans")
        return int(cursor.fetchone()[0])


def main(options: argparse.Namespace) -> dict[str, object]:
    """What the writers did together."""
    # SQLAlchemy 2.1 takes psycopg 3 where a URL names no driver; MLflow's documentation installs psycopg2.
    store = options.database_url.replace("postgresql://", "postgresql+psycopg2://")
    server, url = start_server(store) if options.server else (None, store)
    try:
        mlflow.set_tracking_uri(url)
        mlflow.set_experiment("bench")
        rollout(-1, 0, options.spans, options.span_bytes)
        before = stored_spans(options.database_url)
        stop_at = time.perf_counter() + options.seconds
        counts = [0] * options.writers

        def write(writer: int) -> None:
            while time.perf_counter() < stop_at:
                rollout(writer, counts[writer], options.spans, options.span_bytes)
                counts[writer] += 1

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(options.writers)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        stored = stored_spans(options.database_url) - before
    finally:
        if server is not None:
            os.killpg(server.pid, 15)
            server.wait()
    if stored != sum(counts) * options.spans:
        raise SystemExit(f"{sum(counts) * options.spans} spans were logged, {stored} are stored")
    return {"spans": stored, "seconds": seconds, "spans_per_s": stored / seconds, "server": options.server, "version": version("mlflow")}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True, help="an empty database")
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--spans", type=int, default=10, help="a rollout")
    parser.add_argument("--span-bytes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--server", action="store_true")
    print(json.dumps(main(parser.parse_args())))
