"""Counts over the read models, always with what they are counted against. Reads the database."""

from collections.abc import Sequence
from typing import Any

from ledger.errors import UnknownId
from ledger.ledger import LedgerHandle
from ledger.outcome import BROKEN, ERRORS, JUDGED
from ledger.queries_lines import NAMED, ROLLOUTS, condition
from ledger.queries_rows import EVERYTHING, Choices, Coverage, Filter, MissingRewards, OutcomeSummary, all_counts

_KEYS = {
    "experiment_id": "g.experiment_id", "run_id": "g.run_id", "round": "g.round", "policy": "coalesce(g.policy, r.participant)",
    "world": "b.world", "split": "b.split", "bundle": "b.name", "model_version": "r.model_version",
}  # fmt: skip
_GROUP_COLUMNS = {
    "experiment_id": "g.experiment_id", "run_id": "g.run_id", "round": "g.round", "policy": "g.policy", "world": "b.world",
    "split": "b.split", "bundle_id": "g.bundle_id", "group_id": "g.group_id",
}  # fmt: skip

# A slot is spoken for by its newest attempt that was not superseded; by a superseded one only when there is no other.
_COVERAGE = """WITH g AS (
  SELECT g.*, b.world FROM group_view AS g LEFT JOIN bundle_view AS b ON b.project = g.project AND b.bundle_id = g.bundle_id
  WHERE g.project = %(project)s{clause}),
slot AS (
  SELECT DISTINCT ON (r.group_id, r.slot) r.group_id, r.outcome, r.ended_by,
         NOT r.superseded AND coalesce(r.verdict_status = 'completed', false) AND r.passed IS NOT NULL AS judged
  FROM rollout_view AS r JOIN g ON g.project = r.project AND g.group_id = r.group_id WHERE r.slot < g.size
  ORDER BY r.group_id, r.slot, r.superseded, r.attempt DESC, r.started_position DESC),
part AS (
  SELECT group_id, outcome, CASE WHEN ended_by IS NULL THEN 'unknown' WHEN outcome = ANY (%(judged)s) THEN 'measured'
    WHEN judged THEN 'masked' WHEN outcome = ANY (%(broken)s) OR ended_by = ANY (%(errors)s) THEN 'failed'
    WHEN ended_by = 'cancelled' THEN 'omitted' ELSE 'unknown' END AS part
  FROM slot),
tally AS (
  SELECT group_id, count(*) FILTER (WHERE part = 'measured') AS measured, count(*) FILTER (WHERE part = 'masked') AS masked,
         count(*) FILTER (WHERE part = 'failed') AS failed, count(*) FILTER (WHERE part = 'omitted') AS omitted,
         count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded
  FROM part GROUP BY group_id),
beyond AS (
  SELECT r.group_id, count(*) AS extra FROM rollout_view AS r JOIN g ON g.project = r.project AND g.group_id = r.group_id
  WHERE r.slot >= g.size GROUP BY r.group_id)
SELECT {keys}, count(*), sum(size)::bigint, {sums}
FROM g LEFT JOIN tally USING (group_id) LEFT JOIN beyond USING (group_id) {grouped}"""
LEVELS = ("experiment_id", "round", "policy", "world", "group_id")
"""What coverage can be counted by."""
_SUMS = ("measured", "masked", "failed", "omitted", "extra", "succeeded")


def coverage(ledger: LedgerHandle, where: Filter = EVERYTHING, *, by: Sequence[str] = LEVELS[:-1]) -> list[Coverage]:
    """Slots expected, measured, masked, failed, omitted and unknown, a line for each value of the keys; no key gives one line for all.

    Args:
        by: some of `LEVELS`.
    Raises:
        UnknownId: a key that is none of them, or the filter asks for a property of a rollout, which a slot without one does not have.
    """
    refused = [name for name in ("rollout_id", "outcome", "ended_by", "counted") if getattr(where, name) is not None]
    if refused:
        raise UnknownId(f"coverage cannot be asked by {refused[0]}; allowed: {', '.join(_GROUP_COLUMNS)}")
    if unknown := [key for key in by if key not in LEVELS]:
        raise UnknownId(f"coverage cannot be counted by {unknown[0]!r}; allowed: {', '.join(LEVELS)}")
    asked = {name: value for name in _GROUP_COLUMNS if (value := getattr(where, name)) is not None}
    keys = [key for key in LEVELS if key in by]
    statement = _COVERAGE.format(
        clause="".join(f" AND {_GROUP_COLUMNS[name]} = %({name})s" for name in asked),
        keys=", ".join(key if key in keys else f"NULL AS {key}" for key in LEVELS),
        sums=", ".join(f"coalesce(sum({name}), 0)::bigint" for name in _SUMS),
        grouped=f"GROUP BY {', '.join(keys)} ORDER BY {', '.join(keys)}" if keys else "HAVING count(*) > 0",
    )
    given = {"project": ledger.project, "judged": list(JUDGED), "broken": list(BROKEN), "errors": list(ERRORS), **asked}
    with ledger.connection() as conn:
        rows = conn.execute(statement, given).fetchall()
    return [Coverage(*row) for row in rows]


def outcomes(ledger: LedgerHandle, where: Filter = EVERYTHING, *, by: Sequence[str] = ("policy", "world")) -> list[OutcomeSummary]:
    """How many rollouts ended how, by the given keys, sorted by them; no keys give one line for all.

    Raises:
        UnknownId: a key that lines cannot be grouped by.
    """
    unknown = [key for key in by if key not in _KEYS]
    if unknown:
        raise UnknownId(f"outcomes cannot be grouped by {unknown[0]!r}; allowed: {', '.join(_KEYS)}")
    clause, given = condition(ledger.project, where)
    keys = "".join(f"{_KEYS[key]}, " for key in by)
    with ledger.connection() as conn:
        rows = conn.execute(
            f"SELECT {keys}r.superseded, r.outcome, count(*), count(w.value), sum(w.value) FROM {ROLLOUTS} WHERE {clause}"
            f" GROUP BY {keys}r.superseded, r.outcome ORDER BY {keys}r.superseded, r.outcome",
            given,
        ).fetchall()
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[: len(by)]), []).append(tuple(row[len(by) :]))
    return [_summary(dict(zip(by, key, strict=True)), lines) for key, lines in groups.items()]


def _summary(key: dict[str, Any], lines: Sequence[tuple[Any, ...]]) -> OutcomeSummary:
    counted = [line for line in lines if not line[0]]
    valued = sum(int(line[3]) for line in counted)
    return OutcomeSummary(
        key=key,
        counts=all_counts({line[1]: int(line[2]) for line in counted}),
        superseded=sum(int(line[2]) for line in lines if line[0]),
        rewards=valued,
        mean_reward=sum(float(line[4]) for line in counted if line[3]) / valued if valued else None,
    )


def missing_rewards(ledger: LedgerHandle, where: Filter = EVERYTHING) -> list[MissingRewards]:
    """Why ended rollouts that count have no number, most frequent first."""
    clause, given = condition(ledger.project, where)
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT coalesce(w.reason, 'no reward derived yet'), w.reward_id IS NOT NULL, r.outcome, count(*)"
            f" FROM {ROLLOUTS} WHERE {clause} AND w.value IS NULL AND r.ended_by IS NOT NULL AND NOT r.superseded"
            " GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 3",
            given,
        ).fetchall()
    return [MissingRewards(*row) for row in rows]


def choices(ledger: LedgerHandle) -> Choices:
    """The values that a filter can take in this project."""
    names = ("experiment_id", "run_id", "round", "policy", "world")
    columns = [*(_KEYS[name] for name in names), "r.outcome", "r.ended_by"]
    with ledger.connection() as conn:
        found = [
            conn.execute(
                f"SELECT DISTINCT {column} FROM {NAMED} WHERE r.project = %s AND {column} IS NOT NULL ORDER BY 1", (ledger.project,)
            ).fetchall()
            for column in columns
        ]
    return Choices(*(tuple(row[0] for row in rows) for rows in found))
