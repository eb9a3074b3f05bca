"""Rollouts that can be attributed, and the attribution of each that counts, as the read models show them. Reads the database."""

from collections.abc import Sequence

from ledger.ledger import LedgerHandle
from ledger.outcome import ERRORS

_ENDED = """SELECT r.rollout_id FROM rollout_view AS r JOIN group_view AS g ON g.project = r.project AND g.group_id = r.group_id
WHERE r.project = %(project)s AND g.run_id = %(run)s AND r.ended_by IS NOT NULL AND NOT r.superseded
  AND (r.verdict_id IS NOT NULL OR r.ended_by = ANY (%(errors)s) OR EXISTS (
    SELECT FROM reward_view AS w WHERE w.project = r.project AND w.rollout_id = r.rollout_id AND w.value IS NOT NULL))
  AND (%(round)s::int IS NULL OR g.round = %(round)s) AND (%(all)s OR r.attributed IS NOT NULL OR r.passed IS DISTINCT FROM true)
ORDER BY r.started_position"""
_NEWEST = "SELECT rollout_id, finding_id FROM rollout_view WHERE project = %s AND rollout_id = ANY (%s) AND finding_id IS NOT NULL"


def attributable(ledger: LedgerHandle, run_id: str, *, round: int | None = None, everything: bool = False) -> list[str]:
    """Ids of the counted rollouts of a run that ended, were judged or broke, and did not pass or were attributed before, oldest first.

    Args:
        round: of the run; None for all.
        everything: also those that passed.
    """
    given = {"project": ledger.project, "run": run_id, "round": round, "all": everything, "errors": list(ERRORS)}
    with ledger.connection() as conn:
        return [str(row[0]) for row in conn.execute(_ENDED, given)]


def newest_findings(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, str]:
    """Rollout id to the id of the attribution that counts; one without is absent."""
    with ledger.connection() as conn:
        return {str(row[0]): str(row[1]) for row in conn.execute(_NEWEST, (ledger.project, list(rollout_ids)))}
