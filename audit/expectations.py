"""Expectations over the read models, run by Great Expectations: what must hold of every reward, rollout and verdict. Reads the database."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.ledger import LedgerHandle

ENDED_BY = (
    "finished",
    "token_limit",
    "turn_limit",
    "context_full",
    "wall_clock",
    "world_error",
    "harness_error",
    "engine_error",
    "cancelled",
)


@dataclass(frozen=True)
class Expected:
    """One expectation's result.

    Attributes:
        table: read model it was asked of.
        rule: what is expected, in words.
        success: whether it holds.
        unexpected: number of rows that break it; None where a rule is not about rows.
        rows: up to 20 of them, as JSON objects.
    """

    table: str
    rule: str
    success: bool
    unexpected: int | None
    rows: tuple[Mapping[str, Any], ...]


# Each rule is a query for the rows that break it, so a failure shows its rows.
RULES: tuple[tuple[str, str, str], ...] = (
    (
        "reward_view",
        "a reward is a number in [0, 1] or null with a reason",
        "SELECT reward_id, value, reason FROM {batch}"
        " WHERE (value IS NOT NULL AND NOT (value >= 0 AND value <= 1)) OR (value IS NULL AND reason = '')",
    ),
    (
        "reward_view",
        "a reward that has a value names a verdict",
        "SELECT reward_id, value FROM {batch} WHERE value IS NOT NULL AND jsonb_array_length(verdict_ids) = 0",
    ),
    (
        "rollout_view",
        "an ended rollout says by what, from the known list",
        "SELECT rollout_id, ended_by FROM {batch} WHERE ended_by IS NOT NULL AND ended_by NOT IN ({ended_by})",
    ),
    (
        "rollout_view",
        "a rollout that something else broke neither succeeded nor failed its task",
        "SELECT rollout_id, ended_by, outcome FROM {batch} WHERE ended_by IN ('world_error', 'harness_error', 'engine_error', 'cancelled')"
        " AND outcome IN ('succeeded', 'task_failed', 'limit_ended')",
    ),
    (
        "rollout_view",
        "at most one counted attempt fills a slot",
        "SELECT project, group_id, slot, count(*) AS counted FROM {batch} WHERE ended_by IS NOT NULL AND NOT superseded"
        " GROUP BY 1, 2, 3 HAVING count(*) > 1",
    ),
    (
        "verdict_view",
        "a verification that broke has no result",
        "SELECT verdict_id, status, passed FROM {batch} WHERE status = 'error' AND passed IS NOT NULL",
    ),
    (
        "call_view",
        "a completed call of an engine has its token counts",
        "SELECT call_id, status FROM {batch} WHERE status = 'completed' AND logprobs_mode IS NOT NULL"
        " AND (prompt_tokens IS NULL OR sampled_tokens IS NULL)",
    ),
)


def expectations(ledger: LedgerHandle) -> list[Expected]:
    """What the rules say of the read models as they are folded now, in the order of `RULES`."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")
    import great_expectations as gx
    import great_expectations.expectations as gxe
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_postgres("ledger", connection_string=ledger.url.replace("postgresql://", "postgresql+psycopg://", 1))
    batches = {
        table: source.add_table_asset(table, table_name=table).add_batch_definition_whole_table("all")
        for table in dict.fromkeys(r[0] for r in RULES)
    }
    quoted = ", ".join(f"'{name}'" for name in ENDED_BY)
    results = []
    for table, rule, query in RULES:
        expectation = gxe.UnexpectedRowsExpectation(unexpected_rows_query=query.replace("{ended_by}", quoted))
        results.append(_expected(table, rule, batches[table].get_batch().validate(expectation, result_format="COMPLETE")))
    return results


def _expected(table: str, rule: str, result: Any) -> Expected:
    outcome = result.result or {}
    rows = (outcome.get("details") or {}).get("unexpected_rows") or ()
    unexpected = outcome.get("observed_value")
    return Expected(
        table, rule, bool(result.success), None if unexpected is None else int(unexpected), tuple(dict(row) for row in rows[:20])
    )
