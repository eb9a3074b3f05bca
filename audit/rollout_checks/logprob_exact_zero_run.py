"""Log-probabilities of exactly zero come singly among other sure tokens, not as the filling of a list. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import temperature, with_tokens
from audit.rollout_checks._faults import Fault, found, skipped
from ledger.token_calls import Logprobs


@answers("logprob_exact_zero_run")
def logprob_exact_zero_run(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether samples that are zero throughout, and the longest run of zeros at the end of another one, are too many to be sure tokens.

    A sure token is exactly 0 in float32 now and then, so a zero proves nothing. How often, the rollout's other tokens say: of those above
    `sure_logprob`, a share p is exactly 0, (zeros + 1) / (sure + `zero_prior`). n zeros by chance have probability p ** n, and a failure
    is one below `zero_chance` with at least `zero_run_least` zeros. A filled list is filled to its end, so runs within a sample do not
    count; the last token of a sample, the end of a turn, is left out, since it is sure in any policy; so are samples at temperature 0.

    Source: cases C9, C11.
    """
    samples = [
        (call.answered_id, answered.index, tokens.logprobs[:-1])
        for call, answered, tokens in with_tokens(subject)
        if tokens.logprobs is not None and len(tokens.logprobs) > 1 and temperature(answered) > 0
    ]
    if not samples:
        return skipped("logprob_exact_zero_run", "no sample above temperature 0 has two log-probabilities")
    runs = [_zeros_at_end(logprobs) for _, _, logprobs in samples]
    whole = [n for n, (_, _, logprobs) in enumerate(samples) if runs[n] == len(logprobs)]
    tail = max((n for n in range(len(samples)) if n not in whole), key=lambda n: runs[n], default=None)
    taken = [*whole, *([] if tail is None or not runs[tail] else [tail])]
    others = [logprobs[: len(logprobs) - (runs[n] if n in taken else 0)] for n, (_, _, logprobs) in enumerate(samples)]
    zeros = sum(int((part == 0).sum()) for part in others)
    sure = sum(int((part > float(policy["sure_logprob"])).sum()) for part in others)
    share = min(1.0, (zeros + 1) / (sure + float(policy["zero_prior"])))
    run = sum(runs[n] for n in taken)
    failed = run >= int(policy["zero_run_least"]) and run * math.log(share) < math.log(float(policy["zero_chance"]))
    faults = [Fault({"call": samples[n][1], "zeros": runs[n], "of": len(samples[n][2])}, (samples[n][0],)) for n in taken if failed]
    return [
        found(
            "logprob_exact_zero_run", faults, why=f"{run} log-probabilities of exactly 0, of which chance explains few",
            remedy="refuse a list that is shorter than the ids, and never fill it with zeros", kind="logprobs_filled",
            measured={"zeros_in_runs": run, "other_zeros": zeros, "other_sure": sure, "share": share},
        )
    ]  # fmt: skip


def _zeros_at_end(logprobs: Logprobs) -> int:
    other = np.flatnonzero(logprobs != 0)
    return len(logprobs) if len(other) == 0 else len(logprobs) - 1 - int(other[-1])
