"""Phoenix on PostgreSQL: traces of ten spans sent by OTLP over HTTP, until all are in its table. Runs a process, writes the database.

It prints `{"spans_per_s": …}`. The clock runs from the first request until the last span is stored, because Phoenix acknowledges before it stores.
"""

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sqlalchemy import create_engine, text


def start_server(database_url: str) -> tuple["subprocess.Popen[bytes]", str]:
    """A running server on this database, and its address."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
    environment = {
        **os.environ, "PHOENIX_SQL_DATABASE_URL": database_url, "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": ports[0], "PHOENIX_GRPC_PORT": ports[1],
        "PHOENIX_WORKING_DIR": os.getcwd(), "PHOENIX_TELEMETRY_ENABLED": "false",
    }  # fmt: skip
    with open("phoenix.log", "ab") as log:
        server = subprocess.Popen([str(Path(sys.executable).parent / "phoenix"), "serve"], env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{ports[0]}"
    for _ in range(1200):
        if server.poll() is not None:
            raise SystemExit(f"phoenix ended with {server.returncode} while starting: {Path('phoenix.log').read_text()[-1000:]}")
        try:
            if httpx.get(f"{url}/healthz").status_code == 200:
                return server, url
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("phoenix did not answer within 120 s")


def request(first: int, traces: int, spans: int, span_bytes: int) -> bytes:
    """An export of so many traces."""
    export = ExportTraceServiceRequest()
    scope = export.resource_spans.add().scope_spans.add()
    for number in range(first, first + traces):
        seed = hashlib.sha256(f"trace-{number}".encode())
        value = (seed.hexdigest() * (span_bytes // 64 + 1))[:span_bytes]
        ids = [hashlib.sha256(f"span-{number}-{n}".encode()).digest()[:8] for n in range(spans)]
        for n, span_id in enumerate(ids):
            span = scope.spans.add(trace_id=seed.digest()[:16], span_id=span_id, name=f"call-{n}" if n else "rollout", kind=1)
            span.parent_span_id = ids[0] if n else b""
            span.start_time_unix_nano = time.time_ns()
            span.end_time_unix_nano = span.start_time_unix_nano + 1000
            for key, filled in (("openinference.span.kind", "LLM"), ("input.value", value)):
                span.attributes.add(key=key).value.string_value = filled
    return export.SerializeToString()


def main(options: argparse.Namespace) -> dict[str, object]:
    """What was stored, and how fast."""
    engine = create_engine(options.database_url.replace("postgresql://", "postgresql+psycopg://"))

    def stored() -> int:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM spans")).scalar_one())

    def wait_for(count: int) -> None:
        deadline = time.perf_counter() + 120
        while stored() < count:
            if time.perf_counter() > deadline:
                raise SystemExit(f"{count} spans were sent, {stored()} are stored after 120 s")
            time.sleep(0.02)

    server, url = start_server(options.database_url)
    try:
        with httpx.Client(base_url=url, timeout=60, headers={"Content-Type": "application/x-protobuf"}) as client:
            client.post("/v1/traces", content=request(0, 1, options.spans, options.span_bytes)).raise_for_status()
            wait_for(options.spans)
            began = time.perf_counter()
            for first in range(1, options.traces + 1, options.traces_a_request):
                count = min(options.traces_a_request, options.traces + 1 - first)
                client.post("/v1/traces", content=request(first, count, options.spans, options.span_bytes)).raise_for_status()
            wait_for((options.traces + 1) * options.spans)
            seconds = time.perf_counter() - began
    finally:
        server.terminate()
        server.wait()
    spans = options.traces * options.spans
    return {"spans": spans, "seconds": seconds, "spans_per_s": spans / seconds, "version": version("arize-phoenix")}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True, help="an empty database")
    parser.add_argument("--spans", type=int, default=10, help="a trace")
    parser.add_argument("--span-bytes", type=int, default=1000)
    parser.add_argument("--traces-a-request", type=int, default=10)
    parser.add_argument("--traces", type=int, default=100)
    print(json.dumps(main(parser.parse_args())))
