"""How many rollouts of the batch did something else than the policy fail?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped

FAULT_OF = {
    "env_failed": "world_crashed",
    "harness_failed": "harness_crashed",
    "verifier_failed": "verifier_crashed",
    "aborted": "engine_failed",
}


@answers("env_failure_rate")
def env_failure_rate(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Share of the batch's rollouts that environment, harness, verifier or engine failed, against a ceiling and against earlier rounds.

    Source: case A2: 91.6 % of the rollouts of twenty steps failed in their reset.
    """
    mine = [known for name, known in subject.known.items() if name in subject.row_of or name in subject.excluded]
    if not subject.judged or not mine:
        return skipped("env_failure_rate", "no reward shapes this update" if not subject.judged else "no rollout of the batch is here")
    broken = [known for known in mine if known.outcome in FAULT_OF]
    share, usual = len(broken) / len(mine), float(np.mean(subject.past_failed)) if subject.past_failed else None
    jumped = usual is not None and share > usual + policy["env_failure_jump"]
    kinds = Counter(known.outcome for known in broken)
    faults = [{"share": share, "before": usual, "most": policy["env_failure_most"], "outcomes": dict(kinds)}]
    alarm = len(broken) >= policy["env_failure_least"] and (jumped or share > policy["env_failure_most"])
    kind = kinds.most_common(1)[0][0] if kinds else "env_failed"
    return said(
        "env_failure_rate",
        faults if alarm else [],
        why="many rollouts failed for reasons other than the policy",
        remedy="repair what fails before training goes on",
        fault=FAULT_OF[kind],
        events=evidence(subject, [known.rollout_id for known in broken]),
        share=share,
        rollouts=len(mine),
        before=usual,
    )
