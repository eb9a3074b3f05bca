"""Log-probabilities are those of the distribution that was sampled from. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import completed, trainable
from audit.rollout_checks._faults import Fault, found, skipped
from training.captured import processing


@answers("raw_mode_with_temperature")
def raw_mode_with_temperature(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no trainable sample has `raw_logprobs` where temperature, top-p and the like changed the distribution.

    At temperature 1 without filters raw and processed are the same.

    Source: case E2.
    """
    may = trainable(subject)
    looked = [(call, body) for call, body in completed(subject) if may.get(body.participant) and body.logprobs_mode is not None]
    if not looked:
        return skipped("raw_mode_with_temperature", "no trainable sample has log-probabilities")
    faults = [
        Fault({"call": body.index, "mode": body.logprobs_mode, "sampling": differs}, (call.answered_id,))
        for call, body in looked
        if body.logprobs_mode == "raw_logprobs" and (differs := processing(body.sampling, "raw_logprobs"))
    ]
    return [
        found(
            "raw_mode_with_temperature", faults, why="raw log-probabilities of a changed distribution", kind="logprobs_mismatched",
            remedy="start the engine with logprobs_mode=processed_logprobs", measured={"samples": len(looked)},
        )
    ]  # fmt: skip
