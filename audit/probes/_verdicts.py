"""What several probes need: verdicts compared, trials chosen, and both as evidence. Pure."""

from collections.abc import Sequence
from random import Random
from typing import Any

from audit.verifier_trials import Trial
from ledger.canonical import digest
from training.verifiers import Verdict


def statuses(verdict: Verdict) -> dict[str, str]:
    """Condition to status, with the error where the verification itself failed."""
    return {item.name: item.status for item in verdict.conditions} | ({} if verdict.error is None else {"error": verdict.error})


def verdict_digest(verdict: Verdict) -> str:
    """Hex SHA-256 over conditions with their evidence, side effects and error."""
    conditions = [[item.name, item.status, item.in_basis, item.evidence] for item in verdict.conditions]
    return digest([conditions, [dict(effect) for effect in verdict.side_effects], verdict.error], allow_nul=True)


def chosen(trials: Sequence[tuple[Trial, Verdict]], count: int, rng: Random | None) -> list[tuple[Trial, Verdict]]:
    """So many of the trials, half right and half wrong ones where there are any."""
    drawn = Random(0) if rng is None else rng
    right, wrong = [pair for pair in trials if pair[0].right], [pair for pair in trials if not pair[0].right]
    first = drawn.sample(right, min(len(right), -(-count // 2)))
    return first + drawn.sample(wrong, min(len(wrong), count - len(first)))


def shown(trial: Trial, verdict: Verdict, **more: Any) -> dict[str, Any]:
    """A trial with what was said of it, as evidence."""
    label = "right" if trial.right else "wrong"
    calls = [{"name": step.call.name, "arguments": dict(step.call.arguments)} for step in trial.artefact.trace]
    return {"kind": trial.kind, "task": trial.task, "label": label, "said": statuses(verdict), **more, "calls": calls}
