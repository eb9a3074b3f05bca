"""Is nothing trained that something else than the policy failed?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped
from audit.update_subject import NO_EVIDENCE


@answers("failed_attempt_trained", explains=("masked_row_votes", "adv_recompute", "weight_shares"))
def failed_attempt_trained(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """No rollout is in the loss that was aborted, superseded, failed by its environment, verifier or harness, or never judged.

    Without rewards, as in imitation, a rollout that nobody judged may be trained on.

    Source: case A8: the tokens of a failed attempt appear in a training batch; G2 for superseded ones.
    """
    mine = [name for name in subject.trained if name in subject.known]
    if not mine:
        return skipped("failed_attempt_trained", "no rollout in the loss is here")
    allowed = () if subject.judged else ("unknown",)
    faults = [
        {"rollout": name, "outcome": known.outcome, "ended_by": known.ended_by, "superseded": known.superseded}
        for name in mine
        if ((known := subject.known[name]).outcome in NO_EVIDENCE and known.outcome not in allowed) or known.superseded
    ]
    return said(
        "failed_attempt_trained", faults, why="a failed attempt is in the loss", remedy="exclude it with its outcome as the reason",
        fault="failed_attempt_trained", events=evidence(subject, [str(fault["rollout"]) for fault in faults]), trained=len(mine),
    )  # fmt: skip
