"""The reference solves the task and the calls that it makes lead to the end state that it declares. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from ledger.canonical import digest
from training.worlds.difference import differences

_IDS = ("semantic.oracle_max", "semantic.replayability")


@answers(*_IDS, needs=("runtime.episode_determinism",))
def oracle(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether there is a reference, it gets the highest reward, and its replay reaches the declared end state.

    Source: OpenEnv RFC 008, semantic.oracle_max and semantic.replayability; 14 of 500 and 5 of 89 public tasks fail their own solution.
    """
    attempt = subject.reference
    if attempt is None or (not attempt.walk.steps and subject.solution.get("end_state") is None):
        reason = "there is no reference solution, so nobody knows that the task can be solved"
        remedy = "add a reference: calls that solve the task, and the end state"
        return [CheckResult(_IDS[0], "fail", reason, remedy=remedy), CheckResult(_IDS[1], "skip", reason, depends_on=_IDS[0])]
    reward = subject.rewarded(attempt.verdict)
    unsolved = [] if reward == 1 else [{"reward": reward, **attempt.as_json()}]
    end, end_digest = subject.solution.get("end_state"), subject.solution.get("end_state_digest")
    moved: list[Any] = []
    if end is not None:
        changes = differences(end, attempt.material).changes
        moved = [{"path": item.path, "declared": item.before, "reached": item.after} for item in changes]
    elif end_digest is not None and digest(attempt.material, allow_nul=True) != end_digest:
        moved = [{"declared_digest": end_digest, "reached_digest": digest(attempt.material, allow_nul=True)}]
    solved = judged(
        _IDS[0], unsolved, why="the reference is not accepted", remedy="repair the reference or the verifier: they contradict each other",
        measured={"reward": reward, "calls": len(attempt.walk.steps), "state_changes": len(subject.writes)},
    )  # fmt: skip
    if end is None and end_digest is None:
        return [solved, CheckResult(_IDS[1], "skip", "the reference declares no end state")]
    reached = judged(
        _IDS[1], moved, why="the reference's calls do not lead to its end state", remedy="make calls and end state from one replay",
        measured={"places": len(moved)},
    )  # fmt: skip
    return [solved, reached]
