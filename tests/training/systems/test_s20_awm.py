"""S20 AWM: first and last state as SQLite files, four classes of end, and no number where the world or the verifier broke."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import VerifierFailed
from training.rewards import JudgedRollout, rewards
from training.verifiers import JudgeTask, TraceStep, Verdict, verifiers
from training.worlds import Observation, ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.scripts import SCRIPTS

DESK = TicketDesk()
DRAFT = generate(1, seed=3)[0]
judge = verifiers["four_classes"]
BROKEN = TraceStep(0, ToolCall("send_email", {}), Observation("HTTP 500", "tool_error"))


def stored(view: Any, path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("CREATE TABLE state (place TEXT, id TEXT, row TEXT)")
        rows = [(table, key, json.dumps(row)) for table, rows in view.items() if table != "call_log" for key, row in rows.items()]
        conn.executemany("INSERT INTO state VALUES (?, ?, ?)", rows)


def read(path: Path) -> Any:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        view: dict[str, Any] = {table: {} for table in ("tickets", "owners", "outbox", "clock")}
        for table, key, row in conn.execute("SELECT place, id, row FROM state"):
            view[table][key] = json.loads(row)
    return view


def run(script: str) -> tuple[Any, Any, list[TraceStep]]:
    state = DESK.reset(DRAFT, seed=0)
    start, trace = DESK.view(state), []
    for turn in SCRIPTS[script](DRAFT):
        for name, raw in turn.tool_calls:
            call = ToolCall(name, json.loads(raw))
            state, observation = DESK.call(state, call)
            trace.append(TraceStep(0, call, observation))
    return start, DESK.view(state), trace


def verdict(script: str, tmp_path: Path, *more: TraceStep) -> Verdict:
    start, end, trace = run(script)
    stored(start, tmp_path / "initial.db")
    stored(end, tmp_path / "final.db")
    return judge(read(tmp_path / "initial.db"), read(tmp_path / "final.db"), [*trace, *more], JudgeTask(DRAFT, DESK.material))


def class_of(found: Verdict) -> str:
    return str(found.conditions[1].evidence["class"])


def reward(found: Verdict | None) -> float | None:
    conditions = {} if found is None else {"state": {"passed": True, "failed": False, "error": None}[found.conditions[0].status]}
    judged = JudgedRollout("finished", None if found is None else found.passed, "error" if found is None else "completed", conditions)
    return rewards["all_conditions"]([judged]).value_R[0]


def test_the_class_is_judged_from_the_files_and_complete_comes_first(tmp_path: Path) -> None:
    for at, (script, more, expected, value) in enumerate(
        [
            ("oracle", (), "complete", 1.0),
            ("oracle", (BROKEN,), "complete", 1.0),
            ("gives_up", (BROKEN,), "server_error", None),
            ("gives_up", (TraceStep(0, ToolCall("send_email", {}), Observation("no", "not_found")),), "agent_error", 0.0),
            ("gives_up", (), "incomplete", 0.0),
        ]
    ):
        folder = tmp_path / str(at)
        folder.mkdir()
        found = verdict(script, folder, *more)
        assert (class_of(found), reward(found)) == (expected, value)


def test_an_error_that_the_agent_overcame_is_not_the_world_s(tmp_path: Path) -> None:
    after = TraceStep(0, ToolCall("get_owner", {"owner_id": "O99"}), Observation("no", "not_found"))
    assert class_of(verdict("gives_up", tmp_path, BROKEN, after)) == "agent_error"


def test_a_verifier_that_breaks_gives_no_number() -> None:
    start, end, trace = run("oracle")
    bare = type(DRAFT)(**{**vars(DRAFT), "reference": None})
    with pytest.raises(VerifierFailed, match="has no reference end state"):
        judge(start, end, trace, JudgeTask(bare, DESK.material))
    assert reward(None) is None
