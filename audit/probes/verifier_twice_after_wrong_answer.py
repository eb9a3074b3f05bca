"""The verifier forgets what it judged before: a wrong answer leaves no trace in the next verdict, nor in what it was shown. Runs it."""

from collections.abc import Sequence
from random import Random
from typing import Any

from audit.probes import CheckResult, ProbeSubject, Run, answers, judged
from audit.probes._verdicts import chosen, shown, statuses, verdict_digest
from ledger.canonical import digest

_PAIRS = 5


@answers("verifier_twice_after_wrong_answer")
def verifier_twice_after_wrong_answer(subject: ProbeSubject, run: Run, *, rng: Random | None = None) -> Sequence[CheckResult]:
    """Whether a right end, judged before and after a wrong one, gets the same verdict, as the wrong one does, and no state is changed.

    Source: reports section 4, feature 9, and OpenEnv RFC 008, semantic.verifier_determinism.
    """
    right = subject.told("reference")
    wrong = chosen(subject.told("mutant", "no_op"), _PAIRS, rng)
    faults: list[dict[str, Any]] = []
    pairs = [(right[n % len(right)][0], trial) for n, (trial, _) in enumerate(wrong)] if right else []
    for good, bad in pairs:
        before = digest([good.artefact.as_json(), bad.artefact.as_json()], allow_nul=True)
        # Judged once before, so that the first verdict that counts comes after a right end.
        run(good.artefact)
        first, between, again, last = run(good.artefact), run(bad.artefact), run(good.artefact), run(bad.artefact)
        if verdict_digest(first) != verdict_digest(again):
            faults.append(shown(good, first, after_a_wrong_one=statuses(again)))
        if verdict_digest(between) != verdict_digest(last):
            faults.append(shown(bad, between, after_a_right_one=statuses(last)))
        if digest([good.artefact.as_json(), bad.artefact.as_json()], allow_nul=True) != before:
            faults.append({"kind": bad.kind, "task": bad.task, "changed": "the verifier changed what it was shown"})
    if not pairs:
        return [CheckResult("verifier_twice_after_wrong_answer", "skip", "there is no right end beside a wrong one")]
    return [
        judged(
            "verifier_twice_after_wrong_answer", faults, why="a verdict depends on the one before", measured={"pairs": len(pairs)},
            remedy="keep nothing between verdicts, and copy before changing", fault="verifier_nondeterministic",
        )
    ]  # fmt: skip
