"""A verifier in EnvScaler's form: boolean functions over the end state, run in the sandbox. Starts a process."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ledger.errors import SandboxUnavailable, VerifierFailed
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict, _check_runner
from training.worlds.runtime import Limits, Program, Sandbox

_RUNNER = Path(_check_runner.__file__)
_LIMITS = Limits(cpu_s=10, wall_s=20.0, threads=False, scratch_bytes=0)


def class_checks(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict of the task's checks, one condition each. A check that crashes makes the whole verdict invalid, never a failed condition.

    Args:
        s0: the world's view at the request, the global `initial_state` of every check.
        s_end: the world's view at the end, the argument of every `check_func`.
        trace: not used.
        task: its spec holds `checks`: objects with `name`, and `code` that defines `check_func(final_state) -> bool`.
        ask: not used.
    Raises:
        VerifierFailed: the task has no checks, or they ended their process.
    Source: EnvScaler (arXiv 2601.05808); its released code counts a check that crashes as a failed one.
    """
    checks = task.draft.spec.get("checks")
    if not checks:
        raise VerifierFailed(f"bundle {task.draft.name!r} has no checks; it needs spec.checks with name and code each")
    given = {"initial_state": s0, "final_state": s_end, "checks": [check["code"] for check in checks]}
    try:
        report = Sandbox("hostile").run(Program(source=_RUNNER.read_text()), stdin=json.dumps(given).encode(), limits=_LIMITS)
    except SandboxUnavailable as error:
        raise VerifierFailed(f"the checks of bundle {task.draft.name!r} cannot run: {error}") from error
    outcomes = _outcomes(report.stdout) if report.ok else None
    if outcomes is None or len(outcomes) != len(checks):
        said = report.stderr[-200:].decode(errors="replace")
        raise VerifierFailed(f"the checks of bundle {task.draft.name!r} broke their process ({report.ended}, {report.exit_code}): {said}")
    conditions = tuple(_condition(check["name"], outcome) for check, outcome in zip(checks, outcomes, strict=True))
    broken = [condition.name for condition in conditions if condition.status == "error"]
    return Verdict(conditions, error=f"checks that gave no answer: {', '.join(broken)}" if broken else None)


def _outcomes(data: bytes) -> list[dict[str, Any]] | None:
    try:
        outcomes = json.loads(data)
    except ValueError:
        return None
    return outcomes if isinstance(outcomes, list) and all(isinstance(outcome, dict) for outcome in outcomes) else None


def _condition(name: str, outcome: dict[str, Any]) -> Condition:
    if "error" in outcome:
        return Condition(name, "error", {"error": outcome["error"]})
    return Condition(name, "passed" if outcome.get("passed") is True else "failed")
