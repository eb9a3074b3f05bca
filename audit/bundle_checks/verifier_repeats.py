"""The verifier says the same of the same end, ten times over and from stored JSON alone. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.paths import Walk
from ledger.canonical import canonical_bytes, digest, parse
from training.verifiers import TraceStep, Verdict
from training.worlds import Observation, ToolCall

_IDS = ("semantic.verifier_determinism", "semantic.verifier_portability")


@answers(*_IDS, needs=("runtime.episode_determinism", "semantic.oracle_max"))
def verifier_repeats(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether `verifier_runs` fresh verdicts, half on the reference and half on no call at all, agree in every status and in their evidence
    with the first, and whether one from a round trip of states and trace through canonical JSON, as the ledger keeps them, agrees too.

    Source: OpenEnv RFC 008, semantic.verifier_determinism and semantic.verifier_portability.
    """
    assert subject.reference is not None
    runs = -(-int(policy["verifier_runs"]) // 2)
    differing, moved = list[Any](), list[Any]()
    for attempt in (subject.reference, subject.no_op):
        first = _digest(attempt.verdict)
        again = [_digest(subject.judged(subject.start_view, attempt.view, attempt.walk)) for _ in range(runs)]
        differing += [{"path": attempt.name, "run": run} for run, seen in enumerate(again) if seen != first][:3]
        stored = subject.judged(_stored(subject.start_view), _stored(attempt.view), _stored_walk(attempt.walk))
        if _statuses(stored) != _statuses(attempt.verdict):
            moved.append({"path": attempt.name, "live": _statuses(attempt.verdict), "from_the_ledger": _statuses(stored)})
    return [
        judged(
            _IDS[0], differing, why="verdicts on one and the same end differ", remedy="take clocks, order and chance out of the verifier",
            measured={"runs": 2 * runs},
        ),
        judged(
            _IDS[1], moved, why="judging from the ledger gives another verdict", remedy="look at JSON values alone",
            measured={"statuses": _statuses(subject.reference.verdict)},
        ),
    ]  # fmt: skip


def _digest(verdict: Verdict) -> str:
    conditions = [[item.name, item.status, item.in_basis, item.evidence] for item in verdict.conditions]
    return digest([conditions, [dict(effect) for effect in verdict.side_effects], verdict.error], allow_nul=True)


def _statuses(verdict: Verdict) -> dict[str, str]:
    return {item.name: item.status for item in verdict.conditions} | ({} if verdict.error is None else {"error": verdict.error})


def _stored(value: Any) -> Any:
    return parse(canonical_bytes(value, allow_nul=True))


def _stored_walk(walked: Walk) -> Walk:
    trace = [
        TraceStep(
            step.turn,
            ToolCall(step.call.name, _stored(dict(step.call.arguments)), step.call.call_id),
            Observation(**vars(step.observation)),
        )
        for step in walked.trace
    ]
    return Walk(walked.steps, walked.states, tuple(trace))
