"""Rollouts of a group are samples of their own. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import temperature, with_tokens
from audit.rollout_checks._faults import Fault, found, skipped

_ID = "identical_completions_in_group"
_SEEDS = 4


@answers(_ID)
def identical_completions_in_group(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a sibling sampled the very same tokens in all its calls although chance does so less often than `coincidence_chance`.

    A policy that is sure says the same again and again. The chance that another sample is the same is the product of the probabilities
    of all its tokens, which the log-probabilities state; times the number of siblings. Samples at temperature 0 are the same by intent.

    Source: case M3.
    """
    calls = [(call, answered, tokens) for call, answered, tokens in with_tokens(subject) if answered.sampled_ids is not None]
    if not calls or not any(one.sampled for one in subject.siblings):
        return skipped(_ID, "the rollout or its siblings have no tokens")
    if any(temperature(answered) == 0 or tokens.logprobs is None for _, answered, tokens in calls):
        return skipped(_ID, "a sample has no log-probabilities, or was taken at temperature 0")
    total = sum(float(tokens.logprobs.sum()) for _, _, tokens in calls if tokens.logprobs is not None)
    mine = tuple(answered.sampled_ids.commitment for _, answered, _ in calls if answered.sampled_ids is not None)
    same = [one for one in subject.siblings if one.sampled == mine]
    likely = total + math.log(len(subject.siblings)) >= math.log(float(policy["coincidence_chance"]))
    seeds = [answered.sampling.get("seed") for _, answered, _ in calls][:_SEEDS]
    ids = (*(call.answered_id for call, _, _ in calls), *(one.started_id for one in same))
    fault = Fault({"siblings_alike": [one.rollout_id for one in same], "logprob": total, "seeds": seeds}, ids)
    return [
        found(
            _ID, [] if likely or not same else [fault], why="two rollouts of a group are one sample", kind="seed_shared",
            remedy="derive the seed of each call from group, slot and call",
            measured={"siblings": len(subject.siblings), "alike": len(same), "logprob": total},
        )
    ]  # fmt: skip
