"""Worlds over real servers of the official `mcp` package and over a defective one, with stdio and streamable HTTP."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, WorldFailed
from tests.training.worlds.mcp.conftest import OpenWorld
from tests.training.worlds.mcp.defective_server import TOOLS, reply
from training.verifiers import JudgeTask
from training.verifiers.end_state import end_state
from training.worlds import ToolCall
from training.worlds.mcp.serving import Front, Sessions
from training.worlds.mcp.tasks import load_tasks
from training.worlds.mcp.world import EXAMPLES, REQUIREMENTS, McpWorld
from training.worlds.package_venv import package_venv
from training.worlds.sqlite import EXAMPLES as SQLITE
from training.worlds.sqlite import SqliteWorld, read_definition
from training.worlds.sqlite import load_tasks as sqlite_tasks

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[4]
DEFECTIVE = [sys.executable, str(Path(__file__).parent / "defective_server.py")]
REFUND = {"order_id": "O-101", "sku": "LMP-1", "quantity": 1, "reason": "unwanted"}
LAMP = "shop-refund-one-lamp"


def draft(**initial: Any) -> BundleDraft:
    return BundleDraft(name="hand", world="mcp", request={"turns": [[]]}, initial_state=initial)


@pytest.fixture(scope="module")
def defective(open_world: OpenWorld) -> McpWorld:
    return open_world(command=DEFECTIVE, timeout_s=6, workers=2)


@pytest.fixture(scope="module")
def notes(open_world: OpenWorld) -> McpWorld:
    return open_world(command=["{python}", "{examples}/notes/server.py"])


@pytest.fixture(scope="module")
def served(venvs: Path) -> Iterator[tuple[Sessions, str]]:
    """The shop's tasks served over HTTP with snapshots: the sessions on our side, and the address."""
    world = SqliteWorld(read_definition(SQLITE / "shop"))
    sessions = Sessions(world, {task.name: task for task in sqlite_tasks(world, SQLITE / "shop", count=2)}, snapshots=True)
    front = Front(package_venv("mcp", REQUIREMENTS, venvs).python, "http", name="shop")
    up = threading.Event()
    serving = threading.Thread(target=front.serve, args=(sessions,), kwargs={"listening": lambda _: up.set()})
    serving.start()
    assert up.wait(60)
    yield sessions, f"http://127.0.0.1:{front.port}/{{task}}/{{session}}/mcp"
    front.stop()
    serving.join()


def test_tools_are_listed_over_all_pages_under_names_that_models_may_use(defective: McpWorld) -> None:
    tools = [tool["function"] for tool in defective.tools(draft(), turn=0)]
    assert [tool["name"] for tool in tools] == [name.replace(".", "_") for name in TOOLS]
    assert tools[0] == {"name": "echo", "description": "", "parameters": {"type": "object"}}
    assert defective.ask("server") == {"name": "defective", "version": "1", "protocol": "2025-06-18"}


def test_content_of_every_kind_is_text_or_a_note(defective: McpWorld) -> None:
    state = defective.reset(draft(), seed=0)
    seen = {}
    for name in ("echo", "refuse", "structured", "media", "dotted_name", "bad_params", "nothing"):
        state, observation = defective.call(state, ToolCall(name, {}))
        seen[name] = (observation.content, observation.error_class)
    assert seen == {
        "echo": ("hello", None),
        "refuse": ("not today", "tool_error"),
        "structured": ('{"a": [2], "b": 1}', None),
        "media": (
            "look:\n[image, image/png, 3 bytes, SHA-256 8f8cbb7dcf46e0bc, not shown]\n[link to resource plan at file:///plan.md]\n"
            "[resource file:///a.txt]\ninside\n"
            "[resource file:///b.bin, application/octet-stream, 3 bytes, SHA-256 51a1f05af85e342e, not shown]",
            None,
        ),
        "dotted_name": ("dotted", None),
        "bad_params": ("as planned", "invalid_arguments"),
        "nothing": ('{"error": "no tool \'nothing\'"}', "unknown_tool"),
    }
    assert [name for name, _ in defective.view(state)["calls"]] == ["echo", "structured", "media", "dotted_name"]


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("hang", "ServerLate"),
        ("die", "ServerGone.*Connection closed"),
        ("no_content", "ProtocolFault.*no result of the protocol"),
        ("wrong_type", "ProtocolFault.*no result of the protocol"),
        ("internal", r"ProtocolFault.*as planned \(code -32603\)"),
        ("garbage", "ServerLate|ProtocolFault"),
    ],
)
def test_a_defect_of_the_server_is_the_worlds_failure_by_its_kind(defective: McpWorld, tool: str, told: str) -> None:
    state = defective.reset(draft(), seed=0)
    with pytest.raises(WorldFailed, match=f"(?s){told}"):
        defective.call(state, ToolCall(tool, {}))
    assert defective.call(state, ToolCall("echo", {}))[1].content == "hello"


def test_a_server_that_answers_otherwise_the_second_time_cannot_be_forked(defective: McpWorld) -> None:
    state, _ = defective.call(defective.reset(draft(), seed=0), ToolCall("clock", {}))
    first, _ = defective.call(state, ToolCall("echo", {}))
    assert [name for name, _ in defective.view(first)["calls"]] == ["clock", "echo"]
    with pytest.raises(WorldFailed, match="not deterministic"):
        defective.call(state, ToolCall("refuse", {}))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"command": ["/no/such/server"]}, "ServerGone"),
        ({"command": [*DEFECTIVE, "--endless"]}, "ProtocolFault"),
        ({"url": "http://127.0.0.1:9/mcp"}, "ServerGone|ServerLate|ProtocolFault"),
    ],
)
def test_a_server_that_does_not_come_up_is_the_worlds_failure(open_world: OpenWorld, options: dict[str, Any], told: str) -> None:
    with pytest.raises(WorldFailed, match=told):
        open_world(**options, timeout_s=6).reset(draft(), seed=0)


def test_the_example_of_the_official_package_is_solved_failed_and_forked_by_replay(notes: McpWorld) -> None:
    tasks = load_tasks(notes, EXAMPLES / "notes" / "tasks.toml", count=3)
    assert notes.fidelity == "replay"
    assert tasks[1].reference is not None
    assert tasks[1].reference["end_state"] == {"probes": {"list_notes {}": {"lease": {"text": "ends in May", "locked": True}}}}
    task, start = tasks[1], notes.reset(tasks[1], seed=0)
    half, _ = notes.call(start, ToolCall("delete_note", {"title": "milk"}))
    at_rest = notes.snapshot(half)
    one, other = notes.fork(at_rest, 2)
    done, _ = notes.call(one, ToolCall("delete_note", {"title": "idea"}))
    refused, observation = notes.call(other, ToolCall("delete_note", {"title": "lease"}))
    assert (observation.content, observation.error_class) == ("Error executing tool delete_note: note 'lease' is locked", "tool_error")
    assert notes.digest(refused) == at_rest.snapshot_id
    about = JudgeTask(task, notes.material)
    assert [end_state(notes.view(start), notes.view(state), (), about).passed for state in (start, half, done)] == [False, False, True]
    assert [change.path for change in notes.diff(half, done).changes] == ["/probes/list_notes {}/idea"]


def test_a_reference_that_is_refused_is_no_task(notes: McpWorld, tmp_path: Path) -> None:
    text = 'system = "s"\nlicence = "x"\n[[tasks]]\nname = "t"\nturns = ["go"]\ncalls = [[{ name = "delete_note", arguments = { title = "x" } }]]'
    (tmp_path / "tasks.toml").write_text(text)
    with pytest.raises(BundleError, match="is refused: .*no note 'x'"):
        load_tasks(notes, tmp_path / "tasks.toml", count=1)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_world_of_ours_over_http_is_exact_and_its_sessions_are_ours(
    open_world: OpenWorld, served: tuple[Sessions, str], mode: str
) -> None:
    sessions, url = served
    known = set(sessions.open)
    world = open_world(url=url, mode=mode, snapshots=True, workers=2)
    assert world.fidelity == "exact"
    task = draft(task=LAMP)
    assert [tool["function"]["name"] for tool in world.tools(task, turn=0)] == [tool["name"] for tool in sessions.tools(LAMP, "x")[:-2]]
    start = world.reset(task, seed=0)
    state, observation = world.call(start, ToolCall("refund_item", REFUND))
    assert observation.error_class is None
    assert world.call(state, ToolCall("get_order", {"order_id": "O-1"}))[1].error_class == "not_found"
    own = {sessions.session(*key).state.digest for key in set(sessions.open) - known}
    ours = SqliteWorld(read_definition(SQLITE / "shop"))
    expected, _ = ours.call(ours.state_of(ours.seed_rows), ToolCall("refund_item", REFUND))
    assert ours.digest(expected) in own
    assert world.view(state) == {"state": ours.view(expected), "material": ours.material(ours.view(expected))}
    one, other = world.fork(world.snapshot(state), 2)
    richer = [
        world.call(fork, ToolCall("give_credit", {"customer_id": "C-1", "cents": cents}))[0] for fork, cents in ((one, 5), (other, 6))
    ]
    assert [change.path for change in world.diff(*richer).changes] == [
        f"/{part}/customers/C-1/credit_cents" for part in ("material", "state")
    ]
    with pytest.raises(WorldFailed, match="no task 'none'"):
        world.reset(draft(task="none"), seed=0)


def test_the_command_serves_stdio_and_says_at_the_end_how_the_session_came_out(venvs: Path, tmp_path: Path) -> None:
    script = """
import asyncio, json, sys
from mcp import Client, StdioServerParameters
async def main():
    command, env, refund = json.loads(sys.argv[1])
    async with Client(StdioServerParameters(command=command[0], args=command[1:], env=env), read_timeout_seconds=90) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("refund_item", refund)
        print(json.dumps([names, result.is_error, json.loads(result.content[0].text)["amount_cents"]]))
asyncio.run(main())
"""
    python = package_venv("mcp", REQUIREMENTS, venvs).python
    journal, data = tmp_path / "journal.jsonl", tmp_path / "data"
    data.mkdir()
    (data / "venvs").symlink_to(venvs)
    command = [sys.executable, "-m", "training.worlds.mcp.command", "--option", "name=shop", "--journal", str(journal)]
    asked = json.dumps([command, {"PYTHONPATH": str(ROOT), "TALLY_DATA_DIR": str(data)}, REFUND])
    done = subprocess.run([str(python), "-c", script, asked], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    names, is_error, cents = json.loads(done.stdout)
    assert "tally_restore" not in names and len(names) == 9 and (is_error, cents) == (False, 3400)
    assert "shop-refund-one-lamp stdio: 1 calls" in done.stderr and "sqlite_conditions passed" in done.stderr
    assert [json.loads(line)["name"] for line in journal.read_text().splitlines()] == ["refund_item"]


@pytest.fixture(scope="module")
def broken_http() -> Iterator[str]:
    """The defective server over HTTP: some tools drop the connection, answer with a page or with status 500."""

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        name = (message.get("params") or {}).get("name")
        if name == "die" and request.transport is not None:
            request.transport.close()
        if name == "garbage":
            return web.Response(text="<p>hello</p>", content_type="text/html")
        if name == "internal":
            return web.Response(status=500)
        if name == "hang":
            await asyncio.sleep(60)
        said = reply(message)
        return web.Response(status=202) if said is None else web.json_response(said)

    loop = asyncio.new_event_loop()
    up = threading.Event()
    ports: list[int] = []

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/mcp", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
        up.set()
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runners.append(loop.run_until_complete(start()))
        loop.run_forever()

    runners: list[web.AppRunner] = []
    thread = threading.Thread(target=run)
    thread.start()
    assert up.wait(30)
    yield f"http://127.0.0.1:{ports[0]}/mcp"
    asyncio.run_coroutine_threadsafe(runners[0].cleanup(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("die", "ServerGone|ProtocolFault"),
        ("garbage", "ProtocolFault"),
        ("internal", "ProtocolFault"),
        ("hang", "ServerLate"),
        ("no_content", "ProtocolFault"),
    ],
)
def test_a_defect_over_http_is_the_worlds_failure_by_its_kind(open_world: OpenWorld, broken_http: str, tool: str, told: str) -> None:
    world = open_world(url=broken_http, timeout_s=6, workers=1)
    state = world.reset(draft(), seed=0)
    with pytest.raises(WorldFailed, match=f"(?s){told}"):
        world.call(state, ToolCall(tool, {}))
    assert world.call(state, ToolCall("echo", {}))[1].content == "hello"


def test_nothing_of_our_environment_reaches_a_server(open_world: OpenWorld, tmp_path: Path) -> None:
    program = tmp_path / "environment.py"
    program.write_text(
        f"import json, os, pathlib, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport defective_server as server\n"
        f"pathlib.Path({str(tmp_path / 'seen.json')!r}).write_text(json.dumps(dict(os.environ)))\nserver.main()\n"
    )
    os.environ["TALLY_TEST_SECRET"] = "do not tell"
    try:
        open_world(command=[sys.executable, str(program)], env={"TOLD": "yes"}, timeout_s=6).reset(draft(), seed=0)
    finally:
        del os.environ["TALLY_TEST_SECRET"]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["TOLD"] == "yes"
    assert "TALLY_TEST_SECRET" not in seen
