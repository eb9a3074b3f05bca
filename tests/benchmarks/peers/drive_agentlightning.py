"""Agent Lightning's own server, `agl-server`, between an agent and an upstream. Runs a process, speaks HTTP.

It prints `{"pid": …, "version": …, "targets": […]}` once the server listens, and ends when the server does. With `--found` it only asks a server how many
calls it still has of the rollouts in a targets file.
"""

import argparse
import json
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import httpx

MODEL = "stub"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    """Return when the server answers."""
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit(f"agl-server ended with {server.returncode} while starting")
        try:
            httpx.get(f"{url}/healthz").raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit("agl-server did not answer within 60 s")


def serve(upstream: str, rollouts: int, port: int) -> int:
    """Exit status of the server, which runs with the configuration that it is shipped with."""
    url = f"http://127.0.0.1:{port}"
    command = [str(Path(sys.executable).parent / "agl-server"), "host=127.0.0.1", f"port={port}", f"default_proxy.model_name={MODEL}"]
    with open("agl-server.log", "ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    wait_for(url, server)
    with httpx.Client(base_url=url, timeout=60) as client:
        client.post("/api/models", json=[{"model": MODEL, "endpoint": upstream}]).raise_for_status()
        names = [f"rollout-{n}" for n in range(rollouts)]
        for first in range(0, rollouts, 500):
            part = [{"input": {}, "rollout_id": name} for name in names[first : first + 500]]
            client.post("/api/rollouts", json=part).raise_for_status()
    targets = [{"url": f"{url}/proxy/rollout/{name}/attempt/0/mode/train/openai/v1/chat/completions"} for name in names]
    print(json.dumps({"pid": server.pid, "port": port, "version": version("agentlightning"), "targets": targets}), flush=True)
    return server.wait()


def found(port: int, rollouts: int) -> int:
    """How many calls the server still has."""
    total = 0
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for n in range(rollouts):
            answer = client.get(f"/api/rollouts/rollout-{n}/events", params={"event_type": "model_request"})
            if answer.status_code != 404:
                total += len(answer.raise_for_status().json())
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", help="address up to and including /v1")
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--found", type=int, metavar="PORT", help="only count the calls that the server on this port has")
    options = parser.parse_args()
    if options.found is not None:
        print(json.dumps({"found": found(options.found, options.rollouts)}))
    else:
        sys.exit(serve(options.upstream, options.rollouts, free_port()))
