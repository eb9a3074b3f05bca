"""The leaderboard's own multi-turn checker, run in a process apart on the recorded calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.errors import BundleError, DownloadFailed, VerifierFailed, WorldFailed
from ledger.settings import Settings
from ledger.wheels import fetch_wheel
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict
from training.worlds.bfcl.calls import REFUSED_CALL, call_text
from training.worlds.bfcl.docs import FunctionDoc, documented, load_docs
from training.worlds.bfcl.pool import shared_workers
from training.worlds.bfcl.world import changes

CHANGES_SHOWN = 20
TEXT_SHOWN = 300


def bfcl_checker(
    s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None, wheel: str = "bfcl-eval==2026.3.23"
) -> Verdict:
    """The verdict of the official checker, which replays the recorded calls and the reference turn by turn.

    Its three rules are the conditions, each over all turns that have reference calls: `calls` (a turn must not be empty),
    `state` (public attributes equal the reference's after the turn) and `response` (every reference output occurs among the
    outputs so far). Together they hold exactly when the official checker says valid, which is verified on every judgement.
    A call that the world refused as unknown is replayed as an undefined function; one that was never parsed is left out,
    as an undecodable answer is on the leaderboard. Turns without reference calls are replayed and not judged.

    Args:
        s0: view of the initial state; the replay starts from the task's own initial state.
        s_end: view of the end state; the replay makes its own.
        trace: every tool call of the rollout.
        task: the task with its reference calls.
        ask: unused; this verifier asks no model.
        wheel: the pinned wheel that holds the checker; fetched to the data folder when absent.

    Raises:
        VerifierFailed: the wheel, the worker or the checker broke, or the trace does not fit the task's turns.
    """
    initial = task.draft.initial_state
    if task.draft.reference is None:
        raise VerifierFailed(f"bundle {task.draft.name!r} has no reference; this verifier needs one list of calls a user turn")
    reference = task.draft.reference["turns"]
    try:
        unpacked = fetch_wheel(wheel, Settings().data_dir / "wheels")
        functions = documented(load_docs(unpacked), initial["classes"])
        request = {
            "op": "check",
            "entry": "multi_turn_long_context_0" if initial["long_context"] else "multi_turn_base_0",
            "classes": initial["classes"],
            "config": initial["config"],
            "model": _model_calls(trace, len(reference), functions),
            "reference": [[call_text(call["name"], call["arguments"], functions) for call in calls] for calls in reference],
        }
        reply = shared_workers(unpacked).ask(request)
    except (BundleError, DownloadFailed, WorldFailed) as error:
        raise VerifierFailed(f"the official checker gave no verdict on {task.draft.name!r}: {error}") from error
    return _verdict(reply["official"], [turn for turn in reply["turns"] if turn["reference_calls"]])


def _model_calls(trace: Sequence[TraceStep], turns: int, functions: Mapping[str, FunctionDoc]) -> list[list[list[str]]]:
    """Call texts by turn, step and call; all calls of a turn are one step, since the checker joins steps anyway."""
    calls: list[list[str]] = [[] for _ in range(turns)]
    for step in trace:
        if not 0 <= step.turn < turns:
            raise VerifierFailed(f"call {step.call.name!r} is in user turn {step.turn}; the task has turns 0 to {turns - 1}")
        if step.observation.error_class == "unknown_tool":
            calls[step.turn].append(REFUSED_CALL)
        elif step.observation.error_class != "malformed_arguments":
            calls[step.turn].append(call_text(step.call.name, step.call.arguments, functions))
    return [[made] if made else [] for made in calls]


def _verdict(official: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> Verdict:
    counts = [{"turn": turn["turn"], "calls": turn["calls"], "reference_calls": turn["reference_calls"]} for turn in turns]
    empty = [turn["turn"] for turn in turns if turn["empty"]]
    states = [{"turn": turn["turn"], "differences": _leaves(turn["differences"])} for turn in turns if turn["differences"]]
    missing = [{"turn": turn["turn"], "missing": _short(turn["missing"])} for turn in turns if turn["missing"]]
    valid = not (empty or states or missing)
    if valid != official["valid"]:
        raise VerifierFailed(f"the official checker says valid={official['valid']}, its rules turn by turn say {valid}: {official}")
    first = {"official": dict(official)}
    return Verdict(
        (
            Condition("calls", "failed" if empty else "passed", {**first, "empty_turns": empty, "turns": counts}),
            Condition("state", "failed" if states else "passed", {**first, "turns": states}),
            Condition("response", "failed" if missing else "passed", {**first, "turns": missing}),
        )
    )


def _leaves(differences: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Paths at which the rollout's state and the reference's differ, the first of them in full."""
    found = [
        {"path": change.path, "rollout": _short(change.before), "reference": _short(change.after)}
        for name, sides in sorted(differences.items())
        for change in changes(sides["model"], sides["ground_truth"], name)
    ]
    return {"count": len(found), "shown": found[:CHANGES_SHOWN]}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= TEXT_SHOWN else f"{value[:TEXT_SHOWN]}… ({len(value)} characters)"
    if isinstance(value, list):
        return [_short(item) for item in value[:CHANGES_SHOWN]]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in list(value.items())[:CHANGES_SHOWN]}
    return value
