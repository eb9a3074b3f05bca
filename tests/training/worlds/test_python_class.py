"""Generated classes as worlds: what a class must be, and that nothing it does reaches beyond its own state."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger import queries
from ledger.bundle import BundleDraft
from ledger.errors import BundleError, WorldFailed
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from pipelines import SHIPPED
from training import stages
from training.lab import Lab
from training.run_config import read_run_config
from training.verifiers import JudgeTask, Verdict
from training.verifiers.end_state import end_state
from training.worlds import ToolCall
from training.worlds.python_class import EXAMPLES, SOURCE, PythonClasses, read_sources, read_tasks
from training.worlds.python_class.host import LIMITS, Hosts
from training.worlds.reference_scripts import Turns, candidates, reference_turns, replay
from training.worlds.runtime import Sandbox
from training.worlds.source import TaskQuery

COUNTER = """
import random

class Counter:
    '''Counts.'''
    limit: int = 3
    def __init__(self, state=None):
        self.count = 0
        self.log = []
        self._secret = "s"
    def add(self, by: int = 1) -> dict:
        '''Add to the count.

        Args:
            by: how much.
        '''
        self.count += by
        self.log.append(self.count)
        return {"success": True, "count": self.count}
    def roll(self) -> int:
        self.count = random.randrange(10**9)
        return self.count
    def half(self):
        self.count = 99
        raise ValueError("half done")
    def look(self): return f"{self.count}"
    def _hidden(self): return "hidden"
    @property
    def size(self): return 1
"""


def draft(cls: str, state: dict[str, Any] | None = None, **more: Any) -> BundleDraft:
    return BundleDraft(
        "task", "python_class", {"turns": [[{"role": "user", "content": "?"}]]}, {"class": cls, "state": state or {}, **more}
    )


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox("hostile")


@pytest.fixture(scope="module")
def counter(sandbox: Sandbox) -> Iterator[PythonClasses]:
    world = PythonClasses({"counter": COUNTER}, sandbox=sandbox)
    yield world
    world.close()


@pytest.fixture(scope="module")
def examples() -> Iterator[PythonClasses]:
    world = SOURCE.open(Settings(), {})
    assert isinstance(world, PythonClasses)
    yield world
    world.close()


def once(
    sandbox: Sandbox, source: str, *calls: str, state: dict[str, Any] | None = None, wall_s: float = 5.0
) -> list[tuple[str, str | None]]:
    """What a class answers to calls without arguments."""
    world = PythonClasses({"one": source}, sandbox=sandbox, limits=replace(LIMITS, wall_s=wall_s))
    try:
        at, answers = world.reset(draft("one", state), seed=0), []
        for name in calls:
            at, observation = world.call(at, ToolCall(name, {}))
            answers.append((observation.content, observation.error_class))
        return answers
    finally:
        world.close()


def test_attributes_are_the_state_and_public_methods_the_tools(counter: PythonClasses) -> None:
    names = [tool["function"]["name"] for tool in counter.tools(draft("counter"), turn=0)]
    assert names == ["add", "roll", "half", "look"]
    add = counter.tools(draft("counter"), turn=0)[0]["function"]
    assert add["description"] == "Add to the count."
    assert add["parameters"] == {
        "type": "object", "properties": {"by": {"type": "integer", "description": "how much.", "default": 1}}, "required": [],
        "additionalProperties": False,
    }  # fmt: skip
    state = counter.reset(draft("counter", {"count": 5}), seed=3)
    assert counter.view(state) == {"count": 5, "log": [], "_secret": "s", "$random": {"seed": 3, "draws": 0}}
    assert counter.material(counter.view(state)) == {"count": 5, "log": []}


def test_a_call_gives_a_new_state_and_leaves_the_old_one(counter: PythonClasses) -> None:
    before = counter.reset(draft("counter"), seed=0)
    after, observation = counter.call(before, ToolCall("add", {"by": 2}))
    assert (json.loads(observation.content), observation.error_class) == ({"success": True, "count": 2}, None)
    assert counter.view(before)["count"] == 0 and counter.view(after)["log"] == [2]
    assert [change.path for change in counter.diff(before, after).changes] == ["/count", "/log/0"]
    assert counter.call(after, ToolCall("look", {}))[1].content == "2"


@pytest.mark.parametrize(
    ("call", "error_class", "says"),
    [
        (ToolCall("half", {}), "tool_error", "ValueError: half done"),
        (ToolCall("fly", {}), "unknown_tool", "add, roll, half, look"),
        (ToolCall("_hidden", {}), "unknown_tool", "_hidden"),
        (ToolCall("__init__", {}), "unknown_tool", "__init__"),
        (ToolCall("size", {}), "unknown_tool", "size"),
        (ToolCall("add", {"to": 1}), "invalid_arguments", "to"),
        (ToolCall("add", {"by": "x"}), "tool_error", "TypeError"),
        (ToolCall("add", {"by": float("nan")}), "malformed_arguments", "nan"),
    ],
)
def test_a_call_that_cannot_be_carried_out_is_an_observation_and_changes_nothing(
    counter: PythonClasses, call: ToolCall, error_class: str, says: str
) -> None:
    before = counter.reset(draft("counter"), seed=0)
    after, observation = counter.call(before, call)
    assert after == before and observation.error_class == error_class and says in observation.content


def test_chance_comes_from_the_seed_and_the_draws_alone(counter: PythonClasses) -> None:
    def rolled(seed: int) -> list[int]:
        state, numbers = counter.reset(draft("counter"), seed=seed), []
        for _ in range(3):
            state, observation = counter.call(state, ToolCall("roll", {}))
            numbers.append(int(observation.content))
            state, _ = counter.call(state, ToolCall("look", {}))
        assert counter.view(state)["$random"] == {"seed": seed, "draws": 3}
        return numbers

    assert rolled(1) == rolled(1) and len(set(rolled(1) + rolled(2))) == 6
    fixed = counter.reset(draft("counter", seed=1), seed=2)
    assert counter.call(fixed, ToolCall("roll", {}))[1].content == str(rolled(1)[0])


def test_a_snapshot_restores_and_forks_to_the_same_digest(counter: PythonClasses) -> None:
    state, _ = counter.call(counter.reset(draft("counter"), seed=4), ToolCall("roll", {}))
    rest = counter.snapshot(state)
    forks = counter.fork(rest, 3)
    assert counter.restore(rest) == state and {counter.digest(fork) for fork in forks} == {rest.snapshot_id}
    ends = [counter.call(fork, ToolCall("roll", {}))[0] for fork in forks]
    assert len({counter.digest(end) for end in ends}) == 1 and counter.digest(ends[0]) != rest.snapshot_id
    with pytest.raises(WorldFailed, match="digest"):
        counter.restore(replace(rest, data=rest.data.replace(b'"draws":1', b'"draws":2')))
    with pytest.raises(WorldFailed, match="no state"):
        counter.restore(replace(rest, data=b"{}"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("self.x = {1, 2}", "self.x is a set"),
        ("self.x = {'a': [(1, 2)]}", r"self.x.a\[0\] is a tuple"),
        ("self.x = {3: 'a'}", "key 3"),
        ("self.x = object()", "self.x is a object"),
        ("self.x = float('inf')", "finite"),
        ("self.x = 2**60", "2\\^53"),
        ("self.x = []; self.x.append(self.x)", "RecursionError"),
        ("self.x = '\\ud800'", "canonical"),
        ("raise RuntimeError('no')", "cannot be built: RuntimeError: no"),
        ("raise SystemExit", "SystemExit"),
    ],
)
def test_a_class_whose_state_is_no_json_is_no_world(sandbox: Sandbox, line: str, says: str) -> None:
    with pytest.raises(WorldFailed, match=says):
        once(sandbox, f"class One:\n  def __init__(self):\n    {line}\n  def look(self): return 1")
    if "raise" not in line:
        with pytest.raises(WorldFailed, match=says):
            once(sandbox, f"class One:\n  def look(self):\n    {line}", "look")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1", "has 0: none"),
        ("class A:\n  def a(self): pass\nclass B:\n  def b(self): pass", "has 2: A, B"),
        ("import numpy\nclass A:\n  def a(self): pass", "ModuleNotFoundError"),
    ],
)
def test_a_source_is_one_class(sandbox: Sandbox, source: str, says: str) -> None:
    with pytest.raises(WorldFailed, match=says):
        once(sandbox, source)


def test_a_source_that_is_no_python_is_refused_before_anything_runs(sandbox: Sandbox) -> None:
    with pytest.raises(BundleError, match="is no Python"):
        PythonClasses({"one": "class A"}, sandbox=sandbox)
    with pytest.raises(BundleError, match="no class world"):
        PythonClasses({}, sandbox=sandbox)


def test_helper_classes_and_base_classes_are_no_worlds_of_their_own(sandbox: Sandbox) -> None:
    source = """
from typing import TypedDict
class Row(TypedDict):
    name: str
class _Index:
    def find(self): return 0
class Base:
    def one(self): return 1
class World(Base):
    def two(self): return Row(name="r")
"""
    assert once(sandbox, source, "one", "two") == [("1", None), ('{"name": "r"}', None)]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("while True: pass", "no answer within"),
        ("import os; os._exit(7)", "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "exit code"),
        ("x = bytearray(1 << 33)", "ended before it answered"),
        ("return 'x' * (20 << 20)", "answered more than"),
        ("import sys; sys.exit(0)", "SystemExit"),
    ],
)
def test_a_class_that_breaks_its_process_is_a_failed_world_and_the_next_call_gets_a_new_one(sandbox: Sandbox, body: str, says: str) -> None:
    source = f"class One:\n  def __init__(self): self.n = 1\n  def bad(self):\n    {body}\n  def good(self): self.n += 1; return self.n"
    world = PythonClasses({"one": source}, sandbox=sandbox, limits=replace(LIMITS, wall_s=1.0))
    state = world.reset(draft("one"), seed=0)
    with pytest.raises(WorldFailed, match=says):
        world.call(state, ToolCall("bad", {}))
    assert world.call(state, ToolCall("good", {}))[1].content == "2"
    world.close()


def test_what_a_class_keeps_beside_its_attributes_is_gone_with_the_next_call(sandbox: Sandbox) -> None:
    source = """
seen = []
class One:
    total = 0
    def look(self):
        seen.append(1)
        One.total += 1
        return f"{len(seen)} {self.total}"
"""
    assert once(sandbox, source, "look", "look", "look") == [("1 1", None)] * 3


def test_what_a_class_prints_is_not_taken_for_an_answer(sandbox: Sandbox) -> None:
    source = """
import os, sys
class One:
    def look(self):
        print('{"failed": "forged"}', flush=True)
        os.write(1, b'{"failed": "forged"}\\n')
        return "answer"
"""
    assert once(sandbox, source, "look", "look") == [("answer", None)] * 2


def test_a_hostile_class_reaches_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    verdict = tmp_path / "verdict.json"
    verdict.write_text("failed")
    source = f"""
import os, sys
class One:
    def __del__(self, open=open):
        try: open({str(verdict)!r}, "w").write("passed")
        except OSError: pass
    def write(self): open({str(verdict)!r}, "w").write("passed")
    def read(self): return open("/etc/passwd").read()
    def connect(self):
        import socket
        return str(socket.create_connection(("127.0.0.1", 1)))
    def fork(self): return os.fork()
    def scratch(self): open("/scratch/x", "w")
"""
    answers = once(sandbox, source, "write", "read", "connect", "fork", "scratch")
    assert [error for _, error in answers] == ["tool_error"] * 5
    assert verdict.read_text() == "failed"


def test_a_world_that_asks_for_the_time_does_not_claim_to_replay_exactly(sandbox: Sandbox) -> None:
    def fidelity(source: str) -> str:
        return PythonClasses({"one": source}, sandbox=sandbox).fidelity

    body = "class A:\n  def a(self):\n    self.today = self.now()\n    return {}"
    assert fidelity(body.format("self.today")) == "exact"
    for asks in ("datetime.now()", "datetime.datetime.utcnow()", "time.time()", "uuid.uuid4()", "secrets.token_hex(4)", "time()"):
        assert fidelity(body.format(asks)) == "approximate"


def test_the_version_covers_every_class(sandbox: Sandbox) -> None:
    versions = {PythonClasses({"one": source}, sandbox=sandbox).version for source in (COUNTER, COUNTER + "\n", COUNTER.replace("3", "4"))}
    assert len(versions) == 3


ENVSCALER = '''
from typing import Any, Dict, List, Optional, TypedDict


class RoomInfo(TypedDict):
    room_id: str
    name: str
    capacity: int


class BookingInfo(TypedDict):
    booking_id: str
    room_id: str
    user_id: str
    status: str


class RoomBookingSystem:
    def __init__(self, init_config: Optional[Dict[str, Any]] = None):
        """
        The environment for booking rooms.
        """
        # Rooms: {room_id: RoomInfo}
        self.rooms: Dict[str, RoomInfo] = {}
        # Bookings: {booking_id: BookingInfo}
        self.bookings: Dict[str, BookingInfo] = {}
        # Constraints:
        # - A room can be booked by one user at a time.

    def get_room_by_id(self, room_id: str) -> dict:
        """
        Retrieve a room by its identifier.

        Args:
            room_id (str): Unique identifier of the room.

        Returns:
            dict: {"success": True, "data": RoomInfo} or {"success": False, "error": str}

        Constraints:
            - The room must exist.
        """
        room = self.rooms.get(room_id)
        if not room:
            return {"success": False, "error": "Room not found"}
        return {"success": True, "data": room}

    def list_bookings(self, user_id: Optional[str] = None, status: str = "active") -> Dict[str, Any]:
        """List bookings, filtered by user and status."""
        found: List[BookingInfo] = [b for b in self.bookings.values() if user_id in (None, b["user_id"]) and b["status"] == status]
        return {"success": True, "data": found}

    def create_booking(self, booking_id: str, room_id: str, user_id: str) -> dict:
        """
        Create a booking.

        Args:
            booking_id (str): Identifier of the new booking.
            room_id (str): Identifier of the room.
            user_id (str): Who books it.
        """
        if room_id not in self.rooms:
            return {"success": False, "error": "Room not found"}
        if any(b["room_id"] == room_id and b["status"] == "active" for b in self.bookings.values()):
            return {"success": False, "error": "Room is taken"}
        self.bookings[booking_id] = {"booking_id": booking_id, "room_id": room_id, "user_id": user_id, "status": "active"}
        return {"success": True, "message": f"Booking {booking_id} created"}
'''


def test_a_class_in_the_form_of_envscaler_loads_unchanged(sandbox: Sandbox) -> None:
    world = PythonClasses({"room_booking": ENVSCALER}, sandbox=sandbox)
    task = draft("room_booking", {"rooms": {"R1": {"room_id": "R1", "name": "Oak", "capacity": 4}}, "bookings": {}})
    tools = {tool["function"]["name"]: tool["function"] for tool in world.tools(task, turn=0)}
    assert list(tools) == ["get_room_by_id", "list_bookings", "create_booking"]
    assert tools["get_room_by_id"]["parameters"]["properties"] == {
        "room_id": {"type": "string", "description": "Unique identifier of the room."}
    }
    assert tools["list_bookings"]["parameters"]["properties"]["user_id"] == {"type": ["string", "null"]}
    assert tools["create_booking"]["parameters"]["required"] == ["booking_id", "room_id", "user_id"]
    state = world.reset(task, seed=0)
    booking = ToolCall("create_booking", {"booking_id": "K1", "room_id": "R1", "user_id": "U1"})
    state, made = world.call(state, booking)
    again, refused = world.call(state, booking)
    assert json.loads(made.content)["success"] and json.loads(refused.content) == {"success": False, "error": "Room is taken"}
    assert again == state and world.view(state)["bookings"]["K1"]["status"] == "active" and world.fidelity == "exact"
    world.close()


def judged(world: PythonClasses, task: BundleDraft, turns: Turns) -> Verdict:
    made = replay(world, task, turns, seed=9)
    return end_state(world.view(made.start), world.view(made.end), made.trace, JudgeTask(task, world.material))


@pytest.fixture(scope="module")
def tasks(examples: PythonClasses) -> list[BundleDraft]:
    return list(SOURCE.tasks(examples, TaskQuery(100), Settings()))


def test_every_example_task_accepts_its_reference_and_equals_and_rejects_the_rest(
    examples: PythonClasses, tasks: list[BundleDraft]
) -> None:
    assert len(tasks) == 9 and {task.initial_state["class"] for task in tasks} == set(examples.classes)
    for task in tasks:
        assert judged(examples, task, reference_turns(task)).passed is True, task.name
        equal = candidates(task, "equivalent")
        assert equal and all(judged(examples, task, turns).passed for turns in equal.values()), task.name
        assert judged(examples, task, [[]]).passed is False, task.name
        for path in (task.reference or {})["wrong"]:
            verdict = judged(examples, task, path["turns"])
            assert [c.name for c in verdict.conditions if c.status == "failed"] == path["breaks"], (task.name, path["name"])


def test_the_examples_have_five_to_eight_tools_each_and_replay_exactly(examples: PythonClasses) -> None:
    for name in examples.classes:
        tools = examples.describe(name)["tools"]
        assert 5 <= len(tools) <= 8
        for tool in tools:
            properties = tool["function"]["parameters"]["properties"]
            assert tool["function"]["description"] and all(schema.get("description") for schema in properties.values())
    assert examples.fidelity == "exact"


def test_a_class_has_one_process_and_few_of_them_stay(sandbox: Sandbox) -> None:
    hosts = Hosts(sandbox, {f"w{n}": COUNTER for n in range(4)}, most=2)
    for n in (0, 1, 2, 3, 1):
        hosts.ask(f"w{n}", {"op": "describe"})
    assert sorted(hosts.pids()) == ["w1", "w3"]
    pids = list(hosts.pids().values())
    hosts.close()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(WorldFailed, match="closed"):
        hosts.ask("w0", {"op": "describe"})


def test_a_killed_worker_is_replaced(counter: PythonClasses) -> None:
    state = counter.reset(draft("counter"), seed=0)
    os.kill(counter.worker_pids["counter"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while counter.worker_pids:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert counter.call(state, ToolCall("look", {}))[1].content == "0"


def test_a_folder_without_classes_or_tasks_is_named(tmp_path: Path, examples: PythonClasses) -> None:
    with pytest.raises(BundleError, match="holds no class world"):
        read_sources(tmp_path)
    with pytest.raises(BundleError, match=r"tasks.json cannot be read"):
        read_tasks(tmp_path, examples)
    for content, says in (
        ("[]", "list `tasks`"),
        ('{"tasks": [{"name": "a"}]}', "it needs"),
        ('{"tasks": [{"name": "a", "class": "x", "request": "?"}]}', None),
    ):
        (tmp_path / "tasks.json").write_text(content)
        if says is None:
            with pytest.raises(BundleError, match="no class world 'x'; there are library_loans"):
                examples.tools(read_tasks(tmp_path, examples)[0], turn=0)
        else:
            with pytest.raises(BundleError, match=says):
                read_tasks(tmp_path, examples)
    assert set(read_sources(EXAMPLES)) == {"library_loans", "meeting_rooms", "parcel_depot"}


def test_the_shipped_experiment_goes_from_tasks_to_rewards(ledger: LedgerHandle, tmp_path: Path) -> None:
    with Lab(read_run_config(SHIPPED / "class_worlds.toml"), ledger, Settings(data_dir=tmp_path)) as lab:
        for stage in (stages.task_bundles, stages.rollouts, stages.verdicts, stages.rewards):
            stage(lab)
        queries.fresh(ledger)
        found = Counter((line.policy, line.reward) for line in queries.rollouts(ledger, limit=100).lines)
    assert found == {("oracle", 1.0): 9, ("gives_up", 0.0): 9, ("drops_last_call", 0.0): 9}
