"""A state verifier that says what kind of end it was: complete, server_error, agent_error or incomplete; a broken world decides nothing."""

from collections.abc import Sequence
from typing import Any, Literal

from ledger.errors import VerifierFailed
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict
from training.worlds.difference import differences

EndClass = Literal["complete", "server_error", "agent_error", "incomplete"]
SERVER = ("tool_error", "world_error", "timeout")
_SHOWN = 50


def four_classes(
    s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None, server: Sequence[str] = SERVER
) -> Verdict:
    """The verdict on the end state, with its class as the condition `class` outside the basis.

    Complete when the material end state is the reference's; else server_error when the last refusal is one that the world itself caused;
    else agent_error when any call was refused; else incomplete. After a server_error the condition `state` is undecided, so that no reward
    can be derived from it; a verification that breaks is the caller's judge_error.

    Args:
        s0: not used.
        s_end: the world's view at the end.
        trace: the calls, whose error classes are read.
        task: its reference holds `end_state`.
        ask: not used.
        server: error classes that are the world's own fault.
    Raises:
        VerifierFailed: the bundle has no reference end state.
    Source: Agent World Model (arXiv 2602.10090), classes and their priority complete > server_error > agent_error > incomplete.
    """
    expected = (task.draft.reference or {}).get("end_state")
    if expected is None:
        raise VerifierFailed(f"bundle {task.draft.name!r} has no reference end state; it needs reference.end_state")
    changes = differences(expected, task.material(s_end)).changes
    refused = [step for step in trace if step.observation.error_class is not None]
    found: EndClass = "incomplete"
    if not changes:
        found = "complete"
    elif refused and refused[-1].observation.error_class in server:
        found = "server_error"
    elif refused:
        found = "agent_error"
    rows = [{"path": change.path, "expected": change.before, "seen": change.after} for change in changes[:_SHOWN]]
    status: Literal["passed", "failed", "error"] = "passed" if not changes else "error" if found == "server_error" else "failed"
    calls = [{"tool": step.call.name, "error_class": step.observation.error_class} for step in refused]
    return Verdict(
        (
            Condition("state", status, {"differences": rows, "count": len(changes)}),
            Condition("class", "passed" if found == "complete" else "failed", {"class": found, "refused": calls}, in_basis=False),
        )
    )
