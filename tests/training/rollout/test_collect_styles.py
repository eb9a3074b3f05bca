"""Styles through the gateway into the ledger: text formats, rewritings, sub-agents and retries leave their events."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import queries
from ledger.canonical import parse
from ledger.events import HistoryRewritten, ModelCallDispatched, ModelCalled, RolloutEnded, RolloutStarted, ToolCalled
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from ledger.verify import verify
from training import stages
from training.lab import Lab
from training.rollout.collect import Site, collect
from training.rollout.harness_table import HarnessTable
from training.rollout.judge import evidence
from training.rollout.scripted import Fault, ScriptedServer
from training.run_config import Collection, RunConfig, TaskSource
from training.worlds import AssistantTurn

WALK = TaskSource(world="ticket_desk", count=1, seed=3, options={"families": True, "level": 0})


@pytest.fixture
def lab_of(ledger: LedgerHandle, tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    opened: list[Lab] = []

    def open_lab(policy: str = "oracle", **harness: Any) -> Lab:
        table = HarnessTable(calls_per_turn=40, **harness)
        config = RunConfig(name="t", seed=1, harness=table, tasks=(WALK,), collect=(Collection(policy=policy),))
        opened.append(Lab(config, ledger, Settings(data_dir=tmp_path)))
        stages.worlds(opened[-1])
        stages.task_bundles(opened[-1])
        return opened[-1]

    yield open_lab
    for lab in opened:
        lab.__exit__(None, None, None)


class Prepared(ScriptedServer):
    """A server whose scripts are added to before a rollout begins."""

    def __init__(self, prepare: Callable[["Prepared", str], None]) -> None:
        super().__init__(token_mode=True, keep=100)
        self.prepare = prepare

    def script(self, rollout_id: str | None, turns: Any, **more: Any) -> None:
        super().script(rollout_id, turns, **more)
        if not more.get("role"):
            self.prepare(self, str(rollout_id))


async def run(lab: Lab, prepare: Callable[[Prepared, str], None] = lambda server, rollout_id: None) -> list[Any]:
    """The bodies of the one rollout's events."""
    groups = lab.groups(lab.config.collect[0])
    async with Prepared(prepare) as server, lab.site(groups) as site:
        upstreams = {version: server.upstream(version) for version in site.upstreams}
        moved = Site(site.ledger, site.appender, site.gateway, server, site.worlds, site.harness, upstreams)
        await collect(moved, lab.run(), groups)
    lab.ledger.barrier()
    started = next(event.body for event in lab.ledger.read(kinds=["RolloutStarted"]) if isinstance(event.body, RolloutStarted))
    return [event.body for event in lab.ledger.read_stream(f"rollout-{started.rollout_id}")]


def of(bodies: list[Any], kind: type[Any]) -> list[Any]:
    return [body for body in bodies if isinstance(body, kind)]


@pytest.mark.parametrize("tool_format", ["compact", "json"])
async def test_an_oracle_in_text_is_judged_as_any_other(lab_of: Callable[..., Lab], tool_format: str) -> None:
    lab = lab_of(tool_format=tool_format, results="values")
    bodies = await run(lab)
    assert of(bodies, RolloutEnded)[0].ended_by == "finished"
    assert {body.error_class for body in of(bodies, ToolCalled)} == {None}
    requests = [parse(lab.ledger.blob(body.request.blob_id)) for body in of(bodies, ModelCallDispatched)]
    assert all("tools" not in request for request in requests)
    assert {message["role"] for message in requests[-1]["messages"]} == {"system", "user", "assistant", "tool"}
    stages.verdicts(lab)
    stages.rewards(lab)
    queries.fresh(lab.ledger)
    assert [line.value for line in queries.rewards(lab.ledger).lines] == [1.0]
    assert verify(lab.ledger).intact


async def test_a_summary_has_its_own_call_and_its_event_stands_before_the_call_that_follows(lab_of: Callable[..., Lab]) -> None:
    hooks = ({"name": "summarise_when_full", "params": {"at_tokens": 700, "keep": 2}},)
    lab = lab_of(style="rewritten", tool_format="compact", hooks=hooks)
    bodies = await run(lab, lambda server, rollout_id: server.script(rollout_id, [AssistantTurn("So far so good.")] * 9, role="summary"))
    started, rewritten = of(bodies, RolloutStarted)[0], of(bodies, HistoryRewritten)
    assert [(who.name, who.role) for who in started.participants] == [("oracle", "agent"), ("oracle/summary", "summary")]
    assert rewritten and [body.index for body in rewritten] == list(range(len(rewritten)))
    assert [lab.ledger.blob(body.summary.blob_id) for body in rewritten] == [b"So far so good."] * len(rewritten)
    asked = of(bodies, ModelCallDispatched)
    assert [call.index for call in asked] == list(range(len(asked)))
    for body in rewritten:
        after = bodies[bodies.index(body) :]
        first = of(after, ModelCallDispatched)[0]
        assert (body.reason, body.participant, first.index, first.role) == ("compaction", None, body.before_call, "agent")
        assert asked[first.index - 1].role == "summary" and asked[first.index - 1].participant == "oracle/summary"
        request = parse(lab.ledger.blob(first.request.blob_id))
        assert len(request["messages"]) == body.kept + 1
    # The script goes on where it was, though the conversation no longer says where that is.
    assert of(bodies, RolloutEnded)[0].ended_by == "finished"
    assert of(bodies, RolloutEnded)[0].counters == {"compaction": len(rewritten)}
    assert {body.error_class for body in of(bodies, ToolCalled)} == {None}
    assert all(body.prompt_ids is not None for body in of(bodies, ModelCalled))


async def test_a_sub_agents_calls_are_its_own_and_a_judge_does_not_see_the_delegation(lab_of: Callable[..., Lab]) -> None:
    lab = lab_of(style="orchestrator", sub_agent={"tools": ["list_tickets"]})
    lines = {
        "agent": [AssistantTurn(None, (("delegate", '{"task": "List all."}'),)), AssistantTurn("Done.")],
        "sub_agent": [AssistantTurn(None, (("list_tickets", "{}"),)), AssistantTurn("T1, T2")],
    }

    def prepare(server: Prepared, rollout_id: str) -> None:
        for role, turns in lines.items():
            server.script(rollout_id, turns, role=role)

    bodies = await run(lab, prepare)
    participants = of(bodies, RolloutStarted)[0].participants
    assert [(who.name, who.role) for who in participants] == [("oracle", "agent"), ("oracle/sub_agent", "sub_agent")]
    assert [(call.participant, call.role) for call in of(bodies, ModelCalled)] == [
        ("oracle", "agent"), ("oracle/sub_agent", "sub_agent"), ("oracle/sub_agent", "sub_agent"), ("oracle", "agent"),
    ]  # fmt: skip
    acts = of(bodies, ToolCalled)
    assert [(lab.ledger.blob(act.name.blob_id), act.executed_by) for act in acts] == [(b"list_tickets", "world"), (b"delegate", "harness")]
    assert lab.ledger.blob(acts[1].result.blob_id) == b"T1, T2"
    assert acts[0].model_call_id == of(bodies, ModelCalled)[1].call_id
    rollout_id = of(bodies, RolloutStarted)[0].rollout_id
    assert [step.call.name for step in evidence(lab.ledger, [rollout_id])[rollout_id].trace] == ["list_tickets"]


@pytest.mark.parametrize(("times", "ended_by", "attempts"), [(0, "engine_error", 1), (1, "engine_error", 2), (2, "finished", 3)])
async def test_a_retried_call_names_the_one_that_it_repeats(
    lab_of: Callable[..., Lab], times: int, ended_by: str, attempts: int
) -> None:  # fmt: skip
    lab = lab_of("gives_up", retries={"times": times})
    bodies = await run(lab, lambda server, rollout_id: server.fault(rollout_id, Fault(times=2, status=503)))
    calls = of(bodies, ModelCallDispatched)
    assert of(bodies, RolloutEnded)[0].ended_by == ended_by
    assert [call.retry_of for call in calls[:attempts]] == [None, *[call.call_id for call in calls[: attempts - 1]]]
    assert len({call.request_digest for call in calls[:attempts]}) == 1
    assert of(bodies, RolloutEnded)[0].counters == ({"engine_retries": times} if times else {})
