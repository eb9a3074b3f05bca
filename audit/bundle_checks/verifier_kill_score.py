"""The verifier rejects mutants of the reference: dropped, doubled, changed, swapped, cut short and stray calls. Runs worlds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers
from audit.bundle_subject import Attempt

_SHOWN = 6


@answers("verifier.kill_score", needs=("runtime.episode_determinism", "semantic.oracle_max"))
def verifier_kill_score(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """The share of mutants that the verifier rejects, over all and for each kind of mutant, and which kinds survive.

    A mutant that ends in the reference's material state is no mutant. One on which the verifier breaks is not killed. Both the whole score
    and that of each kind must reach the policy's numbers, so that one blind spot cannot hide among many good conditions.

    Source: audit rule AUD-04 and research question 1.
    """
    tried = subject.mutants
    if not subject.writes:
        return [CheckResult("verifier.kill_score", "skip", "the reference changes no material state, so a mutant of it shows nothing")]
    if not tried:
        reason = "no mutant ends in another material state, so nothing is known of the verifier"
        return [
            CheckResult("verifier.kill_score", "fail", reason, {"mutants": 0}, remedy="let the material state show what the task changes")
        ]
    made = Counter(mutant.kind for mutant, _ in tried)
    killed = Counter(mutant.kind for mutant, attempt in tried if attempt.verdict.passed is False)
    score = sum(killed.values()) / len(tried)
    weak = sorted(kind for kind in made if killed[kind] / made[kind] < policy["kill_score_per_kind"])
    alive = [(mutant.kind, attempt) for mutant, attempt in tried if attempt.verdict.passed is not False]
    surviving = sorted({kind for kind, _ in alive})
    measured = {
        "score": round(score, 4), "mutants": len(tried), "killed": sum(killed.values()), "surviving_kinds": surviving,
        "per_kind": {kind: f"{killed[kind]}/{made[kind]}" for kind in sorted(made)},
    }  # fmt: skip
    if score >= policy["kill_score"] and not weak:
        return [CheckResult("verifier.kill_score", "pass", measured=measured)]
    reason = f"score {score:.3f}, needed {policy['kill_score']}, and {policy['kill_score_per_kind']} of each kind;"
    reason += f" {len(alive)} of {len(tried)} mutants survive: {', '.join(surviving)}"
    evidence = [_survivor(subject, kind, attempt) for kind, attempt in alive[:_SHOWN]]
    return [CheckResult("verifier.kill_score", "fail", reason, measured, evidence, "add a condition that the survivors break")]


def _survivor(subject: BundleSubject, kind: str, attempt: Attempt) -> dict[str, Any]:
    changes = [{"path": item.path, "reference": item.before, "mutant": item.after} for item in subject.changed(attempt)]
    return {"mutant": kind, "differs": changes, **attempt.as_json()}
