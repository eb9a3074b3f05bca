"""Derives rewards from the verdicts that count, by a named rule. Writes the ledger."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.events import RewardDerived
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.methods import Bound
from training.rewards import JudgedRollout, Reward

_BATCH = 200


@dataclass(frozen=True)
class Judged:
    """A rollout with the verdict that counts for it, as the read models show them."""

    rollout_id: str
    ended_by: str
    verdict_id: str | None
    verdict_status: str | None
    passed: bool | None
    conditions: Sequence[Any]


def derive(ledger: LedgerHandle, judged: Sequence[Judged], rule: Bound[Reward], *, progress: Callable[[int], None] = lambda _: None) -> int:
    """How many rewards were new. A rollout without a verdict gets a reward of null with the reason, never a number.

    Args:
        judged: rollouts that count.
        progress: called with the number of rollouts done since the last call.
    """
    created = 0
    for start in range(0, len(judged), _BATCH):
        page = judged[start : start + _BATCH]
        scored = rule.call([seen_by_rule(rollout) for rollout in page])
        events = []
        for r, rollout in enumerate(page):
            verdict_ids = [] if rollout.verdict_id is None else [rollout.verdict_id]
            body = RewardDerived(
                reward_id=derived_id("reward", rollout.rollout_id, rule.ref.method_id, verdict_ids), rollout_id=rollout.rollout_id,
                rule=rule.ref.name, rule_id=rule.ref.method_id, verdict_ids=verdict_ids, value=scored.value_R[r], reason=scored.reason_R[r],
                terms={name: term_R[r] for name, term_R in scored.terms.items()},
            )  # fmt: skip
            events.append(ledger.new(body, correlation_id=rollout.rollout_id))
        if events:
            created += sum(item.created for item in ledger.append(events).events)
        progress(len(page))
    return created


def seen_by_rule(rollout: Judged) -> JudgedRollout:
    """What a reward rule sees of a judged rollout."""
    passed_of = {"passed": True, "failed": False, "error": None}
    conditions = {c["name"]: passed_of[c["status"]] for c in rollout.conditions if c["in_basis"]}
    checks = {c["name"]: passed_of[c["status"]] for c in rollout.conditions if not c["in_basis"]}
    return JudgedRollout(rollout.ended_by, rollout.passed, rollout.verdict_status, conditions, checks)
