"""Tallystick's own gateway command between an agent and an upstream, every call durable. Writes the database, runs a process.

It prints `{"pid": …, "targets": […]}` once the gateway listens, and ends when the gateway does. Run by the product's Python. With `--found` it only prints the
ids of the calls whose answers a ledger holds.
"""

import argparse
import json
import os
import subprocess
import sys

from ledger.events import ModelCalled, Participant, RolloutStarted
from ledger.ledger import LedgerHandle, open_ledger

PROJECT = "bench"


def start_rollouts(ledger: LedgerHandle, count: int) -> list[str]:
    """Ids of so many new rollouts."""
    agent = Participant(name="policy", role="agent", model_version="stub-1", endpoint="stub", sampling={}, trainable=True)
    names = [f"bench-{n}" for n in range(count)]
    for first in range(0, count, 500):
        ledger.append([
            ledger.new(RolloutStarted(
                rollout_id=name, group_id=f"bench-group-{n // 8}", bundle_id="0" * 64, slot=n % 8, attempt=1, rollout_kind="ordinary",
                participants=[agent], seed=n,
            ))
            for n, name in enumerate(names[first : first + 500], first)
        ])  # fmt: skip
    return names


def serve(database_url: str, upstream: str, model: str, rollouts: int) -> int:
    """Exit status of the gateway; `model` is the name in requests."""
    with open_ledger(database_url, project=PROJECT, actor_id="bench") as ledger:
        names = start_rollouts(ledger, rollouts)
    command = [
        sys.executable, "-m", "ledger.cli", "gateway", "--port", "0",
        "--upstream", f"model={model},url={upstream},version=stub-1,kind=vllm,logprobs_mode=processed_logprobs",
    ]  # fmt: skip
    environment = {**os.environ, "TALLY_DATABASE_URL": database_url, "TALLY_PROJECT": PROJECT, "TALLY_DATA_DIR": os.getcwd()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as gateway:
        assert gateway.stdout is not None
        url = gateway.stdout.readline().decode().rpartition(" ")[2].strip()
        if not url.startswith("http"):
            raise SystemExit(f"the gateway ended with {gateway.wait()} while starting")
        targets = [{"url": f"{url}/r/{name}/v1/chat/completions"} for name in names]
        print(json.dumps({"pid": gateway.pid, "url": url, "targets": targets}), flush=True)
        return gateway.wait()


def found(database_url: str) -> list[str]:
    """Ids of the calls whose answers are in the ledger and in its order."""
    ids, since = [], 0
    with open_ledger(database_url, project=PROJECT, actor_id="bench") as ledger:
        ledger.barrier()
        while page := ledger.read(since, kinds=["ModelCalled"]):
            ids += [body.call_id for body in (event.body for event in page) if isinstance(body, ModelCalled) and body.status == "completed"]
            since = page[-1].position or since
    return ids


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True, help="a migrated database")
    parser.add_argument("--upstream", help="address up to and including /v1")
    parser.add_argument("--model", default="stub", help="the model's name in requests")
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--found", action="store_true", help="only print the ids of the calls that the ledger holds")
    options = parser.parse_args()
    if options.found:
        print(json.dumps(found(options.database_url)))
    else:
        sys.exit(serve(options.database_url, options.upstream, options.model, options.rollouts))
