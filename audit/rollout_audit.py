"""Audits many recorded rollouts: every check on each, failures as findings with their roots, one event a check. Writes the ledger."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from audit.findings import LEVELS, Finding, raised, roots
from audit.results import CheckResult
from audit.rollout_checks import RolloutCheck, rollout_checks
from audit.rollout_reading import read_subjects
from audit.rollout_subject import RolloutSubject
from audit.run import check_ids, explains, ids_of, run_checks
from audit.severity import Policy
from ledger.canonical import digest
from ledger.decoders import Decoder
from ledger.errors import SettingsError
from ledger.events import CheckRan
from ledger.events.task import CheckStatus
from ledger.ledger import LedgerHandle
from ledger.methods import Bound
from ledger.store import New

Progress = Callable[[int], None]
Results = Mapping[str, CheckResult]
STATUSES: tuple[CheckStatus, ...] = ("pass", "fail", "skip", "error")
_PAGE = 200
_SHOWN = 20


@dataclass(frozen=True)
class RolloutAudit:
    """What an audit of rollouts found.

    Attributes:
        counts: check id to status to number of rollouts, of every check that ran.
        findings: of all rollouts, in their order, roots before their consequences.
        broken: rollout and result of each check that broke, at most the first 100.
        inputs_digest: hex SHA-256 over everything that the checks looked at and found.
        created: findings and check events that the ledger did not have yet; None where nothing was appended.
        rollouts: how many were looked at.
    """

    counts: Mapping[str, Mapping[CheckStatus, int]]
    findings: tuple[Finding, ...]
    broken: tuple[tuple[str, CheckResult], ...]
    inputs_digest: str
    created: int | None
    rollouts: int


@dataclass
class _Tally:
    counts: dict[str, Counter[CheckStatus]] = field(default_factory=lambda: defaultdict(Counter))
    findings: list[Finding] = field(default_factory=list)
    broken: list[tuple[str, CheckResult]] = field(default_factory=list)
    shown: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    seen: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    created: int = 0
    rollouts: int = 0


def checks_named(names: Sequence[str], policy: Policy) -> tuple[Bound[RolloutCheck], ...]:
    """The checks that answer for these ids, or are called so; all of the policy without a name.

    Raises:
        SettingsError: no check answers for a name.
    """
    answered = {name: ids_of(rollout_checks[name]) for name in rollout_checks.names()}
    known = {name: ids for name, ids in answered.items() if set(ids) <= policy.severity.keys()}
    for name in names:
        if name not in known and not any(name in ids for ids in known.values()):
            allowed = sorted(check_id for ids in known.values() for check_id in ids)
            raise SettingsError(f"no rollout check {name!r} in policy {policy.name!r}; there are {', '.join(allowed)}")
    wanted = [name for name, ids in known.items() if not names or name in names or set(names) & set(ids)]
    return tuple(rollout_checks.bind(name) for name in wanted)


def audited(
    subjects: Iterable[RolloutSubject], policy: Policy, checks: Sequence[Bound[RolloutCheck]] | None = None
) -> Iterator[tuple[RolloutSubject, Results]]:
    """Each rollout with the results of all checks on it by id, one at a time; a check that breaks gives an `error` result.

    Args:
        checks: those to run; None runs all of the policy.
    """
    bound = checks_named((), policy) if checks is None else checks
    for subject in subjects:
        yield subject, run_checks(bound, subject, policy.thresholds)


def audit_rollouts(
    ledger: LedgerHandle,
    rollout_ids: Sequence[str],
    policy: Policy,
    *,
    run_id: str,
    round: int | None = None,
    checks: Sequence[Bound[RolloutCheck]] | None = None,
    decode: Decoder | None = None,
    appends: bool = True,
    progress: Progress = lambda _: None,
) -> RolloutAudit:
    """What the checks found in rollouts of one run; the same rollouts with the same evidence append nothing a second time.

    It holds one page of rollouts at a time, and what it found.

    Args:
        rollout_ids: the least is read when those of one group stand together.
        run_id, round: what the check events are about; None is no round in particular.
        checks: those to run; None runs all of the policy.
        decode: text of token ids, for what findings show.
        appends: False only looks.
        progress: called with the number of rollouts done since the last call.
    Raises:
        UnknownId: a rollout is not there.
    """
    bound = checks_named((), policy) if checks is None else tuple(checks)
    tally, waiting = _Tally(), list[Finding]()
    for subject, results in audited(read_subjects(ledger, rollout_ids, decode=decode), policy, bound):
        waiting += _counted(tally, subject, results, bound, policy)
        tally.rollouts += 1
        progress(1)
        if appends and len(waiting) >= _PAGE:
            tally.created += raised(ledger, waiting)
            waiting.clear()
    inputs = digest({"round": round, "seen": tally.seen.hexdigest(), "counts": {name: dict(held) for name, held in tally.counts.items()}})
    if appends:
        tally.created += raised(ledger, waiting)
        events = [
            _event(ledger, name, item, tally, policy=policy, run_id=run_id, inputs=inputs) for item in bound for name in check_ids(item)
        ]
        tally.created += sum(item.created for item in ledger.append(events).events)
    counts = {name: {status: tally.counts[name][status] for status in STATUSES} for item in bound for name in check_ids(item)}
    return RolloutAudit(
        counts, tuple(tally.findings), tuple(tally.broken), inputs, tally.created if appends else None, tally.rollouts
    )  # fmt: skip


def findings_of(
    subject: RolloutSubject, results: Results, checks: Sequence[Bound[RolloutCheck]], policy: Policy
) -> list[Finding]:  # fmt: skip
    """The failures of one rollout as findings, roots first; a consequence names the root that explains it."""
    made: dict[str, Finding] = {}
    for item in checks:
        for name in check_ids(item):
            result = results[name]
            if result.status != "fail":
                continue
            made[name] = Finding(
                name, subject.subject, result.fault, result.reason, LEVELS[policy.severity[name]], result.evidence_event_ids,
                {"measured": dict(result.measured), "evidence": result.evidence, "remedy": result.remedy}, item.ref.method_id,
            )  # fmt: skip
    root_of = roots(list(made), {name: explains(item) for item in checks for name in check_ids(item)})
    whole = [found for name, found in made.items() if root_of[name] == name]
    return [*whole, *(replace(found, root=made[root_of[name]]) for name, found in made.items() if root_of[name] != name)]


def _counted(
    tally: _Tally, subject: RolloutSubject, results: Results, checks: Sequence[Bound[RolloutCheck]], policy: Policy
) -> list[Finding]:  # fmt: skip
    for name, result in results.items():
        tally.counts[name][result.status] += 1
        if result.status in ("fail", "error") and len(tally.shown[name]) < _SHOWN:
            tally.shown[name].append(subject.rollout_id)
        if result.status == "error" and len(tally.broken) < 100:
            tally.broken.append((subject.rollout_id, result))
    events = [event.event_id for event in (*subject.own, *subject.heard)]
    looked = [subject.rollout_id, *events, *(one.started_id for one in subject.siblings)]
    tally.seen.update(digest(looked).encode())
    found = findings_of(subject, results, checks, policy)
    tally.findings += found
    return found


def _event(
    ledger: LedgerHandle, check_id: str, item: Bound[RolloutCheck], tally: _Tally, *, policy: Policy, run_id: str, inputs: str
) -> New:  # fmt: skip
    counts = {status: tally.counts[check_id][status] for status in STATUSES}
    status: CheckStatus = next((one for one in ("error", "fail", "pass") if counts[one]), "skip")
    failed = [found for found in tally.findings if found.check == check_id]
    evidence = list(dict.fromkeys(event_id for found in failed[:_SHOWN] for event_id in found.evidence_event_ids))[:_SHOWN]
    measured = ledger.pending_json({"counts": counts, "rollouts": tally.rollouts, "first_rollouts": tally.shown[check_id]})
    body = CheckRan(
        subject=f"run-{run_id}", check_id=check_id, method_id=item.ref.method_id, status=status, severity=policy.severity[check_id],
        policy_id=policy.policy_id, inputs_digest=inputs, measured=measured.ref, evidence_event_ids=evidence,
    )  # fmt: skip
    return ledger.new(body, measured)
