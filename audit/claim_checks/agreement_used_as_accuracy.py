"""Agreement of a model with itself or with a judge is no accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged

ACCURACY = frozenset({"accuracy", "success", "correct", "correctness", "pass", "pass@1", "solved"})
AGREEMENT = frozenset({"majority", "vote", "agreement", "consistency", "pseudo", "self", "judge", "judges", "consensus"})


@answers("agreement_used_as_accuracy")
def agreement_used_as_accuracy(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a number that is called accuracy, success or correctness was taken against something that can be wrong in the same way.

    Reads the setting `truth`: what the answers were compared with.

    Source: Agent0 and the survey's reading rule P3, audit predicate AUD-01.
    """
    if not subject.words & ACCURACY:
        return [CheckResult("agreement_used_as_accuracy", "skip", f"{subject.metric} is not called an accuracy")]
    truth = subject.word("truth")
    if truth is None and subject.series == "measured":
        return [CheckResult("agreement_used_as_accuracy", "pass", measured={"truth": "the verdict that counts"})]
    if truth is None:
        return [CheckResult("agreement_used_as_accuracy", "skip", "what the answers were compared with is not stated: setting `truth`")]
    faults = [{"truth": truth, "metric": subject.metric}] if set(truth.replace("_", " ").replace("-", " ").split()) & AGREEMENT else []
    measured = {"truth": truth}

    return [
        judged(
            "agreement_used_as_accuracy",
            faults,
            why="an agreement is called an accuracy",
            remedy="call it agreement, or compare with an executable check or a person's label",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
