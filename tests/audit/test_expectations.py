"""Expectations over the read models, asked of real tables."""

import psycopg

from audit.expectations import RULES, expectations
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle
from ledger.projections import catch_up


def test_rules_hold_of_a_sound_ledger_and_name_the_row_that_breaks_one(ledger: LedgerHandle) -> None:
    body = RewardDerived(reward_id="r1", rollout_id="x", rule="rule", rule_id="0" * 64, verdict_ids=["v"], value=1.0, reason="passed")
    ledger.append([ledger.new(body)])
    ledger.barrier()
    catch_up(ledger)
    assert [result.success for result in expectations(ledger)] == [True] * len(RULES)
    with psycopg.connect(ledger.url) as conn:
        conn.execute("UPDATE reward_view SET value = 1.5")
    broken = [result for result in expectations(ledger) if not result.success]
    assert [(result.table, result.unexpected) for result in broken] == [("reward_view", 1)]
    assert broken[0].rows[0]["reward_id"] == "r1"
