"""A rollout that is scored has asked a model, which said who it is and what it counted. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import completed, scripted, started_id, trainable
from audit.rollout_checks._faults import Fault, found, skipped

_CALL, _USAGE, _MODEL = "no_model_call", "usage_null", "actual_model_null"
_POLICY_ENDS = ("finished", "token_limit", "turn_limit", "context_full", "wall_clock")


@answers(_CALL, _USAGE, _MODEL, explains=("reward_without_trace", "verdict_details_present", "finish_reason_vs_outcome"))
def zero_activity(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a rollout that counts as the policy's has an answered model call, with tokens where it may be trained on; whether each
    answer of a real model has a usage; whether each answer names the model that gave it.

    A rollout that world, harness or engine broke before the first answer, and that has no reward, says so itself. A script counts nothing.

    Source: cases A7, A17, A18.
    """
    if subject.ended is None:
        return [result for name in (_CALL, _USAGE, _MODEL) for result in skipped(name, "the rollout has not ended")]
    return [_calls(subject), *_usages(subject), *_models(subject)]


def _calls(subject: RolloutSubject) -> CheckResult:
    assert subject.ended is not None
    end_id, end = subject.ended
    answered = list(completed(subject))
    scored = [event_id for event_id, reward in subject.rewarded if reward.value is not None]
    faults, kind = [], "no_model_call"
    if not answered and (end.ended_by in _POLICY_ENDS or scored):
        faults.append(Fault({"ended_by": end.ended_by, "answered": 0, "rewards": len(scored)}, (started_id(subject), end_id, *scored)))
    mine = [(call, body) for call, body in answered if trainable(subject).get(body.participant)]
    if mine and all(body.sampled_ids is None for _, body in mine):
        kind = "capture_gap"
        seen = {"trainable_answers": len(mine), "with_tokens": 0, "missing": mine[0][1].tokens_missing}
        faults.append(Fault(seen, tuple(call.answered_id for call, _ in mine)))
    return found(
        _CALL, faults, why="a rollout of the policy holds nothing that it did", kind=kind, measured={"answered": len(answered)},
        remedy="end a rollout whose agent never started as the harness's failure, without a reward",
    )  # fmt: skip


def _usages(subject: RolloutSubject) -> Sequence[CheckResult]:
    real = [(call, body) for call, body in completed(subject) if not scripted(subject, body.participant)]
    if not real:
        return skipped(_USAGE, "no answer of a real model")
    faults = [
        Fault({"call": body.index, "usage": dict(body.usage)}, (call.answered_id,))
        for call, body in real
        if all(count is None for count in body.usage.values()) and body.sampled_ids is None
    ]
    return [
        found(
            _USAGE, faults, why="an answer states no usage and has no tokens", kind="credentials_missing", measured={"answers": len(real)},
            remedy="ask the provider once before a run: who answers without counting is no model",
        )
    ]  # fmt: skip


def _models(subject: RolloutSubject) -> Sequence[CheckResult]:
    said = [(call, body, subject.answer(call)) for call, body in completed(subject) if body.response is not None]
    said = [item for item in said if "model" in item[2]]
    if not said:
        return skipped(_MODEL, "no answer has a field `model`")
    faults = [
        Fault({"call": body.index, "model": answer["model"]}, (call.answered_id,))
        for call, body, answer in said
        if not isinstance(answer["model"], str) or not answer["model"].strip()
    ]
    return [
        found(
            _MODEL, faults, why="an answer names no model", kind="credentials_missing", measured={"answers": len(said)},
            remedy="ask the provider once before a run: who answers without a model's name is no model",
        )
    ]  # fmt: skip
