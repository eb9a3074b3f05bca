"""The registered verifier versions with what their newest audits measured. Reads the ledger."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.canonical import parse
from ledger.evaluated import of_kind
from ledger.events import ArtifactPromoted, ArtifactProposed, CheckRan
from ledger.ledger import LedgerHandle
from ledger.verdict_pairs import registered_verifiers

DATASHEET = "verifier_datasheet"
"""Check id under which a whole datasheet is kept on the verifier's stream."""


@dataclass(frozen=True)
class VerifierLine:
    """A verifier version in one line.

    Attributes:
        kill_score, false_positive_rate, false_negative_rate, gaps: of the newest audit; None where it was never audited.
        open_counterexamples: proposed for verifiers of this name and not decided yet.
    """

    verifier_id: str
    name: str
    kind: str
    kill_score: float | None
    false_positive_rate: Mapping[str, Any] | None
    false_negative_rate: Mapping[str, Any] | None
    gaps: int | None
    open_counterexamples: int


def verifier_lines(ledger: LedgerHandle) -> list[VerifierLine]:
    """All registered versions, the newest first."""
    decided = {body.artifact_id for event in of_kind(ledger, "ArtifactPromoted") if isinstance(body := event.body, ArtifactPromoted)}
    waiting = Counter(
        body.parent
        for event in of_kind(ledger, "ArtifactProposed")
        if isinstance(body := event.body, ArtifactProposed) and body.artifact_id not in decided
    )
    lines = []
    for verifier_id, body in reversed(registered_verifiers(ledger).items()):
        sheet = recorded(ledger, verifier_id) or {}
        gaps = sheet.get("gaps")
        lines.append(VerifierLine(
            verifier_id, body.name, body.verifier_kind, sheet.get("kill_score"), sheet.get("false_positive_rate"),
            sheet.get("false_negative_rate"), None if gaps is None else len(gaps), waiting[f"verifier-name-{body.name}"],
        ))  # fmt: skip
    return lines


def recorded(ledger: LedgerHandle, verifier_id: str) -> Mapping[str, Any] | None:
    """The newest recorded datasheet of a version; None where it was never audited."""
    for event in reversed(ledger.read_stream(f"verifier-{verifier_id}")):
        body = event.body
        if isinstance(body, CheckRan) and body.check_id == DATASHEET and body.measured is not None:
            content: Mapping[str, Any] = parse(ledger.blob(body.measured.blob_id))
            return content
    return None
