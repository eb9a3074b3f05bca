"""A verifier version tried on many tasks: which wrong ends it lets in, which right ones it refuses, and how often. Runs worlds."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, TypeVar

from audit.probes import Probe, ProbeSubject, probed, probes
from audit.results import CheckResult
from audit.severity import Policy
from audit.statistics import Estimate, Table
from audit.statistics.success_rate import success_rate
from audit.verifier_trials import MUTANTS, Trial, Trials, run_of
from ledger.bundle import Bundle
from ledger.canonical import digest
from ledger.methods import Bound
from training.verifiers import Judge, Verdict
from training.worlds import World
from training.worlds.source import VerifierKind

Task = TypeVar("Task")
WRONG = ("mutant",)
RIGHT = ("reference", "equivalent")
_SHOWN = 6


@dataclass(frozen=True)
class Audited:
    """A verifier version to try, its kind, and other verifiers of the same tasks."""

    verifier: Bound[Judge]
    kind: VerifierKind
    others: Mapping[str, Judge] = field(default_factory=dict)


@dataclass(frozen=True)
class Said:
    """A trial with the verdict on it."""

    trial: Trial
    verdict: Verdict

    @property
    def survives(self) -> bool:
        """Whether the verdict is not what the label asks for: a wrong end that is not rejected counts, and a right one not accepted."""
        return self.verdict.passed is not self.trial.right

    @property
    def lets_in(self) -> bool:
        """Whether a wrong end passes."""
        return not self.trial.right and self.verdict.passed is True


@dataclass(frozen=True)
class Gap:
    """A kind of end that a verifier gets wrong.

    Attributes:
        kind: what was done, such as `duplicate send_email`.
        wrongly: accepted or rejected; undecided where the verifier broke.
        count, of: how many ends of this kind it gets wrong, and how many were tried.
        example: the smallest of them.
    """

    kind: str
    wrongly: str
    count: int
    of: int
    example: Trial


@dataclass(frozen=True)
class VerifierAudit:
    """What came of the trials of one verifier version.

    Attributes:
        name, verifier_id, kind: of the version.
        bundle_ids: tasks on which it was tried.
        seed: of everything drawn.
        said: every trial with its verdict.
        probes: check id to result, of the probes.
        left_out: reason to number of what could not be tried.
        policy: thresholds and severities.
        methods: check id to the digest of what answers for it.
    """

    name: str
    verifier_id: str
    kind: VerifierKind
    bundle_ids: tuple[str, ...]
    seed: int
    said: tuple[Said, ...]
    probes: Mapping[str, CheckResult]
    left_out: Mapping[str, int]
    policy: Policy
    methods: Mapping[str, str]

    def of(self, *sorts: str) -> list[Said]:
        """The trials of these sorts."""
        return [item for item in self.said if item.trial.sort in sorts]

    @cached_property
    def kill_score(self) -> float | None:
        """Share of the mutants that are rejected; one on which the verifier breaks is not killed. None without mutants."""
        mutants = self.of(*WRONG)
        return sum(item.verdict.passed is False for item in mutants) / len(mutants) if mutants else None

    @cached_property
    def false_positive_rate(self) -> Estimate:
        """Share of the mutants that pass, with the widest of its intervals; those on which the verifier breaks do not pass."""
        return _rate("false_positive_rate", [(item, item.verdict.passed is True) for item in self.of(*WRONG)], self.policy)

    @cached_property
    def false_negative_rate(self) -> Estimate:
        """Share of references and equivalent paths that do not pass, with the widest of its intervals."""
        return _rate("false_negative_rate", [(item, item.verdict.passed is not True) for item in self.of(*RIGHT)], self.policy)

    @cached_property
    def per_kind(self) -> dict[str, tuple[int, int]]:
        """Kind of mutant to how many were rejected and how many tried."""
        tried = Counter(item.trial.kind for item in self.of(*WRONG))
        killed = Counter(item.trial.kind for item in self.of(*WRONG) if item.verdict.passed is False)
        return {kind: (killed[kind], tried[kind]) for kind in sorted(tried)}

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """What it gets wrong among mutants and right ends, by falling number."""
        tried = Counter((item.trial.right, item.trial.kind) for item in self.of(*WRONG, *RIGHT))
        wrong: dict[tuple[bool, str, str], list[Said]] = {}
        for item in self.of(*WRONG, *RIGHT):
            if item.survives:
                wrongly = "undecided" if item.verdict.passed is None else "accepted" if item.lets_in else "rejected"
                wrong.setdefault((item.trial.right, item.trial.kind, wrongly), []).append(item)
        found = [
            Gap(kind, wrongly, len(items), tried[right, kind], min((item.trial for item in items), key=_size))
            for (right, kind, wrongly), items in wrong.items()
        ]
        return tuple(sorted(found, key=lambda gap: (-gap.count, gap.kind)))

    @cached_property
    def results(self) -> dict[str, CheckResult]:
        """Check id to result: the scores, then the probes."""
        return {**{result.check_id: result for result in (self._kills(), self._accepts())}, **self.probes}

    @property
    def inputs_digest(self) -> str:
        """Hex SHA-256 over the tasks, the seed and every trial."""
        return digest([list(self.bundle_ids), self.seed, sorted(item.trial.trial_id for item in self.said)])

    def _kills(self) -> CheckResult:
        score, least = self.kill_score, float(self.policy.thresholds["kill_score"])
        if score is None:
            return CheckResult("verifier_kill_score", "skip", "no mutant ends in another material state, so nothing is known")
        gaps = [gap for gap in self.gaps if not gap.example.right]
        surviving = {gap.kind: f"{gap.count}/{gap.of}" for gap in gaps}
        measured = {"score": round(score, 4), "mutants": len(self.of(*WRONG)), "surviving": surviving}
        if score >= least:
            return CheckResult("verifier_kill_score", "pass", measured=measured)
        alive = sum(gap.count for gap in gaps)
        reason = f"{alive} of {len(self.of(*WRONG))} mutants survive, score {score:.3f}, needed {least}: "
        evidence = [{"kind": gap.kind, "wrongly": gap.wrongly, "task": gap.example.task} for gap in gaps[:_SHOWN]]
        return CheckResult(
            "verifier_kill_score", "fail", reason + ", ".join(gap.kind for gap in gaps[:_SHOWN]), measured, evidence,
            "add a condition that the survivors break", fault="false_accept",
        )  # fmt: skip

    def _accepts(self) -> CheckResult:
        right, least = self.of("equivalent"), float(self.policy.thresholds["accepted_equivalents"])
        if not right:
            return CheckResult("verifier_equivalent_paths", "skip", "no other path to the reference's end was found")
        accepted = sum(item.verdict.passed is True for item in right)
        measured = {"paths": len(right), "accepted": accepted}
        if accepted / len(right) >= least:
            return CheckResult("verifier_equivalent_paths", "pass", measured=measured)
        gaps = [gap for gap in self.gaps if gap.example.right]
        reason = f"{len(right) - accepted} of {len(right)} right paths are refused: {', '.join(gap.kind for gap in gaps[:_SHOWN])}"
        evidence = [{"kind": gap.kind, "task": gap.example.task} for gap in gaps[:_SHOWN]]
        remedy = "compare end states and not the way there"
        return CheckResult("verifier_equivalent_paths", "fail", reason, measured, evidence, remedy, fault="false_reject")


def audit_verifier(
    audited: Audited, world: World[Any], bundles: Sequence[Bundle], policy: Policy, *, seed: int = 0, mutants: int = MUTANTS,
    progress: Callable[[int], None] = lambda _: None,
) -> VerifierAudit:  # fmt: skip
    """What comes of trying a verifier version on tasks of one world. Nothing is recorded.

    Args:
        bundles: the tasks; those that the verifier cannot judge show as undecided.
        policy: of verifiers, with thresholds.
        seed: of everything drawn.
        mutants: most of one task.
        progress: called with the number of tasks done since the last call.
    """
    run = run_of(audited.verifier.call, world.material)
    said, left_out = list[Said](), Counter[str]()
    for bundle in bundles:
        made = Trials(bundle, world, seed=seed, mutants=mutants)
        said += [Said(trial, run(trial.artefact)) for trial in made.all]
        left_out.update(made.left_out)
        progress(1)
    others = {name: run_of(judge, world.material) for name, judge in audited.others.items()}
    subject = ProbeSubject(audited.verifier.ref.name, audited.kind, [item.trial for item in said], [item.verdict for item in said], others)
    bound = [item for name in probes.names() if known(item := probes.bind(name), policy)]
    return VerifierAudit(
        audited.verifier.ref.name, audited.verifier.ref.method_id, audited.kind, tuple(bundle.bundle_id for bundle in bundles), seed,
        tuple(said), probed(bound, subject, run, seed=seed), dict(left_out), policy, _methods(bound),
    )  # fmt: skip


def known(bound: Bound[Probe], policy: Policy) -> bool:
    """Whether the policy says what a failure of a probe means."""
    ids: tuple[str, ...] = getattr(bound.call, "func", bound.call).__dict__.get("check_ids", ())
    return bool(ids) and set(ids) <= policy.severity.keys()


def drawn(tasks: Sequence[Task], count: int | None, *, seed: int) -> list[Task]:
    """So many of the tasks, evenly drawn, in their own order; all when None."""
    if count is None or count >= len(tasks):
        return list(tasks)
    taken = set(Random(f"bundles/{seed}").sample(range(len(tasks)), count))
    return [task for number, task in enumerate(tasks) if number in taken]


def _methods(bound: Sequence[Bound[Probe]]) -> dict[str, str]:
    return {name: item.ref.method_id for item in bound for name in getattr(item.call, "func", item.call).__dict__["check_ids"]}


def _rate(name: str, counted: Sequence[tuple[Said, bool]], policy: Policy) -> Estimate:
    rows = [{"passed": float(flag), "bundle": item.trial.bundle_id} for item, flag in counted]
    found = success_rate(Table.of(rows, ("passed", "bundle")), level=float(policy.thresholds["level"]))[0]
    return Estimate(**{**vars(found), "name": name})


def _size(trial: Trial) -> tuple[int, str]:
    return len(trial.artefact.trace), trial.trial_id
