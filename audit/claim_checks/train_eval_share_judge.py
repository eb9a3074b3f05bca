"""Who judged or played the user in training cannot judge what came of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged

ROLES = ("judge", "simulated_user")


@answers("train_eval_share_judge")
def train_eval_share_judge(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether training and evaluation share a judge or a simulated user.

    Reads the settings `train.judge`, `eval.judge`, `train.simulated_user` and `eval.simulated_user`; `none` where there is none.

    Source: Live iOS, whose simulated user took part in both; audit predicate AUD-34.
    """
    known = {
        role: (subject.word(f"train.{role}"), subject.word(f"eval.{role}"))
        for role in ROLES
        if subject.word(f"train.{role}") is not None and subject.word(f"eval.{role}") is not None
    }
    if not known:
        return [CheckResult("train_eval_share_judge", "skip", "judge and simulated user of training and evaluation are not stated")]
    faults = [{"role": role, "in both": pair[0]} for role, pair in known.items() if pair[0] == pair[1] and pair[0] != "none"]
    measured = {role: list(pair) for role, pair in known.items()}

    return [
        judged(
            "train_eval_share_judge",
            faults,
            why="training and evaluation share one",
            remedy="evaluate with a judge and a user that took no part in training",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
