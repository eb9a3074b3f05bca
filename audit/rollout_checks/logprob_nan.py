"""Log-probabilities of samples are finite numbers up to zero. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import with_tokens
from audit.rollout_checks._faults import Fault, found, skipped


@answers("logprob_nan")
def logprob_nan(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether every stored log-probability is finite and not above zero by more than `logprob_above`, and rows lost none that was stored.

    A sample without any log-probability is no failure here: rows say so and objectives that need ratios refuse it.

    Source: case C11.
    """
    faults, looked = [], 0
    given: set[str] = set()
    ids = {call.call_id: call.answered_id for call in subject.calls}
    for call, answered, tokens in with_tokens(subject):
        if tokens.logprobs is None:
            continue
        looked += 1
        wrong = np.flatnonzero(~np.isfinite(tokens.logprobs) | (tokens.logprobs > float(policy["logprob_above"])))
        if len(wrong):
            seen = {"call": answered.index, "token": int(wrong[0]), "logprob": str(tokens.logprobs[wrong[0]]), "tokens": len(wrong)}
            faults.append(Fault(seen, (call.answered_id,)))
        else:
            given.add(call.call_id)
    for row in subject.built.rows:
        for n, call_id in enumerate(row.call_ids):
            if call_id in given and len(row.logprob_T) == len(row.step_T) and np.isnan(row.logprob_T[row.step_T == n]).any():
                faults.append(Fault({"row": row.index, "lost_of_call": call_id}, (ids[call_id],)))
    if not looked:
        return skipped("logprob_nan", "no call of the rollout has log-probabilities")
    return [
        found(
            "logprob_nan", faults, why="a log-probability is no number up to 0", kind="logprobs_filled", measured={"calls": looked},
            remedy="flag the row, and keep it out of ratios",
        )
    ]  # fmt: skip
