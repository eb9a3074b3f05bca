"""Every tool of a world version called in at least 100 rounds, legally and illegally, from the states of sample tasks. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.world_checks import CheckResult, WorldSubject, answers, judged

SHOWN = 10
_IDS = ("world.exercise", "world.legal_calls_hold", "world.illegal_calls_refused")


@answers(*_IDS)
def world_exercise(subject: WorldSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether enough rounds pass, whether no legal call breaks the world, and whether no illegal one changes it.

    A round passes when a legal call is carried out, its observation and state agree, and the state that it was given stays as it was; an
    illegal one passes when it is refused with an error class and leaves the material state alone. A warning is a round of which nobody can
    say whether the world is right: a call within the schema that is refused in order, or an illegal one that is answered without effect.
    The rate is passes over passes and failures; the share of rounds that did not fail is measured beside it.

    Source: EnvScaler (2601.05808), the check loop and its 0.85.
    """
    rounds = subject.rounds
    if not rounds:
        reason = "no sample task offers a tool, so there is nothing to exercise"
        return [CheckResult(name, "fail", reason, remedy="give the world tools") for name in _IDS]
    per_tool = {}
    for tool in sorted(subject.tools):
        mine = [item for item in rounds if item.tool == tool]
        counts = {outcome: sum(item.outcome == outcome for item in mine) for outcome in ("pass", "warning", "fail")}
        accepted = sum(item.legal and item.error_class is None and not item.crashed for item in mine)
        per_tool[tool] = {**counts, "legal": sum(item.legal for item in mine), "accepted": accepted}
    counts = {outcome: sum(row[outcome] for row in per_tool.values()) for outcome in ("pass", "warning", "fail")}
    rate = counts["pass"] / max(1, counts["pass"] + counts["fail"])
    reached = sum(row["accepted"] > 0 for row in per_tool.values()) / len(per_tool)
    measured = {
        "rounds": len(rounds), **counts, "pass_rate": round(rate, 4), "not_failed": round(1 - counts["fail"] / len(rounds), 4),
        "tools": len(per_tool), "tools_with_an_accepted_call": round(reached, 4), "per_tool": per_tool,
    }  # fmt: skip
    failed = [item.as_json() for item in rounds if item.outcome == "fail"]
    faults: list[Any] = failed[:SHOWN] if rate < policy["exercise_pass_rate"] else []
    if reached < policy["exercise_tools_accepted"]:
        never = [tool for tool, row in per_tool.items() if not row["accepted"]]
        faults.append(f"{len(never)} of {len(per_tool)} tools never carried out a legal call: {', '.join(never[:SHOWN])}")
    broke = [item.as_json() for item in rounds if item.legal and item.crashed]
    done = [item.as_json() for item in rounds if not item.legal and item.outcome == "fail"]
    legal, illegal = sum(item.legal for item in rounds), sum(not item.legal for item in rounds)
    why = f"pass rate {rate:.3f}, needed {policy['exercise_pass_rate']}; tools that carried out a call {reached:.3f},"
    return [
        judged(
            _IDS[0], faults, measured=measured, why=f"{why} needed {policy['exercise_tools_accepted']}",
            remedy="repair the tools that fail",
        ),
        judged(
            _IDS[1], broke[:SHOWN], measured={"legal_rounds": legal, "broke": len(broke)},
            why=f"{len(broke)} of {legal} legal calls broke the world, needed 0",
            remedy="answer every legal call, with an error class where it cannot be done",
        ),
        judged(
            _IDS[2], done[:SHOWN], measured={"illegal_rounds": illegal, "failed": len(done)},
            why=f"{len(done)} of {illegal} illegal calls were carried out or broke the world",
            remedy="check arguments against the schema before acting",
        ),
    ]  # fmt: skip
