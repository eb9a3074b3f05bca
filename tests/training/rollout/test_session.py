"""A session: any agent is captured by its base URL alone, acts in the world, and its rollout ends exactly once."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import queries
from ledger.attempts import unfinished
from ledger.bundle import Bundle, BundleDraft
from ledger.errors import RolloutClosed, SettingsError, UnknownId, WorldFailed
from ledger.events import ModelCalled, RolloutEnded, RolloutStarted, StateSnapshotted, ToolCalled
from ledger.exclusive import exclusive
from ledger.ledger import LedgerHandle
from ledger.verify import verify
from training.bundles import register, seal
from training.rollout import session as tally
from training.rollout.abandoned import end_abandoned, session_lock
from training.rollout.gateway import Upstream
from training.rollout.harness import tool_loop
from training.rollout.scripted import ScriptedServer
from training.verifiers import verifiers
from training.worlds import AssistantTurn, Observation, ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.state import DeskState
from training.worlds.ticket_desk.synthesis import tasks

# What an agent in another process needs to know is in its environment.
AGENT = """
import json, os, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
    print(json.load(response)["choices"][0]["message"]["content"])
"""


class Serving:
    """A scripted server in a thread of its own, since a session blocks its caller; every rollout says the same lines."""

    def __init__(self) -> None:
        self.server = ScriptedServer(token_mode=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.__aenter__(), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.__aexit__(None, None, None), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def serving() -> Iterator[Serving]:
    served = Serving()
    yield served
    served.close()


@pytest.fixture
def upstream(serving: Serving) -> Upstream:
    return serving.server.upstream("model-1")


@pytest.fixture
def bundle(ledger: LedgerHandle) -> Bundle:
    world, harness = TicketDesk(), tool_loop()
    bound = verifiers.bind("desk_conditions")
    register(ledger, world, [(bound, "program")], harness)
    made = Bundle(tasks(1, 5, level=0)[0], world.version, bound.ref.method_id, harness.harness_id)
    seal(ledger, [made])
    return made


def bodies(ledger: LedgerHandle, rollout_id: str) -> list[Any]:
    return [event.body for event in ledger.read_stream(f"rollout-{rollout_id}")]


def of(found: list[Any], kind: type[Any]) -> list[Any]:
    return [body for body in found if isinstance(body, kind)]


def chat(base_url: str, text: str = "hello") -> Any:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{base_url}/chat/completions", body, {"Content-Type": "application/json"})) as got:
        return json.load(got)["choices"][0]["message"]["content"]


def test_a_plain_client_is_captured_acts_and_ends_once(
    ledger: LedgerHandle, bundle: Bundle, upstream: Upstream, serving: Serving
) -> None:  # fmt: skip
    with tally.rollout(bundle, upstream=upstream, ledger=ledger, trainable=True) as r:
        serving.server.script(r.rollout_id, [AssistantTurn("I look.")])
        assert [message["role"] for message in r.messages] == ["system", "user"]
        assert "list_tickets" in [tool["function"]["name"] for tool in r.tools]
        assert chat(r.base_url) == "I look."
        seen = r.call("list_tickets", priority="P1")
        assert seen.error_class is None and seen.content.startswith("{")
        assert r.execute("list_tickets", '{"priority": ').error_class == "malformed_arguments"
        assert r.call("drop").error_class == "unknown_tool"
        assert not r.next_turn()
    found = bodies(ledger, r.rollout_id)
    started, calls, acts, ended = (of(found, kind) for kind in (RolloutStarted, ModelCalled, ToolCalled, RolloutEnded))
    assert started[0].participants[0].trainable and calls[0].sampled_ids is not None
    assert [(act.index, act.error_class, act.model_call_id) for act in acts] == [
        (0, None, calls[0].call_id), (1, "malformed_arguments", calls[0].call_id), (2, "unknown_tool", calls[0].call_id),
    ]  # fmt: skip
    assert acts[1].arguments_parsed is None and ledger.blob(acts[1].arguments_sampled.blob_id) == b'{"priority": '
    assert [(end.ended_by, end.boundary, end.model_calls, end.tool_calls) for end in ended] == [("finished", "policy", 1, 3)]
    assert len(of(found, StateSnapshotted)) == 2
    assert verify(ledger).intact
    queries.fresh(ledger)
    line = queries.rollouts(ledger, queries.Filter()).lines[0]
    assert (line.rollout_id, line.policy) == (r.rollout_id, "agent")


def test_an_agent_in_another_process_needs_the_environment_alone(
    ledger: LedgerHandle, bundle: Bundle, upstream: Upstream, serving: Serving
) -> None:  # fmt: skip
    with tally.rollout(bundle.bundle_id, upstream=upstream, ledger=ledger) as r:
        serving.server.script(r.rollout_id, [AssistantTurn("From afar.")])
        done = subprocess.run([sys.executable, "-c", AGENT], env={**os.environ, **r.env}, capture_output=True, text=True, check=True)
    assert done.stdout == "From afar.\n"
    found = bodies(ledger, r.rollout_id)
    assert [call.status for call in of(found, ModelCalled)] == ["completed"] and of(found, RolloutEnded)[0].model_calls == 1


def test_what_the_agent_raises_is_how_it_ended_with_the_traceback_as_data(ledger: LedgerHandle, bundle: Bundle, upstream: Upstream) -> None:
    with pytest.raises(KeyError, match="lost"), tally.rollout(bundle, upstream=upstream, ledger=ledger) as r:
        raise KeyError("lost")
    ended = of(bodies(ledger, r.rollout_id), RolloutEnded)
    assert [(end.ended_by, end.boundary, end.reason) for end in ended] == [("harness_error", "harness", "the agent raised KeyError")]
    assert b'raise KeyError("lost")' in ledger.blob(ended[0].detail.blob_id)


def test_an_interrupted_rollout_is_not_counted(ledger: LedgerHandle, bundle: Bundle, upstream: Upstream) -> None:
    with pytest.raises(KeyboardInterrupt), tally.rollout(bundle, upstream=upstream, ledger=ledger) as r:
        raise KeyboardInterrupt
    ended = of(bodies(ledger, r.rollout_id), RolloutEnded)
    assert [(end.ended_by, end.boundary, end.superseded) for end in ended] == [("cancelled", "operator", True)]


def test_what_the_agent_says_about_its_end_stands_and_nothing_comes_after(
    ledger: LedgerHandle, bundle: Bundle, upstream: Upstream, serving: Serving
) -> None:  # fmt: skip
    with pytest.raises(ValueError, match="late"), tally.rollout(bundle, upstream=upstream, ledger=ledger) as r:
        serving.server.script(r.rollout_id, [])
        r.end("turn_limit", "40 calls")
        with pytest.raises(RolloutClosed, match=r"has ended \(turn_limit\); it acts no more"):
            r.call("list_tickets")
        with pytest.raises(RolloutClosed, match="it ends once"):
            r.end()
        with pytest.raises(urllib.error.HTTPError, match="409"):
            chat(r.base_url)
        raise ValueError("late")
    found = bodies(ledger, r.rollout_id)
    assert [(end.ended_by, end.reason) for end in of(found, RolloutEnded)] == [("turn_limit", "40 calls")]
    assert of(found, ToolCalled) == [] and of(found, ModelCalled) == []


class BrokenDesk(TicketDesk):
    """A desk whose code cannot be reached."""

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        raise WorldFailed("connection refused")


class UnresettableDesk(TicketDesk):
    """A desk that never comes up."""

    def reset(self, draft: BundleDraft, *, seed: int) -> DeskState:
        raise WorldFailed("image not found")


@pytest.mark.parametrize(("world", "told"), [(BrokenDesk, "connection refused"), (UnresettableDesk, "image not found")])
def test_a_broken_world_is_no_fault_of_the_agent(
    ledger: LedgerHandle, bundle: Bundle, upstream: Upstream, world: Callable[[], Any], told: str
) -> None:  # fmt: skip
    with pytest.raises(WorldFailed, match=told), tally.rollout(bundle, upstream=upstream, ledger=ledger, world=world()) as r:
        r.call("list_tickets")
    ledger.barrier()
    ended = [event.body for event in ledger.read(kinds=["RolloutEnded"]) if isinstance(event.body, RolloutEnded)]
    assert [(end.ended_by, end.boundary) for end in ended] == [("world_error", "world")]
    assert ended[0].detail is not None and told.encode() in ledger.blob(ended[0].detail.blob_id)


def test_two_sessions_of_a_run_are_two_rollouts(ledger: LedgerHandle, bundle: Bundle, upstream: Upstream) -> None:
    ids = []
    for _ in range(2):
        with tally.rollout(bundle, upstream=upstream, ledger=ledger) as r:
            ids.append(r.rollout_id)
    assert len(set(ids)) == 2
    ledger.barrier()
    assert [len(ledger.read(kinds=[kind])) for kind in ("RunConfigured", "GroupDispatched", "RolloutEnded")] == [1, 2, 2]


def test_nothing_starts_where_the_bundle_is_not_sealed_or_the_world_is_another(
    ledger: LedgerHandle, bundle: Bundle, upstream: Upstream
) -> None:  # fmt: skip
    with pytest.raises(UnknownId, match="no bundle"), tally.rollout("f" * 64, upstream=upstream, ledger=ledger):
        pass
    world = TicketDesk()
    world.version = "0" * 64
    with pytest.raises(SettingsError, match="has version 0000"), tally.rollout(bundle, upstream=upstream, ledger=ledger, world=world):
        pass
    ledger.barrier()
    assert ledger.read(kinds=["RolloutStarted"]) == []


# A session that is under way until its process is killed.
KILLED = """
import sys, time
from ledger.ledger import open_ledger
from training.rollout import session as tally
from training.rollout.abandoned import end_abandoned, session_lock
from training.rollout.gateway import Upstream
with open_ledger(sys.argv[1], project="test", actor_id="tester") as ledger:
    with tally.rollout(sys.argv[2], upstream=Upstream("http://127.0.0.1:1/v1", "model-1", kind="openai"), ledger=ledger) as r:
        r.call("list_tickets", priority="P1")
        print(r.rollout_id, flush=True)
        time.sleep(600)
"""


def test_the_rollout_of_a_killed_process_is_ended_by_the_next_session_and_not_before(
    ledger: LedgerHandle, bundle: Bundle, upstream: Upstream
) -> None:  # fmt: skip
    root = str(Path(__file__).resolve().parents[3])
    command = [sys.executable, "-c", KILLED, ledger.url, bundle.bundle_id]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        rollout_id = process.stdout.readline().strip()
        # It lives, so neither asking nor another session ends it.
        assert end_abandoned(ledger) == []
        with tally.rollout(bundle, upstream=upstream, ledger=ledger):
            pass
        assert of(bodies(ledger, rollout_id), RolloutEnded) == []
    finally:
        process.kill()
        process.communicate()
    # The database notices a moment later.
    with exclusive(ledger, session_lock(rollout_id), wait_s=60.0):
        assert end_abandoned(ledger) == []
    with tally.rollout(bundle, upstream=upstream, ledger=ledger) as r:
        assert r.rollout_id != rollout_id
    (end,) = of(bodies(ledger, rollout_id), RolloutEnded)
    assert (end.ended_by, end.boundary, end.superseded, end.tool_calls) == ("cancelled", "operator", True, 1)
    assert end_abandoned(ledger) == [] and unfinished(ledger) == []
    assert verify(ledger).intact


def test_what_a_collector_left_open_is_not_a_sessions_to_end(ledger: LedgerHandle, bundle: Bundle) -> None:
    ledger.append([ledger.new(RolloutStarted(
        rollout_id="r", group_id="g", bundle_id=bundle.bundle_id, slot=0, attempt=1, rollout_kind="ordinary", participants=[], seed=0
    ))])  # fmt: skip
    assert end_abandoned(ledger) == [] and [attempt.rollout_id for attempt in unfinished(ledger)] == ["r"]
