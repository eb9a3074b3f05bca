"""A gain by memory is one only against no memory and a summary at the same budget."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged


@answers("memory_without_equal_budget")
def memory_without_equal_budget(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a gain by memory has arms without memory and with a summary, at equal tokens.

    Reads the setting `component` (`memory`) or the metric's words, and `arm.<name>.tokens` of the arms `off` and `summary` and all others.

    Source: CAMG and the survey's question on compaction; audit predicate AUD-29.
    """
    if subject.word("component") != "memory" and "memory" not in subject.words:
        return [CheckResult("memory_without_equal_budget", "skip", "it is not about memory")]
    missing = [name for name in ("off", "summary") if name not in subject.arms]
    budgets = {name: subject.number(f"arm.{name}.tokens") for name in subject.arms}
    known = [budget for budget in budgets.values() if budget is not None]
    faults: list[Any] = [{"missing arms": missing}] if missing else []
    if None in budgets.values():
        faults.append({"budget not stated": [name for name, budget in budgets.items() if budget is None]})
    if known and max(known) - min(known) > float(policy["budget_share_apart"]) * max(known):
        faults.append({"tokens": budgets, "allowed apart": policy["budget_share_apart"]})
    measured = {"tokens": budgets}

    return [
        judged(
            "memory_without_equal_budget",
            faults,
            why="the gain may be the budget's",
            remedy="add arms without memory and with a summary at the same tokens",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
