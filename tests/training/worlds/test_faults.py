"""Faults in a world and its user: each does what it says, where it was planned, and nothing else changes."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ledger.errors import BundleError, SettingsError, WorldFailed
from training.worlds import Observation, Snapshot, ToolCall, World
from training.worlds.difference import differences
from training.worlds.fault_plan import Strike, read_plan
from training.worlds.faults import FaultyState, FaultyUser, FaultyWorld, declared_user, declared_world
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.state import DeskState

DESK = TicketDesk()
DRAFT = generate(1, seed=3)[0]
assert DRAFT.reference is not None
CALLS = [ToolCall(call["name"], call["arguments"]) for call in DRAFT.reference["turns"][0]]
MAIL = next(number for number, call in enumerate(CALLS) if call.name == "send_email")
Way = list[tuple[Observation, str]]


def faulty(*faults: dict[str, Any], seed: int = 1, world: World[Any] = DESK) -> tuple[FaultyWorld[Any], list[Strike]]:
    told: list[Strike] = []
    return FaultyWorld(world, read_plan(list(faults)), key=(seed, "rollout"), tell=told.append), told


def walk(world: World[Any], calls: Sequence[ToolCall] = CALLS) -> tuple[Any, Way]:
    state, way = world.reset(DRAFT, seed=0), []
    for call in calls:
        state, observation = world.call(state, call)
        way.append((observation, world.digest(state)))
    return state, way


_, HEALTHY = walk(DESK)


def one(fault: dict[str, Any], at: int = MAIL) -> tuple[Observation, str, str, Way]:
    """What is seen at the call, the digests before and after it, and the whole way, checked to be healthy before it."""
    world, told = faulty({**fault, "at": [at]})
    _, way = walk(world)
    assert [(strike.fault.kind, strike.where) for strike in told] == [(fault["kind"], f"call:{at}")]
    assert way[:at] == HEALTHY[:at]
    return way[at][0], way[at - 1][1], way[at][1], way


def test_a_timeout_leaves_no_trace_or_has_been_carried_out() -> None:
    seen, before, after, _ = one({"kind": "timeout", "seconds": 12})
    assert (seen.error_class, seen.delay_s, after) == ("timeout", 12.0, before)
    assert json.loads(seen.content) == {"error": "timeout", "message": "no answer within 12 s"}
    seen, _, after, way = one({"kind": "timeout", "executed": True})
    assert (seen.error_class, after) == ("timeout", HEALTHY[MAIL][1])
    assert way[MAIL + 1 :] == HEALTHY[MAIL + 1 :]


def test_a_denied_call_is_not_carried_out() -> None:
    seen, before, after, _ = one({"kind": "permission_denied"})
    assert (seen.error_class, seen.delay_s, after) == ("permission_denied", 0.0, before)


def test_a_malformed_result_is_no_json_or_of_another_type_and_the_call_was_carried_out() -> None:
    for seed in range(30):
        for form in ("broken_json", "wrong_type"):
            world, _ = faulty({"kind": "malformed_result", "at": [0, MAIL], "form": form}, seed=seed)
            _, way = walk(world)
            assert [digest for _, digest in way] == [digest for _, digest in HEALTHY]
            for at in (0, MAIL):
                assert way[at][0].error_class is None
                if form == "broken_json":
                    assert len(way[at][0].content) == len(HEALTHY[at][0].content) - 1
                    with pytest.raises(json.JSONDecodeError):
                        json.loads(way[at][0].content)
                else:
                    assert not isinstance(json.loads(way[at][0].content), dict)


def test_a_truncated_result_is_the_beginning_of_the_real_one() -> None:
    seen, _, after, _ = one({"kind": "truncated_result", "keep": 0.5})
    real = HEALTHY[MAIL][0].content
    assert (seen, after) == (Observation(real[: len(real) // 2]), HEALTHY[MAIL][1])
    shares = set()
    for seed in range(30):
        world, _ = faulty({"kind": "truncated_result", "at": [0]}, seed=seed)
        text = walk(world, CALLS[:1])[1][0][0].content
        assert HEALTHY[0][0].content.startswith(text)
        shares.add(len(text) / len(HEALTHY[0][0].content))
    assert 0.15 < min(shares) < 0.4 and 0.6 < max(shares) <= 0.8


def test_a_slow_answer_takes_the_worlds_time_and_nobodys_unless_asked() -> None:
    began = time.monotonic()
    seen, _, after, way = one({"kind": "slow_answer", "seconds": 30})
    assert time.monotonic() - began < 5
    assert (seen, after) == (replace(HEALTHY[MAIL][0], delay_s=30.0), HEALTHY[MAIL][1])
    assert way[MAIL + 1 :] == HEALTHY[MAIL + 1 :]
    began = time.monotonic()
    seen, *_ = one({"kind": "slow_answer", "seconds": 0.2, "sleep": True})
    assert time.monotonic() - began > 0.2
    assert seen.delay_s == 0.0


def test_a_dropped_connection_breaks_the_world_or_is_told_to_the_policy() -> None:
    world, told = faulty({"kind": "dropped_connection", "at": [MAIL]})
    with pytest.raises(WorldFailed, match=r"^connection reset by peer$"):
        walk(world)
    assert [strike.where for strike in told] == [f"call:{MAIL}"]
    seen, before, after, _ = one({"kind": "dropped_connection", "recovered": True})
    assert (seen.error_class, after) == ("connection_error", before)
    _, _, after, _ = one({"kind": "dropped_connection", "recovered": True, "executed": True})
    assert after == HEALTHY[MAIL][1]


def test_a_duplicate_delivery_is_carried_out_twice() -> None:
    world, _ = faulty({"kind": "duplicate_delivery", "at": [MAIL]})
    state, _ = walk(world, CALLS[: MAIL + 1])
    twice, _ = walk(DESK, [*CALLS[: MAIL + 1], CALLS[MAIL]])
    assert world.digest(state) == DESK.digest(twice)


def test_a_stale_answer_is_that_of_the_call_before_and_never_strikes_the_first() -> None:
    seen, _, after, way = one({"kind": "duplicate_delivery", "form": "stale_answer"})
    assert (seen, after) == (HEALTHY[MAIL - 1][0], HEALTHY[MAIL][1])
    assert way[MAIL + 1 :] == HEALTHY[MAIL + 1 :]
    world, told = faulty({"kind": "duplicate_delivery", "form": "stale_answer", "rate": 1.0})
    _, way = walk(world)
    assert [strike.where for strike in told] == [f"call:{number}" for number in range(1, len(CALLS))]
    assert [seen for seen, _ in way] == [HEALTHY[0][0], *(seen for seen, _ in HEALTHY[:-1])]


def test_a_corrupted_state_differs_in_one_material_place_that_no_call_wrote() -> None:
    places = set()
    for seed in range(20):
        world, _ = faulty({"kind": "corrupted_state", "at": [0]}, seed=seed)
        state, _ = walk(world, CALLS[:1])
        healthy, _ = walk(DESK, CALLS[:1])
        (change,) = differences(DESK.view(healthy), world.view(state)).changes
        assert DESK.material(DESK.view(healthy)) != DESK.material(world.view(state))
        places.add(change.path)
    assert len(places) > 5


def test_a_stray_write_may_be_named_as_a_place_or_as_a_call() -> None:
    ticket = sorted(DRAFT.initial_state["tickets"])[0]
    world, _ = faulty({"kind": "corrupted_state", "at": [0], "path": f"/tickets/{ticket}/note", "value": "x"})
    state, _ = walk(world, CALLS[:1])
    assert world.view(state)["tickets"][ticket]["note"] == "x"
    call = {"name": "update_ticket", "arguments": {"id": ticket, "fields": {"note": "y"}}}
    world, _ = faulty({"kind": "corrupted_state", "at": [0], "call": call})
    state, _ = walk(world, CALLS[:1])
    assert world.view(state)["tickets"][ticket]["note"] == "y"


@pytest.mark.parametrize(
    ("write", "told"), [({"path": "/nothing/here"}, "'/nothing/here'"), ({"path": "/clock/now", "value": 3}, "cannot hold.*clock.now")]
)
def test_a_stray_write_that_cannot_be_is_refused(write: dict[str, Any], told: str) -> None:
    world, _ = faulty({"kind": "wrong_reset", **write})
    with pytest.raises(SettingsError, match=told):
        world.reset(DRAFT, seed=0)


class Sealed(TicketDesk):
    """A desk whose snapshots are no JSON."""

    def snapshot(self, state: DeskState) -> Snapshot:
        return Snapshot(self.digest(state), b"\x80\x04")


def test_a_world_without_json_snapshots_takes_stray_writes_as_calls_alone_and_says_so_at_the_reset() -> None:
    world, _ = faulty({"kind": "corrupted_state", "rate": 1e-9}, world=Sealed())
    with pytest.raises(SettingsError, match="'ticket_desk' are not the JSON of its views; a stray write needs a call"):
        world.reset(DRAFT, seed=0)
    world, _ = faulty({"kind": "corrupted_state", "at": [0], "call": {"name": "ask_user", "arguments": {"question": "?"}}}, world=Sealed())
    assert len(world.view(walk(world, CALLS[:1])[0])["call_log"]) == 2


def test_a_wrong_reset_gives_another_state_and_a_healthy_world_from_there() -> None:
    world, told = faulty({"kind": "wrong_reset"})
    state = world.reset(DRAFT, seed=0)
    assert [(strike.fault.kind, strike.where) for strike in told] == [("wrong_reset", "reset")]
    start = DESK.reset(DRAFT, seed=0)
    (change,) = differences(DESK.view(start), world.view(state)).changes
    assert change.path.count("/") == 3
    assert world.call(state, CALLS[0])[1] == DESK.call(DESK.restore(world.snapshot(state)), CALLS[0])[1]
    other = generate(2, seed=9)[1]
    world, _ = faulty({"kind": "wrong_reset", "initial_state": other.initial_state})
    assert world.digest(world.reset(DRAFT, seed=0)) == DESK.digest(DESK.reset(other, seed=0))


class Seeded(TicketDesk):
    """A desk that keeps the seed it was reset with."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds: list[int] = []

    def reset(self, draft: Any, *, seed: int) -> DeskState:
        self.seeds.append(seed)
        return super().reset(draft, seed=seed)


def test_an_ignored_seed_is_another_one_and_differs_between_rollouts() -> None:
    desk = Seeded()
    for root in (1, 2):
        world, told = faulty({"kind": "seed_ignored"}, seed=root, world=desk)
        world.reset(DRAFT, seed=7)
        assert [strike.where for strike in told] == ["reset"]
    assert 7 not in desk.seeds and len(set(desk.seeds)) == 2
    world, told = faulty({"kind": "seed_ignored", "rate": 1e-9}, world=desk)
    world.reset(DRAFT, seed=7)
    assert (desk.seeds[-1], told) == (7, [])


def test_one_fault_strikes_a_call_the_first_of_the_plan() -> None:
    world, told = faulty({"kind": "slow_answer", "rate": 0.5}, {"kind": "permission_denied", "rate": 1.0})
    walk(world, CALLS * 5)
    assert len({strike.where for strike in told}) == len(told) == len(CALLS) * 5
    assert {strike.fault.kind for strike in told} == {"slow_answer", "permission_denied"}


@pytest.mark.parametrize("kind", ["timeout", "permission_denied", "malformed_result", "truncated_result", "slow_answer", "corrupted_state"])
def test_a_rollout_is_its_healthy_twin_until_the_first_fault(kind: str) -> None:
    firsts = set()
    for seed in range(12):
        world, told = faulty({"kind": kind, "rate": 0.3}, seed=seed)
        _, way = walk(world)
        first = int(told[0].where.partition(":")[2]) if told else len(CALLS)
        assert way[:first] == HEALTHY[:first]
        assert way == HEALTHY or told
        assert not told or way[first] != HEALTHY[first]
        firsts.add(first)
    assert len(firsts) > 2


def test_states_are_values_and_a_restored_one_counts_its_calls_anew() -> None:
    world, _ = faulty({"kind": "permission_denied", "at": [1]})
    state = world.reset(DRAFT, seed=0)
    first, _ = world.call(state, CALLS[0])
    for _ in range(2):
        assert world.call(first, CALLS[1])[1].error_class == "permission_denied"
    again = world.restore(world.snapshot(first))
    assert again == FaultyState(first.inner)
    assert world.call(again, CALLS[1])[1].error_class is None
    assert world.call(state, CALLS[0])[1].error_class is None


def test_declared_faults_follow_the_seed_of_the_reset_and_planted_ones_do_not_shift_them() -> None:
    draft = replace(DRAFT, spec={**DRAFT.spec, "faults": [{"kind": "timeout", "rate": 0.4}]})
    assert declared_world(DESK, DRAFT, seed=1) is DESK
    assert declared_user(DRAFT, seed=1) is None

    def refused(world: World[Any]) -> list[bool]:
        return [seen.error_class == "timeout" for seen, _ in walk(world, CALLS * 4)[1]]

    legal = refused(declared_world(DESK, draft, seed=1))
    assert legal == refused(declared_world(DESK, draft, seed=1)) != refused(declared_world(DESK, draft, seed=2))
    planted, told = faulty({"kind": "corrupted_state", "at": [0, 3]}, world=declared_world(DESK, draft, seed=1))
    assert refused(planted) == legal
    assert [strike.where for strike in told] == ["call:0", "call:3"]


def test_an_interrupting_user_speaks_where_planned_and_not_after_the_end() -> None:
    told: list[Strike] = []
    plan = read_plan([{"kind": "interrupting_user", "at": [2], "message": "hello?"}])
    user = FaultyUser(DRAFT, plan, key=(1, "r"), tell=told.append)
    said = [user.says(step, ended=False) for step in range(1, 5)]
    assert said == [[], [{"role": "user", "content": "hello?"}], [], []]
    assert [strike.where for strike in told] == ["step:2"]
    assert FaultyUser(DRAFT, plan, key=(1, "r")).says(2, ended=True) == []


def test_a_changing_user_says_it_once_at_the_step_or_when_the_policy_thinks_it_is_done() -> None:
    plan = read_plan([{"kind": "changing_user", "at": [3], "message": "no, P2", "spec": {"priority": DRAFT.spec["priority"]}}])
    for steps, ended_at, where in (((1, 2, 3, 4), None, "step:3"), ((1, 2), 2, "step:2")):
        told: list[Strike] = []
        user = FaultyUser(DRAFT, plan, key=(1, "r"), tell=told.append)
        said = [message["content"] for step in steps for message in user.says(step, ended=step == ended_at)]
        assert (said, [strike.where for strike in told]) == (["no, P2"], [where])
        assert user.says(9, ended=True) == []
    with pytest.raises(BundleError, match="priority = 'P4'"):
        FaultyUser(DRAFT, read_plan([{"kind": "changing_user", "at": [3], "message": "x", "spec": {"priority": "P4"}}]), key=())
