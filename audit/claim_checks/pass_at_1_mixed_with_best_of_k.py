"""One attempt and the best of several are different numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged

SINGLE = frozenset({"pass@1", "success"})


@answers("pass_at_1_mixed_with_best_of_k")
def pass_at_1_mixed_with_best_of_k(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a number that is called a rate of single attempts was selected among several, or is compared with one that was.

    Reads the settings `k` (candidates), `selector`, and `arm.<name>.k`.

    Source: SWE-Master: 61.4 pass@1 and 70.8 TTS@8; audit predicate AUD-20.
    """
    k, selector = subject.number("k"), subject.word("selector")
    ks = {name: arm.get("k") for name, arm in subject.arms.items() if "k" in arm}
    if k is None and selector is None and len(ks) < 2:
        return [CheckResult("pass_at_1_mixed_with_best_of_k", "skip", "how many candidates were selected from is not stated: setting `k`")]
    faults: list[Any] = []
    single = "@1" in subject.metric or bool(subject.words & SINGLE)
    selected = selector != "none" if k is not None and k > 1 else selector not in (None, "none")
    if single and selected:
        faults.append({"metric": subject.metric, "k": k, "selector": selector})
    if len(set(map(repr, ks.values()))) > 1:
        faults.append({"candidates by arm": ks})
    measured = {"k": k, "arms": ks}

    return [
        judged(
            "pass_at_1_mixed_with_best_of_k",
            faults,
            why="pass@1 and best of k are mixed",
            remedy="state k and the selector in the metric's name, and compare equal k alone",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
