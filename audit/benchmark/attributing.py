"""Runs an attribution over recorded rollouts, from what it may read of them. Reads the database."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from audit.replaying import Replayer
from audit.replays import Replays
from audit.results import CheckResult
from audit.rollout_checks import rollout_checks
from audit.rollout_reading import read_subjects
from audit.rollout_subject import RolloutSubject
from audit.run import run_checks
from audit.severity import load_policy
from audit.update_audit import audited
from audit.update_reading import read_updates
from ledger.canonical import canonical_bytes
from ledger.ledger import LedgerHandle


class Attributed(Protocol):
    """What an attribution says of a rollout, as `audit.attribution.Attribution` does."""

    @property
    def boundary(self) -> str:
        """A boundary, `none` or `unknown`."""
        ...

    @property
    def fault(self) -> str | None:
        """Kind of fault."""
        ...

    @property
    def reason(self) -> str:
        """Why, in words."""
        ...

    @property
    def evidence_event_ids(self) -> Sequence[str]:
        """Events that show it."""
        ...


Attribute = Callable[[RolloutSubject, Sequence[CheckResult], Replays], Attributed]
"""(rollout, results of all rollout checks on it, its replays) to whose fault it was."""
ClassifyUpdate = Callable[[LedgerHandle, str], str | None]
"""(ledger, update id) to the kind of training fault, None where the update is sound."""


@dataclass(frozen=True)
class Answer:
    """What was said of one subject.

    Attributes:
        subject: the rollout's or the update's stream.
        boundary: a boundary, `none` or `unknown`.
    """

    subject: str
    boundary: str
    fault: str | None
    reason: str = ""
    evidence_event_ids: tuple[str, ...] = ()


def attributed(
    ledger: LedgerHandle, rollout_ids: Sequence[str], attribute: Attribute, replayer: Replayer
) -> Iterator[Answer]:  # fmt: skip
    """What an attribution says of rollouts, in the order of the ids; labels of planted faults are out of its reach."""
    checks = [rollout_checks.bind(name) for name in rollout_checks.names()]
    thresholds = load_policy(kind="rollout").thresholds
    for subject in read_subjects(ledger, rollout_ids):
        results = tuple(run_checks(checks, subject, thresholds).values())
        said = attribute(subject, results, replayer.replays(subject, results))
        yield Answer(subject.subject, said.boundary, said.fault, said.reason, tuple(said.evidence_event_ids))


def fault_of_update(ledger: LedgerHandle, update_id: str) -> str | None:
    """What the update checks say: the kind of fault of the first root finding of level error; None for a sound update."""
    (subject,) = read_updates(ledger, [update_id])
    found = audited(subject, load_policy(kind="update")).findings
    return next((one.fault for one in found if one.level == "error" and one.root is None), None)


def classified(ledger: LedgerHandle, update_ids: Sequence[str], classify: ClassifyUpdate) -> Iterator[Answer]:
    """What is said of updates, in the order of the ids."""
    for update_id in update_ids:
        fault = classify(ledger, update_id)
        yield Answer(f"update-{update_id}", "none" if fault is None else "training", fault)


def answers_bytes(answers: Sequence[Answer]) -> bytes:
    """The canonical form of answers, by which two runs are compared."""
    return canonical_bytes(
        [
            {
                "subject": answer.subject, "boundary": answer.boundary, "fault": answer.fault, "reason": answer.reason,
                "evidence": list(answer.evidence_event_ids),
            }
            for answer in answers
        ]
    )  # fmt: skip
