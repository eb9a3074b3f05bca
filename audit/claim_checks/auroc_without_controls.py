"""A ranking score may rank by depth and length alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged

CONTROLS = {"texture_only": "auroc:texture", "residual": "auroc:residual", "entropy_baseline": "auroc:entropy"}


@answers("auroc_without_controls")
def auroc_without_controls(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether an AUROC is stated beside that of depth and length, that of what is left without them, and that of token entropy.

    Reads the settings `texture_only`, `residual` and `entropy_baseline`, or the metrics `auroc:texture`, `auroc:residual` and
    `auroc:entropy` that were measured with it.

    Source: arXiv 2610.18614, texture control and token-entropy baseline; audit predicate AUD-42.
    """
    if not subject.words & {"auroc", "auc"} or ":" in subject.metric:
        return [CheckResult("auroc_without_controls", "skip", f"{subject.metric} is no AUROC of a score")]
    missing = [name for name, metric in CONTROLS.items() if subject.number(name) is None and metric not in subject.card]
    residual = subject.number("residual")
    faults: list[Any] = [{"missing": missing}] if missing else []
    if residual is not None and residual <= float(policy["residual_auroc_least"]):
        faults.append({"residual": residual, "needed": f"above {policy['residual_auroc_least']}"})
    measured = {"missing": missing, "residual": residual}

    return [
        judged(
            "auroc_without_controls",
            faults,
            why="the AUROC has no controls, or nothing is left with them",
            remedy="take audit.statistics auroc with depth, length and entropy",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
