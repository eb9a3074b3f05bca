"""How a verifier agrees with people and with other verifiers on recorded rollouts. Pure but for `agreements`, which reads the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audit.statistics import Estimate, Table
from audit.statistics._agreement import kappa_of
from audit.statistics.success_rate import success_rate
from ledger.ledger import LedgerHandle
from ledger.verdict_pairs import VerdictPair, registered_verifiers, verdict_pairs

PEOPLE = "people"


@dataclass(frozen=True)
class Agreement:
    """Two judges of the same rollouts.

    Attributes:
        other: name of the other verifier, or `people`.
        other_id: its id; None for people.
        other_kind: program, state_diff, judge or human.
        rollouts: that both decided.
        both_pass, both_fail: where they agree.
        only_this, only_other: passed by one alone.
        share: of rollouts on which they agree.
        kappa: Cohen's; None where one of them always says the same, which leaves nothing to agree on beyond chance.
    """

    other: str
    other_id: str | None
    other_kind: str
    rollouts: int
    both_pass: int
    both_fail: int
    only_this: int
    only_other: int

    @property
    def share(self) -> float:
        """Agreeing rollouts of all."""
        return (self.both_pass + self.both_fail) / self.rollouts

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa, as the statistic `cohen_kappa` takes it."""
        counts = np.array([[self.both_pass, self.only_this], [self.only_other, self.both_fail]], dtype=np.float64)
        kappa = float(kappa_of(counts)[0])
        return None if np.isnan(kappa) else kappa

    def as_json(self) -> dict[str, Any]:
        """The agreement as a JSON object."""
        return {**vars(self), "share": self.share, "kappa": self.kappa}


@dataclass(frozen=True)
class Calibration:
    """What people decided where the verifier said one thing: of what it passes (or fails), the share that people pass."""

    said: str
    estimate: Estimate


def agreements(ledger: LedgerHandle, verifier_id: str) -> tuple[tuple[Agreement, ...], tuple[Calibration, ...]]:
    """Agreement with people and each other verifier, people first, and the calibration against people."""
    pairs = verdict_pairs(ledger, verifier_id)
    names = {ident: body.name for ident, body in registered_verifiers(ledger).items()}
    by_other: dict[str | None, list[VerdictPair]] = {}
    for pair in pairs:
        by_other.setdefault(pair.other_id, []).append(pair)
    found = [
        agreement(PEOPLE if other is None else names.get(other, other[:12]), other, items)
        for other, items in sorted(
            by_other.items(), key=lambda entry: (entry[0] is not None, names.get(entry[0] or "", ""), entry[0] or "")
        )
    ]
    people = by_other.get(None, [])
    return tuple(found), tuple(_calibrated(people, passed) for passed in (True, False) if any(p.passed is passed for p in people))


def agreement(other: str, other_id: str | None, pairs: Sequence[VerdictPair]) -> Agreement:
    """The agreement over at least one pair."""
    said = [(pair.passed, pair.other_passed) for pair in pairs]
    return Agreement(
        other, other_id, pairs[0].other_kind, len(said), said.count((True, True)), said.count((False, False)), said.count((True, False)),
        said.count((False, True)),
    )  # fmt: skip


def _calibrated(people: Sequence[VerdictPair], passed: bool) -> Calibration:
    rows = [{"passed": float(pair.other_passed), "bundle": pair.bundle_id} for pair in people if pair.passed is passed]
    found = success_rate(Table.of(rows, ("passed", "bundle")))[0]
    return Calibration("passed" if passed else "failed", Estimate(**{**vars(found), "name": "people_pass"}))
