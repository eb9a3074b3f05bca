"""Model calls of proposers: recorded through the gateway, answered again from the record, and nothing else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ledger.errors import ModelCallFailed, NotRecorded
from ledger.events import ModelCallDispatched, ModelCalled
from ledger.ledger import LedgerHandle
from ledger.order import read_all
from tests.scripted_model import scripted_server
from training.proposing.recorded import Asking, recorded, replayed
from training.rollout.scripted import Fault, ScriptedServer
from training.worlds import AssistantTurn

ASKING = Asking("run-1", "scripted", {"temperature": 0.7}, seed=5)
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as scripted:
        yield scripted


def calls_of(ledger: LedgerHandle) -> tuple[list[Any], list[Any]]:
    ledger.barrier()
    events = list(read_all(ledger.pool, ledger.project, kinds=["ModelCallDispatched", "ModelCalled"]))
    return [e for e in events if isinstance(e.body, ModelCallDispatched)], [e for e in events if isinstance(e.body, ModelCalled)]


def test_a_call_is_recorded_in_the_role_of_a_proposer_and_belongs_to_its_run(ledger: LedgerHandle, server: ScriptedServer) -> None:
    server.script(None, [AssistantTurn("A task.")])
    with recorded(ledger, server.upstream("scripted-v1"), ASKING) as ask:
        assert ask(HELLO, {"max_tokens": 50}) == "A task."
        assert ask.counts == {"answered": 1}
    dispatched, called = calls_of(ledger)
    assert [(e.body.role, e.body.participant, e.correlation_id) for e in dispatched] == [("proposer", "proposer", "run-1")]
    assert [(e.body.role, e.body.status, e.correlation_id) for e in called] == [("proposer", "completed", "run-1")]
    sent = json.loads(server.received[0].body)
    assert (sent["temperature"], sent["max_tokens"], sent["messages"]) == (0.7, 50, HELLO)


def test_a_replay_gives_the_recorded_texts_and_asks_nobody(ledger: LedgerHandle, server: ScriptedServer) -> None:
    server.script(None, [AssistantTurn("First."), AssistantTurn("Second.")])
    longer = [*HELLO, {"role": "assistant", "content": "First."}, {"role": "user", "content": "Another."}]
    with recorded(ledger, server.upstream("scripted-v1"), ASKING) as ask:
        texts = [ask(HELLO, {}), ask(longer, {})]
    asked_for = server.requests
    again = replayed(ledger, ASKING)
    assert [again(HELLO, {}), again(longer, {})] == texts == ["First.", "Second."]
    assert again.counts == {"answered": 2}
    assert server.requests == asked_for == 2
    assert len(calls_of(ledger)[0]) == 2


def test_a_replay_refuses_what_was_not_recorded(ledger: LedgerHandle, server: ScriptedServer) -> None:
    server.script(None, [AssistantTurn("First.")])
    with recorded(ledger, server.upstream("scripted-v1"), ASKING) as ask:
        ask(HELLO, {})
    for other in (
        lambda: replayed(ledger, ASKING)([{"role": "user", "content": "Good morning"}], {}),
        lambda: replayed(ledger, ASKING)(HELLO, {"max_tokens": 9}),
        lambda: replayed(ledger, Asking("run-2", "scripted", {"temperature": 0.7}, seed=5))(HELLO, {}),
        lambda: replayed(ledger, Asking("run-1", "scripted", {"temperature": 0.7}, seed=6))(HELLO, {}),
    ):
        with pytest.raises(NotRecorded, match="call 0 of run 'run-"):
            other()


def test_a_failed_call_fails_again_in_the_replay(ledger: LedgerHandle, server: ScriptedServer) -> None:
    server.script(None, [AssistantTurn("First.")])
    server.fault(None, Fault(status=500))
    with recorded(ledger, server.upstream("scripted-v1"), ASKING) as ask:
        with pytest.raises(ModelCallFailed, match="scripted: HTTP 500"):
            ask(HELLO, {})
        assert ask(HELLO, {}) == "First."
    again = replayed(ledger, ASKING)
    with pytest.raises(ModelCallFailed, match="upstream_error when the run was recorded"):
        again(HELLO, {})
    assert again(HELLO, {}) == "First."
