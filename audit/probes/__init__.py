"""Probes: each tries a verifier on ends that it makes or repeats, and says what that shows. Active. One file a probe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from audit.results import CheckResult, answers, judged
from audit.run import Broken, guarded
from audit.verifier_trials import Run, Sort, Trial
from ledger.methods import Bound, Family
from training.verifiers import Verdict
from training.worlds.source import VerifierKind

__all__ = ["CheckResult", "Probe", "ProbeSubject", "Run", "Trial", "Verdict", "answers", "judged", "probed", "probes"]


@dataclass(frozen=True)
class ProbeSubject:
    """What the probes of one verifier version look at.

    Attributes:
        verifier: its name.
        kind: program, state_diff, judge or human.
        trials: of all tasks.
        verdicts: what it said of each, in the same order.
        others: names of other verifiers to the same, each of them at work.
    """

    verifier: str
    kind: VerifierKind
    trials: Sequence[Trial]
    verdicts: Sequence[Verdict]
    others: Mapping[str, Run] = field(default_factory=dict)

    def told(self, *sorts: Sort) -> list[tuple[Trial, Verdict]]:
        """The trials of these sorts with what was said of them."""
        return [(trial, said) for trial, said in zip(self.trials, self.verdicts, strict=True) if trial.sort in sorts]


class Probe(Protocol):
    """The signature of every probe. `answers` gives a function the ids that it answers for."""

    def __call__(self, subject: ProbeSubject, run: Run, *, rng: Random | None = None) -> Sequence[CheckResult]:
        """The results, one for each of its ids.

        Args:
            subject: the verifier's trials and verdicts.
            run: the verifier at work.
            rng: chooses what is tried again.
        """
        ...


probes: Family[Probe] = Family("audit.probes")


def probed(bound: Sequence[Bound[Probe]], subject: ProbeSubject, run: Run, *, seed: int) -> dict[str, CheckResult]:
    """Check id to result, of all ids of the probes; a probe that breaks is an error, and no pass."""
    found: dict[str, CheckResult] = {}
    for item in bound:
        ids: tuple[str, ...] = getattr(item.call, "func", item.call).__dict__["check_ids"]
        made = guarded(lambda item=item: item.call(subject, run, rng=Random(f"{item.ref.name}/{seed}")))  # type: ignore[misc]
        given = {} if isinstance(made, Broken) else {result.check_id: result for result in made}
        why = f"the probe broke: {made.error} ({made.place})" if isinstance(made, Broken) else "the probe gave no result for this id"
        found |= {name: given.get(name, CheckResult(name, "error", why, remedy="repair the probe")) for name in ids}
    return found
