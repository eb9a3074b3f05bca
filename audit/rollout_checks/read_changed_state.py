"""A tool that only reads leaves the state alone. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped
from audit.tool_calls import is_read


@answers("read_changed_state")
def read_changed_state(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no reading tool of the world changed the state's digest, where another reading call of the rollout left it alone.

    A tool reads when the schema that the request offered says so, else by the verb of its name. Where every reading call changes the
    digest it covers a clock or a log, and only a replay can tell.
    """
    offered = {}
    if subject.harness is None or subject.harness.tool_format == "native":
        offered = {tool["function"]["name"]: tool for call in subject.calls[:1] for tool in subject.request(call).get("tools") or ()}
    reads = []
    for event_id, body in subject.tools:
        name = subject.text(body.name)
        reached = body.executed_by == "world" and body.arguments_parsed is not None and body.error_class != "unknown_tool"
        if reached and is_read(offered.get(name, {"function": {"name": name}})):
            reads.append((event_id, name, body))
    changing = [item for item in reads if item[2].state_before != item[2].state_after]
    if not reads:
        return skipped("read_changed_state", "no reading tool was called")
    if len(changing) == len(reads):
        return skipped("read_changed_state", "every reading call changes the digest of the state, which covers a clock or a log")
    faults = [
        Fault({"tool_call": body.index, "tool": name, "before": body.state_before[:12], "after": body.state_after[:12]}, (event_id,))
        for event_id, name, body in changing
    ]
    return [
        found(
            "read_changed_state", faults, why="a reading tool changed the state", kind="read_changed_state",
            remedy="take the write out of the reading tool, or name it as what it is", measured={"reads": len(reads)},
        )
    ]  # fmt: skip
