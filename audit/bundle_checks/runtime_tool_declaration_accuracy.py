"""The tools that are declared are those that exist: well-formed schemas, and references that call nothing else. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.paths import Step


@answers("runtime.tool_declaration_accuracy")
def runtime_tool_declaration_accuracy(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each tool has name, text and object schema, and each call of reference and equivalent paths is offered in its turn,
    with all required arguments and no undeclared ones.

    Source: OpenEnv RFC 008, runtime.tool_declaration_accuracy.
    """
    faults: list[Any] = []
    for name, tool in sorted(subject.tools.items()):
        parameters = tool["function"].get("parameters") or {}
        if tool.get("type") != "function" or not str(tool["function"].get("description", "")).strip():
            faults.append({"tool": name, "fault": "type is not function, or the description is empty"})
        missing = [key for key in parameters.get("required", ()) if key not in parameters.get("properties", {})]
        if missing:
            faults.append({"tool": name, "fault": f"requires {missing[0]}, which it does not declare"})
    paths = [*([] if subject.reference is None else [subject.reference]), *subject.equivalent]
    offered = [
        {tool["function"]["name"] for tool in subject.world.tools(subject.draft, turn=turn)}
        for turn in range(len(subject.draft.request["turns"]))
    ]
    calls = [step for attempt in paths for step in attempt.walk.steps]
    for step in calls:
        fault = _fault(step, offered, subject.tools)
        if fault is not None:
            faults.append({"call": step.as_json(), "fault": fault})
    if not subject.tools:
        faults.append("no tool is declared")
    measured = {"tools": len(subject.tools), "calls": len(calls)}
    remedy = "declare what the task needs, in the turn in which it needs it"
    return [
        judged("runtime.tool_declaration_accuracy", faults, why="the declared tools are not those used", remedy=remedy, measured=measured)
    ]


def _fault(step: Step, offered: Sequence[set[str]], tools: Mapping[str, Mapping[str, Any]]) -> str | None:
    if step.turn >= len(offered) or step.name not in offered[step.turn]:
        return f"{step.name} is not offered in turn {step.turn}"
    parameters = tools[step.name]["function"].get("parameters") or {}
    missing = [name for name in parameters.get("required", ()) if name not in step.arguments]
    if missing:
        return f"required argument {missing[0]} is missing"
    unknown = [name for name in step.arguments if name not in parameters.get("properties", {})]
    return f"argument {unknown[0]} is not declared" if unknown else None
