"""What a draft says of its own paths is so: turns that exist, conditions that the verifier knows. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged


@answers("runtime.task_declaration_accuracy")
def runtime_task_declaration_accuracy(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether reference, equivalent and wrong paths have no more turns than the request, and `breaks` names conditions that exist.

    Source: OpenEnv RFC 008, runtime.task_declaration_accuracy.
    """
    turns = len(subject.draft.request["turns"])
    solution = subject.solution
    paths = [("reference", solution.get("turns", ()))]
    paths += [(f"{kind} {path['name']}", path["turns"]) for kind in ("equivalent", "wrong") for path in solution.get(kind, ())]
    faults: list[Any] = [
        {"path": name, "turns": len(calls), "request": turns} for name, calls in paths if len(calls) > turns
    ]  # fmt: skip
    known = set() if subject.reference is None else {condition.name for condition in subject.reference.verdict.conditions}
    for path in solution.get("wrong", ()):
        faults += [{"path": path["name"], "breaks": name, "known": sorted(known)} for name in path.get("breaks", ()) if name not in known]
    measured = {"turns": turns, "paths": len(paths), "conditions": sorted(known)}
    remedy = "repair the declaration, or the task that it describes"
    return [
        judged("runtime.task_declaration_accuracy", faults, why="the draft declares what is not there", remedy=remedy, measured=measured)
    ]
