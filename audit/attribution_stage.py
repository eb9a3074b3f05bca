"""Attributes the rollouts of a run and appends what changed, so that outcomes and batches follow. Runs worlds, writes the ledger."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from audit.attribution import Attribution, attribute
from audit.findings import Level
from audit.replaying import Replayer
from audit.results import CheckResult, shown
from audit.rollout_checks import rollout_checks
from audit.rollout_reading import read_subjects
from audit.rollout_subject import RolloutSubject
from audit.run import run_checks
from audit.severity import DEFAULT, load_policy
from audit.taxonomy import boundary_of
from ledger.attributed import attributable, newest_findings
from ledger.errors import UnknownId
from ledger.events import FindingRaised, RunConfigured
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.outcome import UNDECIDED
from ledger.queries import fresh

_PAGE = 100
_REASON_CHARS = 500


@dataclass(frozen=True)
class Attributed:
    """What an attribution of a run found.

    Attributes:
        attributions: one a rollout, in the order in which the rollouts began.
        new: findings that were appended, or would be.
    """

    attributions: tuple[Attribution, ...]
    new: int


def ended_rollouts(ledger: LedgerHandle, run_id: str, *, round: int | None = None, everything: bool = False) -> list[str]:
    """Ids of the counted rollouts of a run that ended, were judged or broke, and did not pass or were attributed before, oldest first.

    Args:
        round: of the run; None for all.
        everything: also those that passed.
    Raises:
        UnknownId: there is no such run.
    """
    root_seed(ledger, run_id)
    fresh(ledger)
    return attributable(ledger, run_id, round=round, everything=everything)


def root_seed(ledger: LedgerHandle, run_id: str) -> int | None:
    """The root of a run's seeds; None for a run of sessions, whose rollouts say their seeds themselves.

    Nothing else of the run is read: its file names the faults that were planted.

    Raises:
        UnknownId: there is no such run.
    """
    body = next((event.body for event in ledger.read_stream(f"run-{run_id}") if event.kind == "RunConfigured"), None)
    if not isinstance(body, RunConfigured):
        raise UnknownId(f"no run {run_id!r} in project {ledger.project!r}")
    return None if body.experiment_id == derived_id("experiment", "session", body.name) else body.root_seed


def attributions(
    ledger: LedgerHandle, rollout_ids: Sequence[str], replayer: Replayer, *, progress: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[RolloutSubject, Attribution]]:
    """Each rollout with whose fault it is, in the order of the ids; nothing is written.

    Args:
        progress: called with the number of rollouts done since the last call.
    """
    bound = [rollout_checks.bind(name) for name in rollout_checks.names()]
    thresholds = load_policy(DEFAULT, kind="rollout").thresholds if bound else {}
    for subject in read_subjects(ledger, rollout_ids):
        results: list[CheckResult] = list(run_checks(bound, subject, thresholds).values())
        yield subject, attribute(subject, results, replayer.replays(subject, results))
        progress(1)


def attribute_run(
    ledger: LedgerHandle,
    run_id: str,
    replayer: Replayer,
    *,
    round: int | None = None,
    everything: bool = False,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Attributed:
    """Whose fault each failed rollout of a run is; what the ledger does not say yet is appended as findings, the newest of which counts."""
    ids = ended_rollouts(ledger, run_id, round=round, everything=everything)
    found = [attribution for _, attribution in attributions(ledger, ids, replayer, progress=progress)]
    new = 0
    for start in range(0, len(found), _PAGE):
        new += record(ledger, found[start : start + _PAGE], dry_run=dry_run)
    return Attributed(tuple(found), new)


def record(ledger: LedgerHandle, found: Sequence[Attribution], *, dry_run: bool = False) -> int:
    """How many attributions the ledger did not hold as the newest of their rollouts; they are appended unless it is a dry run."""
    fresh(ledger)
    newest = newest_findings(ledger, [one.rollout_id for one in found])
    held = _held(ledger, list(newest.values()))
    events = []
    for one in found:
        finding_id = newest.get(one.rollout_id)
        blob = ledger.pending_json(shown({"policy_evidence": one.policy_evidence, "boundary": one.boundary}))
        body = _finding(ledger, one, finding_id, blob.ref)
        before = None if finding_id is None else held.get(finding_id)
        if before is None or _said(before) != _said(body):
            events.append(ledger.new(body, blob))
    if events and not dry_run:
        ledger.append(events)
    return len(events)


def _finding(ledger: LedgerHandle, one: Attribution, before: str | None, measured: Any) -> FindingRaised:
    """The event; its id covers the finding before it, so that what was said once and taken back can be said again."""
    boundary = None if one.fault is None else boundary_of(one.fault)
    level: Level = "error" if boundary not in (None, "task") else "warning" if one.boundary == "unknown" else "info"
    finding_id = derived_id("attribution", ledger.ledger_id, ledger.project, before, list(one.evidence_event_ids), *map(str, _key(one)))
    return FindingRaised(
        finding_id=finding_id, check="attribution", subject=f"rollout-{one.rollout_id}", severity=level, measured=measured,
        evidence_event_ids=list(one.evidence_event_ids), boundary=boundary,
        fault=UNDECIDED if one.boundary == "unknown" else one.fault, reason=one.reason[:_REASON_CHARS],
    )  # fmt: skip


def _key(one: Attribution) -> tuple[object, ...]:
    return one.rollout_id, one.boundary, one.fault, one.reason, one.policy_evidence


def _said(body: FindingRaised) -> dict[str, Any]:
    return body.model_dump(exclude={"finding_id", "measured"}) | {"blob": None if body.measured is None else body.measured.blob_id}


def _held(ledger: LedgerHandle, finding_ids: Sequence[str]) -> dict[str, FindingRaised]:
    if not finding_ids:
        return {}
    found = [event.body for event in ledger.read_streams([f"finding-{finding_id}" for finding_id in finding_ids])]
    return {body.finding_id: body for body in found if isinstance(body, FindingRaised)}
