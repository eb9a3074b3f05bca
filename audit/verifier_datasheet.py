"""The datasheet of a verifier version: who made its labels, how it agrees, what it gets wrong and how often, and how to measure it again.

Reads the ledger; `record` writes it.
"""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit import verifier_audit, verifier_mutants, verifier_trials
from audit.findings import LEVELS, Finding, raised
from audit.results import CheckResult, shown
from audit.verifier_agreement import agreements
from audit.verifier_audit import RIGHT, WRONG, VerifierAudit
from audit.verifier_list import DATASHEET
from audit.verifier_regression import Counterexample, combined, counterexamples, proposals
from ledger.canonical import digest
from ledger.errors import UnknownId
from ledger.events import CheckRan, VerifierRegistered
from ledger.ledger import LedgerHandle
from ledger.order import Recorded
from ledger.verdict_pairs import verdicts_given


@dataclass(frozen=True)
class Datasheet:
    """A datasheet as a JSON object, with its results by check id."""

    content: Mapping[str, Any]
    results: Mapping[str, CheckResult]
    levels: Mapping[str, str]

    @property
    def failing(self) -> list[str]:
        """Ids of failed checks that are errors, sorted."""
        return sorted(name for name, result in self.results.items() if result.status in ("fail", "error") and self.levels[name] == "error")


def datasheet(ledger: LedgerHandle, found: VerifierAudit, regression: Sequence[CheckResult], *, command: str) -> Datasheet:
    """The datasheet of an audit that was just made, with what the ledger holds of the version. Nothing is written.

    Args:
        regression: a result for each approved counterexample of verifiers of this name.
        command: that makes this datasheet again.
    """
    results = {**found.results, "verifier_regression": combined(regression)}
    agreed, calibrated = agreements(ledger, found.verifier_id)
    labels = Counter((item.trial.labelled_by, item.trial.sort) for item in found.said)
    fpr, fnr = found.false_positive_rate, found.false_negative_rate
    content = {
        "name": found.name, "verifier_id": found.verifier_id, "verifier_kind": found.kind, "policy": found.policy.name,
        "tasks": len(found.bundle_ids), "seed": found.seed, "position": ledger.barrier(), "command": command,
        "label_lineage": {
            "trials": [{"labelled_by": by, "sort": sort, "ends": count} for (by, sort), count in sorted(labels.items())],
            "verdicts": [vars(count) for count in verdicts_given(ledger, found.verifier_id)],
            "people": next((item.rollouts for item in agreed if item.other_id is None), 0),
            "programs": sum(item.rollouts for item in agreed if item.other_kind in ("program", "state_diff")),
            "judges": sum(item.rollouts for item in agreed if item.other_kind == "judge"),
        },
        "agreement": [item.as_json() for item in agreed],
        "calibration": [{"said": item.said, **item.estimate.as_json()} for item in calibrated],
        "calibration_note": "a verdict is passed or failed without a probability; it is calibrated by what people say of either"
        if calibrated else "no person decided a rollout that this version judged, so nothing is known of its calibration",
        "kill_score": found.kill_score, "mutants": len(found.of(*WRONG)), "right_ends": len(found.of(*RIGHT)),
        "undecided": sum(item.verdict.passed is None for item in found.of(*WRONG, *RIGHT)),
        "false_positive_rate": fpr.as_json(), "false_negative_rate": fnr.as_json(),
        "per_kind": {kind: {"rejected": killed, "of": tried} for kind, (killed, tried) in found.per_kind.items()},
        "gaps": [
            {"kind": gap.kind, "wrongly": gap.wrongly, "count": gap.count, "of": gap.of, "task": gap.example.task} for gap in found.gaps
        ],
        "counterexamples": [counterexample_json(item) for item in counterexamples(ledger, found.name)],
        "left_out": dict(found.left_out),
        "checks": [result.as_json() for result in results.values()],
    }  # fmt: skip
    levels = {name: LEVELS[found.policy.severity[name]] for name in results}
    return Datasheet(content, results, levels)


def counterexample_json(item: Counterexample) -> dict[str, Any]:
    """A counterexample in one line, without what the verifier is shown."""
    label = "right" if item.right else "wrong"
    return {"id": item.artifact_id, "kind": item.kind, "task": item.task, "label": label, "found_in": item.found_in, "state": item.state}


def record(ledger: LedgerHandle, found: VerifierAudit, sheet: Datasheet) -> int:
    """How many events were new: results of the checks, counterexamples to decide, findings, and the datasheet on the verifier's stream.

    Raises:
        UnknownId: the version is not registered here.
    """
    stream = f"verifier-{found.verifier_id}"
    registered = next((event for event in ledger.read_stream(stream) if isinstance(event.body, VerifierRegistered)), None)
    if registered is None:
        raise UnknownId(f"verifier {found.name} {found.verifier_id[:12]} is not registered in project {ledger.project!r}")
    proposed = proposals(ledger, found, evidence_event_ids=[registered.event_id])
    created = sum(item.created for item in ledger.append(proposed).events) if proposed else 0
    known = counterexamples(ledger, found.name)
    mine = [item for item in known if item.found_in == found.verifier_id]
    content = {**sheet.content, "counterexamples": [counterexample_json(item) for item in known]}
    events = []
    for name, result in sorted(sheet.results.items()):
        blob = ledger.pending_json(result.as_json())
        events.append(ledger.new(_ran(found, name, result.status, blob.ref, found.methods.get(name, _own(name))), blob))
    blob = ledger.pending_json(content)
    status = "fail" if sheet.failing else "pass"
    inputs = digest([found.inputs_digest, content["agreement"], content["counterexamples"], content["command"]])
    events.append(ledger.new(_ran(found, DATASHEET, status, blob.ref, _own(DATASHEET), inputs=inputs), blob))
    created += sum(item.created for item in ledger.append(events).events)
    return created + raised(ledger, _findings(found, sheet, registered, mine))


def _findings(found: VerifierAudit, sheet: Datasheet, registered: Recorded, mine: Sequence[Counterexample]) -> list[Finding]:
    findings = []
    for name, result in sheet.results.items():
        if result.status != "fail" or result.fault is None:
            continue
        side = [item.event_id for item in mine if item.right is (result.fault == "false_reject")]
        shows = side if result.fault in ("false_accept", "false_reject") else []
        ids = tuple(dict.fromkeys((registered.event_id, *result.evidence_event_ids, *shows)))
        findings.append(Finding(
            name, f"verifier-{found.verifier_id}", result.fault, result.reason, sheet.levels[name], ids,  # type: ignore[arg-type]
            shown(dict(result.measured)), found.methods.get(name, _own(name)),
        ))  # fmt: skip
    return findings


def _ran(found: VerifierAudit, name: str, status: str, measured: Any, method_id: str, *, inputs: str | None = None) -> CheckRan:
    return CheckRan(
        subject=f"verifier-{found.verifier_id}", check_id=name, method_id=method_id, status=status,  # type: ignore[arg-type]
        severity=found.policy.severity.get(name, "fail"), policy_id=found.policy.policy_id,
        inputs_digest=found.inputs_digest if inputs is None else inputs, measured=measured,
    )  # fmt: skip


def _own(name: str) -> str:
    """The id of what is no method of a family: a digest of its name and of the sources of the audit."""
    sources = [inspect.getsource(module) for module in (verifier_audit, verifier_trials, verifier_mutants)]
    return digest({"check": name, "sources": sources})
