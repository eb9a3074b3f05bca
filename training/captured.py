"""A rollout's model calls as rows and steps need them, from its events. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ledger.events import (
    EventBody,
    HistoryRewritten,
    ModelCallDispatched,
    ModelCalled,
    Participant,
    RolloutStarted,
    StateSnapshotted,
    ToolCalled,
)
from ledger.token_calls import TokenCall
from ledger.token_reading import Tokens
from training.rows import SampledTokens

_PLAIN: Mapping[str, tuple[float, ...]] = {
    "temperature": (1,), "top_p": (1,), "top_k": (0, -1), "min_p": (0,), "frequency_penalty": (0,), "presence_penalty": (0,),
    "repetition_penalty": (1,), "min_tokens": (0,),
}  # fmt: skip
"""Values that leave the model's distribution as it is; so does a parameter that is not there."""
_MASKS = ("logit_bias_count", "bad_words_count", "allowed_token_ids_count")


class Told(Protocol):
    """An event, whoever reads it."""

    @property
    def event_id(self) -> str:
        """Its id."""
        ...

    @property
    def body(self) -> EventBody:
        """Its body as its class of this release."""
        ...


@dataclass(frozen=True)
class Step:
    """What is known of the world around a model call.

    Attributes:
        state: digest before its first tool call; of a call without one, the state that it saw; empty where it is not known.
        error: class of the first of its tool calls that failed; empty without one.
    """

    state: str
    error: str


@dataclass(frozen=True, eq=False)
class Captured:
    """The model calls of a rollout.

    Attributes:
        started: its first event; None where it is not ordered yet.
        calls: those with tokens, by dispatch.
        steps: call id to its step.
        left_out: calls without tokens by reason.
        processed: how sampling differed from the plain distribution, such as `temperature 0.7 (raw_logprobs)`; sorted, empty where it
            did not.
    """

    started: RolloutStarted | None
    calls: tuple[SampledTokens, ...]
    steps: Mapping[str, Step]
    left_out: Mapping[str, int]
    processed: tuple[str, ...]


def captured_calls(events: Sequence[Told], tokens: Tokens) -> Captured:
    """The model calls of one rollout, with why others have no tokens.

    Args:
        events: of its stream, by position.
        tokens: of its calls, by event id.
    """
    bodies = [(event.event_id, event.body) for event in events]
    started = next((body for _, body in bodies if isinstance(body, RolloutStarted)), None)
    members = {} if started is None else {member.name: member for member in started.participants}
    asked = {body.call_id: body for _, body in bodies if isinstance(body, ModelCallDispatched)}
    answered = {body.call_id: (event_id, body) for event_id, body in bodies if isinstance(body, ModelCalled)}
    rewritten = _rewritten([body for _, body in bodies])
    left_out: Counter[str] = Counter()
    calls = []
    processed: set[str] = set()
    for event_id, called in answered.values():
        why = _without_tokens(called, event_id, tokens)
        if why is not None:
            left_out[f"left_out:{why}"] += 1
            continue
        intent = asked.get(called.call_id)
        differs = processing(called.sampling, called.logprobs_mode or "no logprobs")
        calls.append(_sampled(
            called, tokens.calls[event_id], members.get(called.participant), retry_of=None if intent is None else intent.retry_of,
            rewritten=rewritten.get(called.call_id), processed=bool(differs),
        ))  # fmt: skip
        processed.update(differs if calls[-1].trainable else ())
    left_out["left_out:no_answer"] = len(asked.keys() - answered.keys())
    left_out["unknown_participant"] = sum(call.participant not in members for call in calls)
    return Captured(
        started, tuple(sorted(calls, key=lambda call: (call.index, call.call_id))), _steps([body for _, body in bodies]),
        {name: count for name, count in left_out.items() if count}, tuple(sorted(processed)),
    )  # fmt: skip


def _without_tokens(called: ModelCalled, event_id: str, tokens: Tokens) -> str | None:
    if called.status != "completed":
        return called.status
    if event_id in tokens.shredded:
        return "shredded"
    held = tokens.calls.get(event_id)
    return "no_token_ids" if held is None or held.prompt is None or held.sampled is None else None


def _sampled(
    called: ModelCalled, held: TokenCall, member: Participant | None, *, retry_of: str | None, rewritten: str | None, processed: bool
) -> SampledTokens:
    assert held.prompt is not None
    assert held.sampled is not None
    return SampledTokens(
        call_id=called.call_id, index=called.index, participant=called.participant, role=called.role, prompt_ids=held.prompt,
        sampled_ids=held.sampled, logprobs=held.logprobs, trainable=member is not None and member.trainable,
        model_versions=tuple(dict.fromkeys(span.model_version for span in called.version_spans)), retry_of=retry_of,
        finish_reason=called.finish_reason, rewritten=rewritten, logprobs_mode=called.logprobs_mode, processed=processed,
    )  # fmt: skip


def processing(sampling: Mapping[str, object], mode: str) -> list[str]:
    """How sampling differed from the plain distribution, each with the mode of the log-probabilities; empty where it did not."""
    differs = [f"{name} {value}" for name, value in sampling.items() if name in _PLAIN and value is not None and value not in _PLAIN[name]]
    differs += [name.removesuffix("_count") for name in _MASKS if sampling.get(name)]
    differs += ["guided"] if sampling.get("guided") else []
    return [f"{text} ({mode})" for text in differs]


def _rewritten(bodies: Sequence[object]) -> dict[str, str]:
    """Call id to the reason of the rewrite that went before it: the next call dispatched after it but for a summary's."""
    found: dict[str, str] = {}
    reason: str | None = None
    for body in bodies:
        if isinstance(body, HistoryRewritten):
            reason = body.reason
        elif isinstance(body, ModelCallDispatched) and body.role != "summary" and reason is not None:
            found[body.call_id], reason = reason, None
    return found


def _steps(bodies: Sequence[object]) -> dict[str, Step]:
    """Call id to its step; a call without tool calls saw the state that the last tool call before it left."""
    tools: dict[str, list[ToolCalled]] = {}
    saw: dict[str, str] = {}
    state = next((body.state for body in bodies if isinstance(body, StateSnapshotted) and body.step == 0), "")
    for body in bodies:
        if isinstance(body, ToolCalled):
            state = body.state_after
            if body.model_call_id is not None:
                tools.setdefault(body.model_call_id, []).append(body)
        elif isinstance(body, ModelCallDispatched):
            saw[body.call_id] = state
        elif isinstance(body, ModelCalled):
            saw.setdefault(body.call_id, state)
    steps = {}
    for call_id, seen in saw.items():
        mine = sorted(tools.get(call_id, ()), key=lambda tool: tool.index)
        error = next((tool.error_class for tool in mine if tool.error_class is not None), "")
        steps[call_id] = Step(mine[0].state_before if mine else seen, error)
    return steps
