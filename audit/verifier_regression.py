"""Counterexamples of a verifier: proposed by audits, decided by people, asked of every later version. Reads and writes the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from audit.results import CheckResult
from audit.verifier_audit import VerifierAudit
from audit.verifier_trials import artefact_of, run_of
from ledger.canonical import parse
from ledger.errors import InvalidEvent, UnknownId
from ledger.evaluated import of_kind
from ledger.events import ArtifactPromoted, ArtifactProposed
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.store import New
from training.verifiers import Judge
from training.worlds import World

COUNTEREXAMPLE = "counterexample"


@dataclass(frozen=True)
class Counterexample:
    """An end that a version of a verifier judged wrongly.

    Attributes:
        verifier: name of the verifier.
        kind: what was done.
        right: the label.
        found_in: id of the version that got it wrong.
        state: proposed, approved or refused.
        content: JSON with what the verifier is shown, what was said of it, and who gave the label.
    """

    artifact_id: str
    verifier: str
    kind: str
    task: str
    right: bool
    found_in: str
    state: Literal["proposed", "approved", "refused"]
    content: Mapping[str, Any]
    event_id: str = ""


def parent_of(verifier: str) -> str:
    """The stream that a verifier's counterexamples extend, whatever its version."""
    return f"verifier-name-{verifier}"


def proposals(ledger: LedgerHandle, found: VerifierAudit, *, evidence_event_ids: Sequence[str] = ()) -> list[New]:
    """Events that propose the smallest end of each gap as a counterexample; proposing one again is the same event.

    Args:
        evidence_event_ids: events that show what was tried, such as the verifier's registration.
    """
    events = []
    for gap in found.gaps:
        trial = gap.example
        content = {
            "verifier": found.name, "found_in": found.verifier_id, "kind": gap.kind, "right": trial.right, "wrongly": gap.wrongly,
            "labelled_by": trial.labelled_by, "task": trial.task, "bundle_id": trial.bundle_id, "world": trial.artefact.draft.world,
            "artefact": trial.artefact.as_json(),
        }  # fmt: skip
        blob = ledger.pending_json(content)
        body = ArtifactProposed(
            artifact_id=derived_id(COUNTEREXAMPLE, parent_of(found.name), gap.kind, trial.trial_id, found.verifier_id),
            artifact_kind=COUNTEREXAMPLE, parent=parent_of(found.name), content=blob.ref, proposer="audit.verifier_audit",
            evidence_event_ids=list(evidence_event_ids),
        )  # fmt: skip
        events.append(ledger.new(body, blob))
    return events


def counterexamples(ledger: LedgerHandle, verifier: str | None = None) -> list[Counterexample]:
    """All counterexamples, or those of one verifier by its name, in the order in which they were proposed."""
    decided = {body.artifact_id: body for event in of_kind(ledger, "ArtifactPromoted") if isinstance(body := event.body, ArtifactPromoted)}
    found = []
    for event in of_kind(ledger, "ArtifactProposed"):
        body = event.body
        if not isinstance(body, ArtifactProposed) or body.artifact_kind != COUNTEREXAMPLE:
            continue
        if verifier is not None and body.parent != parent_of(verifier):
            continue
        content, decision = parse(ledger.blob(body.content.blob_id)), decided.get(body.artifact_id)
        state: Literal["proposed", "approved", "refused"] = (
            "proposed" if decision is None else "approved" if decision.promoted else "refused"
        )
        found.append(Counterexample(
            body.artifact_id, content["verifier"], content["kind"], content["task"], content["right"], content["found_in"], state, content,
            event.event_id,
        ))  # fmt: skip
    return found


def decide(ledger: LedgerHandle, artifact_id: str, *, promoted: bool, reason: str, decided_by: str) -> None:
    """Record what a person decides about a counterexample; the decision stands.

    Args:
        decided_by: pseudonym of the person.
    Raises:
        UnknownId: there is no such counterexample.
        InvalidEvent: no reason is given.
        IdempotencyConflict: it was decided otherwise before.
    """
    if not reason.strip():
        raise InvalidEvent("a decision without a reason; say in a sentence what shows it")
    if artifact_id not in {item.artifact_id for item in counterexamples(ledger)}:
        raise UnknownId(f"no counterexample {artifact_id!r} in project {ledger.project!r}")
    blob = ledger.pending(reason.strip(), subject_id=f"actor:{decided_by}")
    body = ArtifactPromoted(artifact_id=artifact_id, promoted=promoted, decided_by=decided_by, reason=blob.ref)
    ledger.append([ledger.new(body, blob, actor_id=decided_by)])


def resolved(ledger: LedgerHandle, prefix: str) -> str:
    """The one counterexample whose id begins so.

    Raises:
        UnknownId: none or several.
    """
    found = [item.artifact_id for item in counterexamples(ledger) if item.artifact_id.startswith(prefix)]
    if len(found) != 1:
        several = f"; it begins {', '.join(found[:5])}" if found else ""
        raise UnknownId(f"{len(found)} counterexamples begin with {prefix!r}; allowed: exactly one{several}")
    return found[0]


def regression(ledger: LedgerHandle, name: str, judge: Judge, world: World[Any]) -> list[CheckResult]:
    """One result for each approved counterexample of verifiers of this name; a skip when there is none.

    Args:
        name: of the verifier, whose every version must judge all of them rightly.
        judge: the version.
        world: whose ends they are.
    """
    run = run_of(judge, world.material)
    approved = [item for item in counterexamples(ledger, name) if item.state == "approved"]
    if not approved:
        return [CheckResult("verifier_regression", "skip", f"no counterexample of {name} is approved")]
    results = []
    for item in approved:
        verdict = run(artefact_of(item.content["artefact"]))
        label = "right" if item.right else "wrong"
        measured = {"artifact_id": item.artifact_id, "kind": item.kind, "label": label, "passed": verdict.passed}
        if verdict.passed is item.right:
            results.append(CheckResult("verifier_regression", "pass", measured=measured, evidence_event_ids=(item.event_id,)))
            continue
        said = "is undecided" if verdict.passed is None else "passes" if verdict.passed else "fails"
        results.append(CheckResult(
            "verifier_regression", "fail", f"approved counterexample {item.artifact_id[:12]}, {item.kind} of {item.task}, {said} again",
            measured, item.content.get("artefact", {}).get("trace"), "repair the condition that it breaks", (item.event_id,),
            fault="false_reject" if item.right else "false_accept",
        ))  # fmt: skip
    return results


def combined(results: Sequence[CheckResult]) -> CheckResult:
    """All results of the regression set as one: a pass only when every counterexample passes."""
    failed = [result for result in results if result.status != "pass"]
    if not failed:
        return CheckResult("verifier_regression", "pass", measured={"counterexamples": len(results), "failed": 0})
    if failed[0].status == "skip":
        return failed[0]
    ids = tuple(event_id for result in failed for event_id in result.evidence_event_ids)
    measured = {"counterexamples": len(results), "failed": len(failed), "ids": [str(result.measured["artifact_id"]) for result in failed]}
    return CheckResult("verifier_regression", "fail", failed[0].reason, measured, None, failed[0].remedy, ids, fault=failed[0].fault)
