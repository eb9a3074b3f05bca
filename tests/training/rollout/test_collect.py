"""Collecting: every slot has one counted attempt, whatever happens on the way."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger import queries
from ledger.bundle import BundleDraft
from ledger.errors import IdempotencyConflict, TallyError, WorldFailed
from ledger.events import RolloutEnded, RolloutStarted
from ledger.exclusive import exclusive
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from training import stages
from training.lab import Lab
from training.rollout.collect import Collected, Site, collect
from training.run_config import Collection, RunConfig, TaskSource
from training.worlds import Observation, ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.state import DeskState

DESK = TaskSource(world="ticket_desk", count=2, seed=3)


def config(*policies: str, size: int = 1) -> RunConfig:
    return RunConfig(name="t", seed=1, concurrency=4, tasks=(DESK,), collect=tuple(Collection(policy=name, size=size) for name in policies))


@pytest.fixture
def lab_of(ledger: LedgerHandle, tmp_path: Path) -> Iterator[Callable[[RunConfig], Lab]]:
    opened: list[Lab] = []

    def open_lab(wanted: RunConfig) -> Lab:
        opened.append(Lab(wanted, ledger, Settings(data_dir=tmp_path)))
        stages.worlds(opened[-1])
        stages.task_bundles(opened[-1])
        return opened[-1]

    yield open_lab
    for lab in opened:
        lab.__exit__(None, None, None)


async def run(lab: Lab, change: Callable[[Site], Site] = lambda site: site) -> Collected:
    groups = [group for collection in lab.config.collect for group in lab.groups(collection)]
    async with lab.site(groups) as site:
        return await collect(change(site), lab.run(), groups, concurrency=4)


def ends(ledger: LedgerHandle) -> list[RolloutEnded]:
    ledger.barrier()
    return [event.body for event in ledger.read(kinds=["RolloutEnded"]) if isinstance(event.body, RolloutEnded)]


async def test_every_slot_ends_once_and_a_second_collection_adds_nothing(lab_of: Callable[[RunConfig], Lab]) -> None:
    lab = lab_of(config("oracle", size=2))
    assert await run(lab) == Collected(expected=4, already=0, ran=4, superseded=0)
    position = lab.ledger.barrier()
    assert await run(lab) == Collected(expected=4, already=4, ran=0, superseded=0)
    assert lab.ledger.barrier() == position
    assert [end.ended_by for end in ends(lab.ledger)] == ["finished"] * 4
    assert all(end.model_calls > 0 and not end.superseded for end in ends(lab.ledger))


class BrokenDesk(TicketDesk):
    """A desk whose mail server is down."""

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        if call.name == "send_email":
            raise WorldFailed("connection refused")
        return super().call(state, call)


class BuggyDesk(TicketDesk):
    """A desk whose code has a mistake."""

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        raise ZeroDivisionError("division by zero")


class UnresettableDesk(TicketDesk):
    """A desk that never comes up."""

    def reset(self, draft: BundleDraft, *, seed: int) -> DeskState:
        raise WorldFailed("image not found")


@pytest.mark.parametrize(
    ("world", "ended_by", "outcome"),
    [
        (BrokenDesk, "world_error", "env_failed"),
        (BuggyDesk, "harness_error", "harness_failed"),
        (UnresettableDesk, "world_error", "env_failed"),
    ],
)
async def test_a_crash_becomes_how_it_ended_and_never_a_number(
    lab_of: Callable[[RunConfig], Lab], world: Callable[[], Any], ended_by: str, outcome: str
) -> None:
    lab = lab_of(config("oracle"))
    await run(lab, lambda site: replace(site, worlds={"ticket_desk": world()}))
    assert {end.ended_by for end in ends(lab.ledger)} == {ended_by}
    stages.verdicts(lab)
    stages.rewards(lab)
    queries.fresh(lab.ledger)
    lines = queries.rewards(lab.ledger).lines
    assert [line.value for line in lines] == [None, None]
    assert all(ended_by in line.reason for line in lines)
    assert queries.outcomes(lab.ledger)[0].counts[outcome] == 2


async def test_an_attempt_left_behind_is_superseded_and_tried_again(lab_of: Callable[[RunConfig], Lab]) -> None:
    lab = lab_of(config("oracle"))
    group = lab.groups(lab.config.collect[0])[0]
    left = derived_id("left", "behind")
    body = RolloutStarted(
        rollout_id=left,
        group_id=lab.run().group_id(group),
        bundle_id=group.bundle.bundle_id,
        slot=0,
        attempt=1,
        rollout_kind="ordinary",
        participants=[],
        seed=1,
    )
    lab.ledger.append([lab.ledger.new(body)])
    assert await run(lab) == Collected(expected=2, already=0, ran=2, superseded=1)
    first = next(end for end in ends(lab.ledger) if end.rollout_id == left)
    assert (first.ended_by, first.superseded, first.wall_s) == ("cancelled", True, None)
    attempts = {event.body.attempt for event in lab.ledger.read(kinds=["RolloutStarted"]) if isinstance(event.body, RolloutStarted)}
    assert attempts == {1, 2}


async def test_an_interrupted_collection_goes_on_where_it_stopped(lab_of: Callable[[RunConfig], Lab]) -> None:
    lab = lab_of(config("oracle", "loops", "gives_up", size=2))
    task = asyncio.create_task(run(lab))
    while not ends(lab.ledger):
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cancelled = [end for end in ends(lab.ledger) if end.superseded]
    assert all(end.ended_by == "cancelled" for end in cancelled)
    done = await run(lab)
    assert (done.expected, done.already + done.ran) == (12, 12)
    assert len([end for end in ends(lab.ledger) if not end.superseded]) == 12


async def test_a_run_is_collected_by_one_process_at_a_time(lab_of: Callable[[RunConfig], Lab]) -> None:
    lab = lab_of(config("oracle"))
    name = f"run {lab.run().run_id}"
    with exclusive(lab.ledger, name), pytest.raises(TallyError, match="held by another process"), exclusive(lab.ledger, name, wait_s=0.1):
        pass


async def test_a_second_end_is_refused(lab_of: Callable[[RunConfig], Lab]) -> None:
    lab = lab_of(config("gives_up"))
    await run(lab)
    end = ends(lab.ledger)[0]
    with pytest.raises(IdempotencyConflict, match="ended"):
        lab.ledger.append([lab.ledger.new(end.model_copy(update={"ended_by": "cancelled"}))])


async def test_scripted_policies_leave_the_trace_that_their_script_says(lab_of: Callable[[RunConfig], Lab]) -> None:
    lab = lab_of(config("oracle", "wrong_recipient", "duplicate_sender", "loops", "gives_up", "malformed_call"))
    await run(lab)
    stages.verdicts(lab)
    stages.rewards(lab)
    queries.fresh(lab.ledger)
    outcomes = {row.key["policy"]: {k: v for k, v in row.counts.items() if v} for row in queries.outcomes(lab.ledger)}
    assert outcomes["oracle"] == {"succeeded": 2}
    assert outcomes["loops"] == {"limit_ended": 2}
    for policy in ("wrong_recipient", "gives_up", "malformed_call"):
        assert outcomes[policy] == {"task_failed": 2}
    tools = [event.body for event in lab.ledger.read(kinds=["ToolCalled"], limit=10_000)]
    assert "malformed_arguments" in {getattr(tool, "error_class", None) for tool in tools}
    calls = [event.body for event in lab.ledger.read(kinds=["ModelCalled"], limit=10_000)]
    assert {getattr(call, "tokens_missing", None) for call in calls} != {None}
    planted = [line for line in queries.disagreements(lab.ledger).lines if line.rollout.policy in ("wrong_recipient", "duplicate_sender")]
    assert planted


def test_an_unknown_policy_or_task_is_named(lab_of: Callable[[RunConfig], Lab]) -> None:
    lab = lab_of(config("oracle"))
    with pytest.raises(TallyError, match="no policy 'clever' for world 'ticket_desk'; there is smollm2 and oracle"):
        lab.groups(Collection(policy="clever"))
    with pytest.raises(TallyError, match="names task 'nowhere'"):
        lab.groups(Collection(policy="oracle", tasks=("nowhere",)))
    with pytest.raises(TallyError, match="names world 'bfcl'"):
        lab.groups(Collection(policy="oracle", worlds=("bfcl",)))


class ServerlessLab(Lab):
    """A lab whose servers must not be started."""

    def site(self, groups: object) -> Any:
        raise AssertionError("a server was started")


def test_a_stage_that_is_done_starts_no_server(lab_of: Callable[[RunConfig], Lab], tmp_path: Path) -> None:
    lab = lab_of(config("oracle"))
    assert stages.rollouts(lab).counts == {"expected": 2, "already": 0, "new": 2, "superseded": 0}
    with ServerlessLab(lab.config, lab.ledger, Settings(data_dir=tmp_path)) as again:
        assert stages.rollouts(again).counts == {"expected": 2, "already": 2, "new": 0, "superseded": 0}
