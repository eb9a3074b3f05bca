"""Typed read functions over the read models, for the command line, the pages and the assets. Reads the database; `fresh` also folds."""

from collections.abc import Sequence
from typing import Any

from ledger.canonical import parse
from ledger.errors import UnknownId
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.projections import catch_up
from ledger.queries_counts import choices, coverage, missing_rewards, outcomes
from ledger.queries_lines import (
    CALL,
    REWARD,
    REWARDS,
    ROLLOUT,
    ROLLOUT_COLUMNS,
    ROLLOUTS,
    call_line,
    condition,
    rollout_line,
    verdict_lines,
)
from ledger.queries_rows import (
    EVERYTHING,
    CallLine,
    Choices,
    Coverage,
    Disagreement,
    EventLine,
    Filter,
    MissingRewards,
    OutcomeSummary,
    Page,
    RewardLine,
    RolloutDetail,
    RolloutLine,
    VerdictLine,
)

__all__ = [
    "EVERYTHING", "NOUNS", "CallLine", "Choices", "Coverage", "Disagreement", "EventLine", "Filter", "MissingRewards", "OutcomeSummary",
    "Page", "RewardLine", "RolloutDetail", "RolloutLine", "VerdictLine", "choices", "coverage", "dangling_calls", "disagreements",
    "event_counts", "events", "fresh", "missing_rewards", "outcomes", "resolve", "resolve_any", "reward", "rewards", "rollout_detail",
    "rollouts", "unattributed_calls", "verdicts",
]  # fmt: skip

NOUNS = ("reward", "rollout", "verdict", "review", "bundle", "group", "run", "model", "verifier", "world", "harness", "finding", "batch",
         "update", "recall", "call")  # fmt: skip
_SPLIT_VERDICTS = """EXISTS (SELECT FROM verdict_view AS v WHERE v.project = r.project AND v.rollout_id = r.rollout_id
  AND v.status = 'completed' AND v.role <> 'review' HAVING bool_or(v.passed) AND NOT bool_and(v.passed))"""
_SETTLED = """EXISTS (SELECT FROM verdict_view AS v WHERE v.project = r.project AND v.rollout_id = r.rollout_id AND v.role = 'review'
  AND v.passed IS NOT NULL)"""


def fresh(ledger: LedgerHandle) -> int:
    """The position P up to which everything that was committed before the call is ordered, and now folded into every read model.

    A login that may only read sees what a writer has folded.
    """
    reached = ledger.barrier()
    if ledger.rights.folds:
        catch_up(ledger)
    return reached


def rollouts(
    ledger: LedgerHandle, where: Filter = EVERYTHING, *, limit: int = 100, offset: int = 0, newest: bool = True
) -> Page[RolloutLine]:
    """Rollouts by start, newest first unless said otherwise."""
    clause, given = condition(ledger.project, where)
    with ledger.connection() as conn:
        rows = conn.execute(
            f"SELECT {ROLLOUT} FROM {ROLLOUTS} WHERE {clause} ORDER BY r.started_position {_direction(newest)}"
            " LIMIT %(limit)s OFFSET %(offset)s",
            {**given, "limit": limit, "offset": offset},
        ).fetchall()
        total = conn.execute(f"SELECT count(*) FROM {ROLLOUTS} WHERE {clause}", given).fetchone()
    return Page(tuple(map(rollout_line, rows)), _count(total), offset)


def bundle_ids(ledger: LedgerHandle, *, world: str | None = None) -> tuple[str, ...]:
    """Ids of the sealed bundles, of one world when it is named, in the order of sealing."""
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT bundle_id FROM bundle_view WHERE project = %s AND world = coalesce(%s, world) ORDER BY position",
            (ledger.project, world),
        ).fetchall()
    return tuple(str(row[0]) for row in rows)


def rewards(
    ledger: LedgerHandle, where: Filter = EVERYTHING, *, limit: int = 100, offset: int = 0, newest: bool = True
) -> Page[RewardLine]:
    """Rewards with their rollouts, newest first unless said otherwise."""
    clause, given = condition(ledger.project, where)
    with ledger.connection() as conn:
        rows = conn.execute(
            f"SELECT {REWARD} FROM {REWARDS} WHERE {clause} ORDER BY x.position {_direction(newest)} LIMIT %(limit)s OFFSET %(offset)s",
            {**given, "limit": limit, "offset": offset},
        ).fetchall()
        total = conn.execute(f"SELECT count(*) FROM {REWARDS} WHERE {clause}", given).fetchone()
    return Page(tuple(map(_reward_line, rows)), _count(total), offset)


def reward(ledger: LedgerHandle, reward_id: str) -> RewardLine:
    """One reward with its rollout.

    Raises:
        UnknownId: no such reward has been folded.
    """
    with ledger.connection() as conn:
        row = conn.execute(
            f"SELECT {REWARD} FROM {REWARDS} WHERE x.project = %s AND x.reward_id = %s", (ledger.project, reward_id)
        ).fetchone()
    if row is None:
        raise UnknownId(f"no reward {reward_id!r} in project {ledger.project!r}")
    return _reward_line(row)


def rollout_detail(ledger: LedgerHandle, rollout_id: str) -> RolloutDetail:
    """A rollout with its verdicts, rewards and calls, and the other attempts at its slot.

    Raises:
        UnknownId: no such rollout has been folded.
    """
    found = rollouts(ledger, Filter(rollout_id=rollout_id), limit=1).lines
    if not found:
        raise UnknownId(f"no rollout {rollout_id!r} in project {ledger.project!r}")
    line = found[0]
    attempts = rollouts(ledger, Filter(group_id=line.group_id), limit=10_000, newest=False).lines
    with ledger.connection() as conn:
        rows = conn.execute(
            f"SELECT {CALL} FROM call_view AS c WHERE c.project = %s AND c.rollout_id = %s ORDER BY c.index, c.dispatched_position",
            (ledger.project, rollout_id),
        ).fetchall()
    return RolloutDetail(
        line=line,
        verdicts=verdicts(ledger, [rollout_id])[rollout_id],
        rewards=rewards(ledger, Filter(rollout_id=rollout_id), limit=10_000, newest=False).lines,
        calls=tuple(map(call_line, rows)),
        attempts=tuple(other for other in attempts if other.slot == line.slot and other.rollout_id != rollout_id),
    )


def verdicts(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, tuple[VerdictLine, ...]]:
    """Every rollout id to its verdicts and reviews, oldest first."""
    with ledger.connection() as conn:
        return verdict_lines(conn, ledger.project, rollout_ids)


def events(
    ledger: LedgerHandle,
    *,
    since: int = 0,
    until: int | None = None,
    kinds: Sequence[str] | None = None,
    stream: str | None = None,
    limit: int = 100,
    newest: bool = False,
) -> list[EventLine]:
    """Ordered events with a position in (since, until], of the given kinds and stream, in position order or newest first."""
    given = (ledger.project, since, until, until, None if kinds is None else list(kinds), None if kinds is None else list(kinds))
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT position, event_id, stream, version, kind, occurred_at, actor_id, key, body FROM ordered_event"
            " WHERE project = %s AND position > %s AND (%s::bigint IS NULL OR position <= %s) AND (%s::text[] IS NULL OR kind = ANY (%s))"
            f" AND (%s::text IS NULL OR stream = %s) ORDER BY position {_direction(newest)} LIMIT %s",
            (*given, stream, stream, limit),
        ).fetchall()
    return [EventLine(*(row[0], str(row[1]), *row[2:8], parse(bytes(row[8])))) for row in rows]


def event_counts(ledger: LedgerHandle, *, since: int = 0, until: int | None = None) -> dict[str, int]:
    """Kind to number of ordered events with a position in (since, until], sorted by kind."""
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT kind, count(*) FROM ordered_event WHERE project = %s AND position > %s AND (%s::bigint IS NULL OR position <= %s)"
            " GROUP BY kind ORDER BY kind",
            (ledger.project, since, until, until),
        ).fetchall()
    return {str(kind): int(number) for kind, number in rows}


def disagreements(
    ledger: LedgerHandle, where: Filter = EVERYTHING, *, reviewed: bool | None = None, limit: int = 100, offset: int = 0
) -> Page[Disagreement]:
    """Rollouts whose completed verdicts differ, newest first; `reviewed` asks for settled ones or for open ones only."""
    clause, given = condition(ledger.project, where)
    clause += f" AND {_SPLIT_VERDICTS}"
    if reviewed is not None:
        clause += f" AND {_SETTLED}" if reviewed else f" AND NOT {_SETTLED}"
    with ledger.connection() as conn:
        rows = conn.execute(
            f"SELECT {ROLLOUT} FROM {ROLLOUTS} WHERE {clause} ORDER BY r.started_position DESC LIMIT %(limit)s OFFSET %(offset)s",
            {**given, "limit": limit, "offset": offset},
        ).fetchall()
        total = conn.execute(f"SELECT count(*) FROM {ROLLOUTS} WHERE {clause}", given).fetchone()
        lines = [rollout_line(row) for row in rows]
        said = verdict_lines(conn, ledger.project, [line.rollout_id for line in lines])
    return Page(tuple(_disagreement(line, said[line.rollout_id]) for line in lines), _count(total), offset)


def unattributed_calls(ledger: LedgerHandle, *, limit: int = 100, offset: int = 0) -> Page[CallLine]:
    """Model calls that nobody said the rollout of, newest first."""
    return _calls(ledger, "c.rollout_id IS NULL", limit, offset)


def dangling_calls(ledger: LedgerHandle, *, limit: int = 100, offset: int = 0) -> Page[CallLine]:
    """Model calls whose intent is recorded and whose answer is not, newest first: in flight, or cut off by a kill."""
    return _calls(ledger, "c.called_position IS NULL", limit, offset)


def resolve(ledger: LedgerHandle, noun: str, prefix: str) -> str:
    """The one id of this noun that begins with `prefix`, or is it.

    Raises:
        UnknownId: no id or several begin so, or there is no such noun; the message names the candidates.
    """
    return resolve_any(ledger, prefix, (noun,))[1]


def resolve_any(ledger: LedgerHandle, prefix: str, nouns: Sequence[str] = ("reward", "rollout")) -> tuple[str, str]:
    """The noun and id of the one thing among `nouns` whose id begins with `prefix`, or is it; also of streams not ordered yet.

    Raises:
        UnknownId: none or several; the message names the candidates.
    """
    unknown = [noun for noun in nouns if noun not in NOUNS]
    if unknown:
        raise UnknownId(f"no noun {unknown[0]!r}; there are {', '.join(NOUNS)}")
    found: list[tuple[str, str]] = []
    with ledger.connection() as conn:
        # A whole id is looked up; only a beginning of one needs a search through all names.
        whole = {node_id(ledger.project, f"{noun}-{prefix}"): noun for noun in nouns if noun != "call"}
        there = conn.execute("SELECT node_id FROM node WHERE node_id = ANY (%s)", (list(whole),)).fetchall()
        if len(there) == 1 and "call" not in nouns:
            return whole[int(there[0][0])], prefix
        for noun in nouns:
            source = "SELECT call_id AS id FROM call_view WHERE project = %(project)s" if noun == "call" else (
                "SELECT substr(name, length(%(noun)s) + 2) AS id FROM node WHERE project = %(project)s"
                " AND starts_with(name, %(noun)s || '-')"
            )  # fmt: skip
            rows = conn.execute(
                f"SELECT id FROM ({source}) AS s WHERE starts_with(id, %(prefix)s) ORDER BY id <> %(prefix)s, id LIMIT 6",
                {"project": ledger.project, "noun": noun, "prefix": prefix},
            ).fetchall()
            found += [(noun, str(row[0])) for row in rows]
    exact = [pair for pair in found if pair[1] == prefix]
    if len(exact) == 1 or len(found) == 1:
        return (exact or found)[0]
    asked = " or ".join(nouns)
    if not found:
        raise UnknownId(f"no {asked} whose id begins with {prefix!r} in project {ledger.project!r}")
    raise UnknownId(f"{prefix!r} begins the id of several: {', '.join(f'{noun} {ident}' for noun, ident in found[:5])}; give more of it")


def _calls(ledger: LedgerHandle, clause: str, limit: int, offset: int) -> Page[CallLine]:
    with ledger.connection() as conn:
        rows = conn.execute(
            f"SELECT {CALL} FROM call_view AS c WHERE c.project = %s AND {clause}"
            " ORDER BY coalesce(c.dispatched_position, c.called_position) DESC LIMIT %s OFFSET %s",
            (ledger.project, limit, offset),
        ).fetchall()
        total = conn.execute(f"SELECT count(*) FROM call_view AS c WHERE c.project = %s AND {clause}", (ledger.project,)).fetchone()
    return Page(tuple(map(call_line, rows)), _count(total), offset)


def _reward_line(row: tuple[Any, ...]) -> RewardLine:
    ident, value, reason, rule, verdict_ids, position = row[ROLLOUT_COLUMNS:]
    return RewardLine(ident, value, reason, rule, tuple(verdict_ids), position, rollout_line(row[:ROLLOUT_COLUMNS]))


def _disagreement(line: RolloutLine, said: Sequence[VerdictLine]) -> Disagreement:
    return Disagreement(
        rollout=line,
        verdicts=tuple(v for v in said if v.role != "review" and v.status == "completed" and v.passed is not None),
        reviews=tuple(v for v in said if v.role == "review"),
    )


def _direction(newest: bool) -> str:
    return "DESC" if newest else "ASC"


def _count(row: tuple[Any, ...] | None) -> int:
    return 0 if row is None else int(row[0])
