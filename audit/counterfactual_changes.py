"""Verdicts that would have been others: of a verifier that judges again, of people's decisions, of a recall. Reads the ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.reverify import Reverified
from ledger.errors import SettingsError
from ledger.events import ReviewDecided
from ledger.ledger import LedgerHandle
from ledger.outcome import Outcome, outcome_of, verdict_rank
from ledger.queries import Filter, RolloutLine, VerdictLine, resolve, rollouts, verdicts
from training.rollout.derive import Judged

_PAGE = 500
_DECISIONS = {"passed": True, "failed": False}


@dataclass(frozen=True)
class Judgement:
    """What counts for a rollout.

    Attributes:
        status: completed or error; None where there is no verdict.
        passed: what it says.
        conditions: name, status and in_basis of each; empty for a person's decision.
        by: who says so, for people to read.
        verdict_id: None for a verdict that nobody recorded.
    """

    status: str | None
    passed: bool | None
    conditions: tuple[Mapping[str, Any], ...] = ()
    by: str = ""
    verdict_id: str | None = None

    def judged(self, rollout_id: str, ended_by: str) -> Judged:
        """The rollout as a reward is derived from it."""
        return Judged(rollout_id, ended_by, self.verdict_id, self.status, self.passed, self.conditions)

    def outcome(self, ended_by: str) -> Outcome:
        """The outcome of a counted rollout that ended so."""
        return outcome_of(ended_by, superseded=False, verdict_status=self.status, passed=self.passed)


NOTHING = Judgement(None, None, by="nobody")


@dataclass(frozen=True)
class Change:
    """A rollout with what counted before and what would count."""

    rollout_id: str
    old: Judgement
    new: Judgement

    @property
    def flips(self) -> bool:
        """Whether passed, failed or undecided would be another."""
        return self.old.passed is not self.new.passed


@dataclass(frozen=True)
class Changes:
    """Changed verdicts by rollout, where they come from, and reason to number of what changes nothing."""

    source: str
    by_rollout: Mapping[str, Change]
    left_out: Mapping[str, int]


def of_verifier(ledger: LedgerHandle, found: Reverified) -> Changes:
    """What would count if this verifier's verdicts took the place of programs' and judges' ones; people's decisions stand."""
    left_out = Counter(found.left_out)
    changes: dict[str, Change] = {}
    said = _said(ledger, [item.line.rollout_id for item in found.again])
    for item in found.again:
        counting = best(said[item.line.rollout_id])
        if counting is not None and counting.role == "review":
            left_out["rollouts that a person decided"] += 1
            continue
        conditions = tuple({"name": c.name, "status": c.status, "in_basis": c.in_basis} for c in item.new.conditions)
        status = "completed" if item.new.error is None else "error"
        new = Judgement(status, item.new.passed, conditions, found.verifier.ref.name)
        changes[item.line.rollout_id] = Change(item.line.rollout_id, judgement(counting), new)
    return Changes(f"verifier {found.verifier.ref.name} {found.verifier.ref.method_id[:12]}", changes, dict(left_out))


def of_decisions(ledger: LedgerHandle, asked: Sequence[str]) -> Changes:
    """What people's decisions change: recorded ones by the id of their review, and others as `<rollout>=passed` or `=failed`.

    Raises:
        SettingsError: something else is given, or two decisions about one rollout.
        UnknownId: no such rollout or review.
    """
    changes: dict[str, Change] = {}
    left_out: Counter[str] = Counter()
    for text in asked:
        rollout_id, new, own = _decision(ledger, text)
        if rollout_id in changes:
            raise SettingsError(f"two decisions about rollout {rollout_id}; allowed: one")
        if new is None:
            left_out["decisions that settle nothing"] += 1
            continue
        before = best([line for line in verdicts(ledger, [rollout_id])[rollout_id] if line.verdict_id != own])
        changes[rollout_id] = Change(rollout_id, judgement(before), new)
    return Changes(f"{len(asked)} decisions of people", changes, dict(left_out))


def of_recall(ledger: LedgerHandle, verifier_id: str, where: Filter) -> Changes:
    """What would count without a verifier version: of each rollout the best verdict of another one, or none."""
    changes: dict[str, Change] = {}
    offset = 0
    while lines := rollouts(ledger, where, limit=_PAGE, offset=offset, newest=False).lines:
        offset += len(lines)
        for line, said in _with_verdicts(ledger, lines):
            counting = best(said)
            if counting is not None and counting.verifier_id == verifier_id:
                rest = best([verdict for verdict in said if verdict.verifier_id != verifier_id])
                changes[line.rollout_id] = Change(line.rollout_id, judgement(counting), judgement(rest))
    return Changes(f"recall of verifier {verifier_id[:12]}", changes, {})


def best(said: Sequence[VerdictLine]) -> VerdictLine | None:
    """The verdict that counts among these: the newest of the highest rank."""
    ranked = [
        (rank, line.position, line)
        for line in said
        if (rank := verdict_rank("ReviewDecided" if line.role == "review" else "VerdictGiven", line.role, line.verifier_kind, line.passed))
        is not None
    ]
    return max(ranked, key=lambda item: item[:2])[2] if ranked else None


def judgement(line: VerdictLine | None) -> Judgement:
    """What a recorded verdict says; nothing without one."""
    if line is None:
        return NOTHING
    by = line.verifier or ("a person" if line.role == "review" else str(line.verifier_id)[:12])
    return Judgement(line.status, line.passed, line.conditions, by, line.verdict_id)


def _decision(ledger: LedgerHandle, text: str) -> tuple[str, Judgement | None, str | None]:
    prefix, equals, said = text.partition("=")
    if equals:
        if said not in _DECISIONS:
            raise SettingsError(f"decision {text!r}; allowed: <rollout>=passed, <rollout>=failed, or the id of a recorded decision")
        return resolve(ledger, "rollout", prefix), Judgement("completed", _DECISIONS[said], by="a person"), None
    review_id = resolve(ledger, "review", prefix)
    body = next(event.body for event in ledger.read_stream(f"review-{review_id}") if isinstance(event.body, ReviewDecided))
    new = Judgement("completed", _DECISIONS[body.decision], by="a person", verdict_id=review_id) if body.decision in _DECISIONS else None
    return body.rollout_id, new, review_id


def _said(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, tuple[VerdictLine, ...]]:
    found: dict[str, tuple[VerdictLine, ...]] = {}
    for start in range(0, len(rollout_ids), _PAGE):
        found |= verdicts(ledger, rollout_ids[start : start + _PAGE])
    return found


def _with_verdicts(ledger: LedgerHandle, lines: Sequence[RolloutLine]) -> list[tuple[RolloutLine, tuple[VerdictLine, ...]]]:
    said = verdicts(ledger, [line.rollout_id for line in lines])
    return [(line, said[line.rollout_id]) for line in lines]
