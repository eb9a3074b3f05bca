"""Gaps in what was captured of a rollout, each with a code. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from audit.rollout_subject import RolloutSubject, SeenCall

GAPS: Mapping[str, str] = MappingProxyType({
    "answer_missing": "a model call was sent and no answer to it is recorded",
    "intent_missing": "an answer is recorded and not the call that it answers",
    "answer_interrupted": "the answer ended early: upstream error, time-out, abort or interruption",
    "capture_mismatch": "what the upstream returned does not fit together, so its tokens were not taken",
    "stream_incomplete": "a streamed answer has no end",
    "tokens_not_returned": "the upstream returns no token ids",
    "tokens_scripted": "a scripted policy samples no tokens",
    "tokens_not_stored": "the event commits to tokens and none are stored",
    "tokens_damaged": "stored tokens are not those that the event commits to",
    "logprobs_missing": "there are tokens and no log-probabilities",
    "versions_missing": "there are tokens and nothing says which weights sampled them",
    "usage_missing": "the upstream counted no tokens",
    "end_missing": "the rollout has begun and not ended",
    "states_missing": "no first or no last state is recorded",
    "times_missing": "nobody measured how long it took",
})  # fmt: skip
"""Code to what it means; `gaps` of an export holds codes."""


@dataclass(frozen=True)
class Gap:
    """One gap: its code, and the events at which it is."""

    code: str
    event_ids: tuple[str, ...]


def gaps_of(subject: RolloutSubject) -> tuple[Gap, ...]:
    """The gaps of a rollout in the order of `GAPS`; none where all that can be captured was."""
    found: dict[str, list[str]] = {}
    for call in subject.calls:
        for code in _of_call(call):
            found.setdefault(code, []).extend(call.event_ids)
    start = [event.event_id for event in subject.own[:1]]
    if subject.ended is None:
        found["end_missing"] = start
    elif subject.ended[1].wall_s is None:
        found["times_missing"] = [subject.ended[0]]
    if len(subject.snapshots) < (1 if subject.ended is None else 2):
        found["states_missing"] = [event_id for event_id, _ in subject.snapshots] or start
    return tuple(Gap(code, tuple(found[code])) for code in GAPS if code in found)


def _of_call(call: SeenCall) -> list[str]:
    answer = call.answered
    if answer is None:
        return ["answer_missing"]
    codes = ["intent_missing"] if call.sent is None else []
    if answer.status == "capture_mismatch":
        codes.append("capture_mismatch")
    elif answer.status != "completed":
        return [*codes, "answer_interrupted"]
    if answer.stream_complete is False:
        codes.append("stream_incomplete")
    if not answer.usage:
        codes.append("usage_missing")
    if answer.sampled_ids is None:
        return codes if answer.status != "completed" else [*codes, _without_tokens(answer.tokens_missing)]
    if call.token_fault is not None:
        codes.append("tokens_damaged")
    elif call.tokens is None:
        codes.append("tokens_not_stored")
    codes += ["logprobs_missing"] if answer.logprobs is None else []
    return [*codes, "versions_missing"] if not answer.version_spans else codes


def _without_tokens(reason: str | None) -> str:
    return "tokens_scripted" if reason is not None and "scripted" in reason else "tokens_not_returned"
