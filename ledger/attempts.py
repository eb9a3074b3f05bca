"""Which attempts a group's slots have had, so that a collector can go on where another one stopped. Reads the rollout read model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ledger.ledger import LedgerHandle
from ledger.projections import catch_up


@dataclass(frozen=True)
class Attempt:
    """One attempt at a slot; `counts` once it ended and was not superseded."""

    rollout_id: str
    group_id: str
    slot: int
    attempt: int
    ended: bool
    superseded: bool

    @property
    def counts(self) -> bool:
        """Whether this attempt fills its slot."""
        return self.ended and not self.superseded


def attempts(ledger: LedgerHandle, group_ids: Sequence[str]) -> list[Attempt]:
    """All attempts of the groups by group, slot and attempt number, as of everything committed before the call."""
    ledger.barrier()
    catch_up(ledger, "rollouts")
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT rollout_id, group_id, slot, attempt, ended_by IS NOT NULL, superseded FROM rollout_view"
            " WHERE project = %s AND group_id = ANY (%s) ORDER BY group_id, slot, attempt",
            (ledger.project, list(group_ids)),
        ).fetchall()
    return [Attempt(*row) for row in rows]


def unfinished(ledger: LedgerHandle) -> list[Attempt]:
    """All attempts of the project that have not ended, as of everything committed before the call."""
    ledger.barrier()
    catch_up(ledger, "rollouts")
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT rollout_id, group_id, slot, attempt, false, superseded FROM rollout_view WHERE project = %s AND ended_by IS NULL"
            " ORDER BY rollout_id",
            (ledger.project,),
        ).fetchall()
    return [Attempt(*row) for row in rows]


@dataclass(frozen=True)
class DispatchedGroup:
    """A group as it was dispatched."""

    group_id: str
    bundle_id: str
    size: int
    policy: str
    rollout_kind: str


def dispatched(ledger: LedgerHandle, run_id: str, round: int) -> list[DispatchedGroup]:
    """The groups that were dispatched in one round of a run by id, as of everything committed before the call."""
    ledger.barrier()
    catch_up(ledger, "groups")
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT group_id, bundle_id, size, policy, rollout_kind FROM group_view WHERE project = %s AND run_id = %s AND round = %s"
            " ORDER BY group_id",
            (ledger.project, run_id, round),
        ).fetchall()
    return [DispatchedGroup(*row) for row in rows]


@dataclass(frozen=True)
class CountedRollout:
    """A counted rollout of a run with its bundle and the verdict that counts, as the read models show them.

    `verdict_ids` names every verdict given on it, `reward_ids` every reward derived for it.
    """

    rollout_id: str
    bundle_id: str
    world: str
    policy: str
    ended_by: str
    verdict_id: str | None
    verdict_status: str | None
    passed: bool | None
    conditions: tuple[dict[str, Any], ...]
    verdict_ids: tuple[str, ...]
    reward_ids: tuple[str, ...]


def counted(ledger: LedgerHandle, run_id: str, round: int) -> list[CountedRollout]:
    """The counted rollouts of one round of a run by group and slot, as of everything committed before the call."""
    ledger.barrier()
    catch_up(ledger)
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT r.rollout_id, r.bundle_id, b.world, g.policy, r.ended_by, r.verdict_id, r.verdict_status, r.passed,"
            " coalesce(v.conditions, '[]'::jsonb),"
            " ARRAY(SELECT verdict_id FROM verdict_view AS o WHERE o.project = r.project AND o.rollout_id = r.rollout_id ORDER BY 1),"
            " ARRAY(SELECT reward_id FROM reward_view AS o WHERE o.project = r.project AND o.rollout_id = r.rollout_id ORDER BY 1)"
            " FROM rollout_view AS r JOIN group_view AS g USING (project, group_id) JOIN bundle_view AS b ON b.project = r.project"
            " AND b.bundle_id = r.bundle_id LEFT JOIN verdict_view AS v ON v.project = r.project AND v.verdict_id = r.verdict_id"
            " WHERE r.project = %s AND g.run_id = %s AND g.round = %s AND r.ended_by IS NOT NULL AND NOT r.superseded"
            " ORDER BY r.group_id, r.slot",
            (ledger.project, run_id, round),
        ).fetchall()
    columns = [(*row[:8], *map(tuple, row[8:])) for row in rows]
    return [CountedRollout(*values) for values in columns]
