"""The official checker as a verifier: right answers pass, neighbours fail, and no verdict depends on an earlier one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import DownloadFailed, VerifierFailed
from ledger.settings import Settings
from ledger.wheels import fetch_wheel
from training.verifiers import JudgeTask, TraceStep, Verdict, verifiers
from training.verifiers.bfcl_checker import bfcl_checker
from training.worlds import Observation, ToolCall
from training.worlds.bfcl import WHEEL, Bfcl, load_tasks, replay
from training.worlds.bfcl.calls import call_text, parse_call
from training.worlds.bfcl.docs import documented, load_docs
from training.worlds.bfcl.pool import shared_workers
from training.worlds.bfcl.scripts import wrong_turns
from training.worlds.reference_scripts import Turns, reference_turns

_CORPUS = Path(__file__).parents[3].parent / "shared" / "corpus" / "bfcl" / "multi_turn_checker_verdicts.jsonl"


@pytest.fixture(scope="module")
def unpacked() -> Path:
    """Folder of the unpacked wheel."""
    try:
        return fetch_wheel(WHEEL, Settings().data_dir / "wheels")
    except DownloadFailed as error:
        pytest.skip(f"{WHEEL} cannot be fetched here: {error}")


@pytest.fixture(scope="module")
def drafts(unpacked: Path) -> dict[str, BundleDraft]:
    """All tasks by name."""
    return {draft.name: draft for draft in load_tasks(unpacked)}


@pytest.fixture(scope="module")
def world(unpacked: Path) -> Iterator[Bfcl]:
    """A world with live workers."""
    made = Bfcl(unpacked)
    yield made
    made.close()


def _judge(world: Bfcl, draft: BundleDraft, turns: Turns) -> Verdict:
    ran = replay(world, draft, turns)
    return bfcl_checker(world.view(ran.start), world.view(ran.end), ran.trace, JudgeTask(draft, world.material))


def _failed(verdict: Verdict) -> set[str]:
    return {condition.name for condition in verdict.conditions if condition.status == "failed"}


def _error_type(verdict: Verdict) -> str | None:
    found: str | None = verdict.conditions[0].evidence["official"].get("error_type")
    return found


def test_every_base_reference_passes_and_so_does_every_fiftieth_of_the_other_categories(
    drafts: dict[str, BundleDraft], world: Bfcl
) -> None:
    chosen = [
        draft for draft in drafts.values() if draft.spec["category"] == "multi_turn_base" or int(draft.name.rpartition("_")[2]) % 50 == 0
    ]
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda draft: _judge(world, draft, reference_turns(draft)), chosen))
    assert len(verdicts) == 212
    assert [draft.name for draft, verdict in zip(chosen, verdicts, strict=True) if not verdict.passed] == []


def test_neighbours_that_are_wrong_in_one_place_fail(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    judged = 0
    for number in (0, 52, 101, 153):
        draft = drafts[f"multi_turn_base_{number}"]
        for turns in wrong_turns(draft, world).values():
            assert _judge(world, draft, turns).passed is False
            judged += 1
    assert judged >= 6


def test_each_rule_of_the_checker_is_a_condition_of_its_own(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    draft = drafts["multi_turn_base_1"]
    right = [list(calls) for calls in reference_turns(draft)]
    empty = _judge(world, draft, [*right[:-1], []])
    assert "calls" in _failed(empty)
    assert _error_type(empty) == "multi_turn:empty_turn_model_response"
    extra = _judge(world, draft, [[*right[0], {"name": "mkdir", "arguments": {"dir_name": "extra"}}], *right[1:]])
    assert _failed(extra) == {"state"}
    assert _error_type(extra) == "multi_turn:instance_state_mismatch"
    assert extra.conditions[1].evidence["turns"][0]["differences"]["shown"][0]["path"].startswith("root/contents")
    swapped = _judge(world, draft, [right[0], right[1], [right[2][0], {"name": "pwd", "arguments": {}}], right[3]])
    assert _failed(swapped) == {"response"}
    assert _error_type(swapped) == "multi_turn:execution_response_mismatch"


def test_a_turn_without_reference_calls_is_not_judged(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    draft = drafts["multi_turn_miss_func_0"]
    turns = [list(calls) for calls in reference_turns(draft)]
    assert turns[2] == []
    turns[2] = [{"name": "pwd", "arguments": {}}]
    assert _judge(world, draft, turns).passed is True


def test_a_refused_call_counts_as_a_call_and_an_unparsed_one_does_not(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    draft = drafts["multi_turn_base_3"]
    right = replay(world, draft, reference_turns(draft))
    task = JudgeTask(draft, world.material)
    later = [step for step in right.trace if step.turn > 0]
    refused = TraceStep(0, ToolCall("open", {"file": "/etc/passwd"}), Observation("no such tool", "unknown_tool"))
    unparsed = TraceStep(0, ToolCall("find", {}), Observation("not JSON", "malformed_arguments"))
    assert _failed(bfcl_checker(None, None, [refused, *later], task)) == {"response"}
    assert _failed(bfcl_checker(None, None, [unparsed, *later], task)) == {"calls", "response"}
    assert bfcl_checker(None, None, [refused, unparsed, *right.trace], task).passed is True


def test_a_text_that_looks_like_a_call_is_compared_as_written_where_the_checker_alone_would_fail_it(
    unpacked: Path, drafts: dict[str, BundleDraft], world: Bfcl
) -> None:
    draft = drafts["multi_turn_base_0"]
    call = {"name": "echo", "arguments": {"content": "then ls (all)", "file_name": "previous_report.pdf"}}
    turns = [[*reference_turns(draft)[0], call]]
    changed = replace(draft, reference={"turns": turns, "end_state": None})
    assert _judge(world, changed, turns).passed is True
    texts = [f"{made['name']}({', '.join(f'{key}={value!r}' for key, value in made['arguments'].items())})" for made in turns[0]]
    initial = draft.initial_state
    request = {"op": "check", "entry": draft.name, "classes": initial["classes"], "config": initial["config"]}
    naive = shared_workers(unpacked).ask({**request, "model": [[texts]], "reference": [texts]})
    assert naive["official"]["error_type"] == "multi_turn:instance_state_mismatch"


_NAIVE = """
import json, sys
sys.path.append(sys.argv[1])
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
task = json.load(sys.stdin)
print(json.dumps([multi_turn_checker(calls, task["right"], task["entry"], "", "one-model")["valid"] for calls in task["answers"]]))
"""


def test_the_checker_used_naively_fails_a_right_answer_after_a_wrong_one_and_the_verifier_does_not(
    unpacked: Path, drafts: dict[str, BundleDraft], world: Bfcl
) -> None:
    draft = drafts["multi_turn_base_0"]
    functions = documented(load_docs(unpacked), draft.initial_state["classes"])
    right = reference_turns(draft)
    extra = [[*right[0], {"name": "mkdir", "arguments": {"dir_name": "extra"}}], *right[1:]]
    texts = [[[call_text(call["name"], call["arguments"], functions) for call in calls] for calls in turns] for turns in (right, extra)]
    entry = {"id": draft.name, "initial_config": draft.initial_state["config"], "involved_classes": draft.initial_state["classes"]}
    answers = [[[calls] for calls in turns] for turns in (texts[1], texts[0])]
    naive = subprocess.run(
        [sys.executable, "-s", "-P", "-B", "-c", _NAIVE, str(unpacked)],
        input=json.dumps({"right": texts[0], "entry": entry, "answers": answers}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(naive.stdout) == [False, False]
    assert [_judge(world, draft, turns).passed for turns in (extra, right, extra, right, right)] == [False, True, False, True, True]


def test_stored_verdicts_of_the_official_checker_are_reproduced(unpacked: Path, drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    if not _CORPUS.exists():
        pytest.skip(f"the public corpus is not at {_CORPUS}")
    rows = [json.loads(line) for line in _CORPUS.read_text(encoding="utf-8").splitlines()]
    assert {row["valid"] for row in rows} == {True, False}
    for row in rows:
        draft = drafts[row["id"]]
        functions = documented(load_docs(unpacked), draft.initial_state["classes"])
        turns = [[parse_call(call, functions) for step in steps for call in step] for steps in row["model_result_decoded"]]
        verdict = _judge(world, draft, turns)
        assert verdict.passed is row["valid"]
        assert _error_type(verdict) == row.get("error", {}).get("error_type")


def test_a_trace_beyond_the_tasks_turns_or_a_task_without_reference_gives_no_verdict(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    draft = drafts["multi_turn_base_0"]
    late = TraceStep(9, ToolCall("pwd", {}), Observation("x"))
    with pytest.raises(VerifierFailed, match="user turn 9"):
        bfcl_checker(None, None, [late], JudgeTask(draft, world.material))
    with pytest.raises(VerifierFailed, match="no reference"):
        bfcl_checker(None, None, [], JudgeTask(replace(draft, reference=None), world.material))


def test_a_checker_that_breaks_is_an_error_and_never_a_verdict(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    draft = drafts["multi_turn_base_0"]
    broken = replace(draft, initial_state={**draft.initial_state, "config": {"GorillaFileSystem": {"root": {"w": {"type": "directory"}}}}})
    with pytest.raises(VerifierFailed, match="KeyError"):
        bfcl_checker(None, None, [], JudgeTask(broken, world.material))


def test_the_family_binds_the_verifier_with_its_source() -> None:
    bound = verifiers.bind("bfcl_checker")
    assert bound.ref.name == "bfcl_checker"
    assert WHEEL in bound.source
