"""What a paper counts, what it released and what was used may be three numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged


@answers("reported_total_vs_released")
def reported_total_vs_released(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the reported, the released and the used total are the same.

    Reads the settings `reported_total`, `released_total` and `used_total`.

    Source: Agent-World: 1,978 environments reported, 563 public; audit predicate AUD-23.
    """
    totals = {name: found for name in ("reported_total", "released_total", "used_total") if (found := subject.number(name)) is not None}
    if len(totals) < 2:
        return [CheckResult("reported_total_vs_released", "skip", "fewer than two of the totals reported, released and used are stated")]
    faults = [totals] if len(set(totals.values())) > 1 else []
    measured = totals

    return [
        judged(
            "reported_total_vs_released",
            faults,
            why="the totals differ",
            remedy="show all of them, and call the released part a part",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
