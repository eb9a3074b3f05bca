"""Desk tasks, audits of verifiers over them and the audit's commands, as the tests of verifiers use them."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import typer

from audit.audit_command import audit
from audit.counterfactual_command import counterfactual
from audit.probes import ProbeSubject, probes
from audit.results import CheckResult
from audit.reverify_command import reverify
from audit.severity import load_policy
from audit.verifier_audit import Audited, VerifierAudit, audit_verifier
from audit.verifier_trials import Trial, Trials, run_of
from ledger.bundle import Bundle, BundleDraft
from ledger.ledger import LedgerHandle
from ledger.methods import Bound, MethodRef
from ledger.settings import Settings
from training.verifiers import Condition, Judge, JudgeTask, TraceStep, Verdict, verifiers
from training.worlds.source import VerifierKind
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.synthesis import tasks

DESK = TicketDesk()
POLICY = load_policy("v1", kind="verifier")
PLANTED = ("desk_without_cooldown", "desk_without_side_effects", "desk_any_mail")


def bundle(draft: BundleDraft, verifier: str = "desk_conditions") -> Bundle:
    """The draft as a bundle that nobody sealed."""
    return Bundle(draft, DESK.version, verifiers.bind(verifier).ref.method_id, "0" * 64)


@lru_cache(maxsize=4)
def drafts(count: int, *, seed: int = 3, level: int | None = None) -> tuple[BundleDraft, ...]:
    """Tasks of the desk: of the plain rule, or of families at a level."""
    return tuple(generate(count, seed=seed) if level is None else tasks(count, seed, level=level))


@lru_cache(maxsize=4)
def trials(count: int = 3, *, level: int | None = None) -> tuple[Trial, ...]:
    """All trials of some tasks."""
    return tuple(trial for draft in drafts(count, level=level) for trial in Trials(bundle(draft), DESK).all)


def bound(judge: Judge, name: str = "own") -> Bound[Judge]:
    """A verifier that a test makes up."""
    return Bound(judge, MethodRef("tests", name, {}, "0" * 64), "source")


def audited(
    verifier: str | Judge, *, count: int = 3, seed: int = 0, level: int | None = None, kind: VerifierKind = "program"
) -> VerifierAudit:
    """The audit of a verifier by name, or of a function."""
    made = verifiers.bind(verifier) if isinstance(verifier, str) else bound(verifier)
    return audit_verifier(Audited(made, kind), DESK, [bundle(draft) for draft in drafts(count, level=level)], POLICY, seed=seed)


def probe(
    name: str, judge: Judge, *, kind: VerifierKind = "program", others: Mapping[str, Judge] | None = None, sorts: Sequence[str] = (),
    **params: Any,
) -> dict[str, CheckResult]:  # fmt: skip
    """The results of one probe of a judge over two tasks, by id."""
    run = run_of(judge, DESK.material)
    tried = [trial for trial in trials(2) if not sorts or trial.sort in sorts]
    beside = {other: run_of(made, DESK.material) for other, made in (others or {}).items()}
    subject = ProbeSubject("own", kind, tried, [run(trial.artefact) for trial in tried], beside)
    return {result.check_id: result for result in probes.bind(name, **params).call(subject, run)}


def says(passes: Callable[[Any, Any, Sequence[TraceStep], JudgeTask], bool], *, evidence: Any = None) -> Judge:
    """A verifier of one condition that asks a function."""

    def judge(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
        return Verdict((Condition("C", "passed" if passes(s0, s_end, trace, task) else "failed", evidence),))

    return judge


def sound(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The desk's own verifier."""
    return verifiers["desk_conditions"](s0, s_end, trace, task)


def tally(ledger: LedgerHandle, *arguments: str) -> int:
    """Exit code of a command line of the audits; a TallyError is raised."""
    app = typer.Typer()
    app.add_typer(audit, name="audit")
    app.command("reverify")(reverify)
    app.command("counterfactual")(counterfactual)
    settings = Settings(database_url=ledger.url, project=ledger.project)
    return int(app(list(arguments), obj=settings, standalone_mode=False) or 0)
