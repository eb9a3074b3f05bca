"""The verdict that counts for a rollout, chosen as the read model chooses it. Pure."""

from dataclasses import dataclass

from audit.rollout_subject import RolloutSubject
from ledger.events import VerdictGiven
from ledger.outcome import verdict_rank


@dataclass(frozen=True)
class CountingVerdict:
    """The verdict that counts.

    Attributes:
        event_id: of the verdict, or of a person's decision.
        status: completed or error.
        passed: what it says; None when it says neither.
        by_person: a person gave it.
        verifier_id: who gave it; None for a decision.
        side_effects: how many it names.
        error: why the verification failed; empty where it did not.
    """

    event_id: str
    status: str
    passed: bool | None
    by_person: bool
    verifier_id: str | None = None
    side_effects: int = 0
    error: str = ""


def counting_verdict(subject: RolloutSubject) -> CountingVerdict | None:
    """The newest of the verdicts and decisions of the highest rank; None where none counts."""
    ranked: list[tuple[int, int, CountingVerdict]] = []
    for place, (event_id, body) in enumerate(subject.judged):
        rank = verdict_rank("VerdictGiven", body.role, body.verifier_kind, body.passed)
        if rank is not None:
            ranked.append((rank, place, _of_verdict(subject, event_id, body)))
    for place, (event_id, review) in enumerate(subject.reviewed, start=len(subject.judged)):
        passed = {"passed": True, "failed": False, "unclear": None}[review.decision]
        rank = verdict_rank("ReviewDecided", "review", "human", passed)
        if rank is not None:
            ranked.append((rank, place, CountingVerdict(event_id, "completed", passed, by_person=True)))
    return max(ranked, key=lambda item: item[:2])[2] if ranked else None


def _of_verdict(subject: RolloutSubject, event_id: str, body: VerdictGiven) -> CountingVerdict:
    return CountingVerdict(
        event_id, body.status, body.passed, body.verifier_kind == "human", body.verifier_id, body.side_effect_count,
        "" if body.error is None else subject.text(body.error),
    )  # fmt: skip
