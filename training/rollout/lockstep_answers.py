"""Who answers the calls of a lock-step collection, a batch at a time: an engine that samples, or scripts that are played."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from ledger.errors import EngineFailed, SettingsError
from ledger.ids import Clock
from training.rollout.capture import TokenTrace
from training.rollout.completion import completion, refusal, too_long, trace_of
from training.rollout.gateway_record import CallFacts, CallResult
from training.rollout.gateway_stream import dumps
from training.rollout.gateway_upstream import Upstream
from training.rollout.sampling_calls import BatchedEngine, SampleRequest, settings_of
from training.rollout.scripted_tokens import prompt_ids, said, trace
from training.rollout.scripts import Reply, Scripts, Unscripted


@dataclass
class Spent:
    """What the batches of a collection were, and the seconds that they took by part.

    Attributes:
        batches, calls: number.
        prompt_tokens, cached_tokens, sampled_tokens: of all calls; cached ones were in the prompt and were not fed again.
        template_s: messages to token ids.
        decode_s: feeding and sampling.
        record_s: answers to events.
        commit_s: until the events were durable.
    """

    batches: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    template_s: float = 0.0
    decode_s: float = 0.0
    record_s: float = 0.0
    commit_s: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __str__(self) -> str:
        return ", ".join(
            f"{f.name} {value:.3f}" if isinstance(value := getattr(self, f.name), float) else f"{f.name} {value}" for f in fields(self)
        )


@dataclass(frozen=True)
class Answered:
    """What came of a call, and the seconds that it took."""

    result: CallResult
    latency_s: float = 0.0


class Answers(Protocol):
    """Answers calls in batches.

    Attributes:
        address: of the calls' upstream.
    """

    @property
    def address(self) -> str:
        """As `Upstream.base_url`."""
        ...

    def answer(self, calls: Sequence[CallFacts], spent: Spent) -> list[Answered]:
        """What came of each call, errors included; called in a thread of its own. `spent` counts what it took."""
        ...

    def release(self, rollout_id: str, participant: str) -> None:
        """Forget a conversation."""
        ...


class Sampled:
    """Answers that an engine in this process samples together."""

    def __init__(self, engine: BatchedEngine, *, clock: Clock, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.engine, self.address = engine, f"torch://{engine.engine_id}"
        self._clock, self._monotonic = clock, monotonic

    def answer(self, calls: Sequence[CallFacts], spent: Spent) -> list[Answered]:
        """What came of each call; all that are in order are one batch of the engine."""
        began = self._monotonic()
        asked = [self._request(facts) for facts in calls]
        ready = [request for request in asked if isinstance(request, SampleRequest)]
        prepared = self._monotonic()
        spent.template_s += prepared - began
        try:
            samples = iter(self.engine.sample(ready))
        except EngineFailed as error:
            failed = CallResult("upstream_error", 1, 500, "engine", error=refusal(str(error), status=500))
            return [Answered(failed if isinstance(request, SampleRequest) else request) for request in asked]
        sampled = self._monotonic()
        spent.decode_s += sampled - prepared
        answered: list[Answered] = []
        for facts, request in zip(calls, asked, strict=True):
            if isinstance(request, CallResult):
                answered.append(Answered(request))
                continue
            sample = next(samples)
            body = completion(
                self.engine, request, sample, model=facts.request.model, call_id=facts.call_id, created=int(self._clock().timestamp())
            )
            result = CallResult("completed", 1, 200, body=dumps(body), response=body, trace=trace_of(request, sample))
            answered.append(Answered(result, prepared - began + sample.seconds))
            spent.prompt_tokens += len(request.prompt)
            spent.cached_tokens += sample.cached
            spent.sampled_tokens += len(sample.ids)
        spent.record_s += self._monotonic() - sampled
        return answered

    def release(self, rollout_id: str, participant: str) -> None:
        """Forget a conversation's cached prefix."""
        self.engine.release(_key(rollout_id, participant))

    def _request(self, facts: CallFacts) -> SampleRequest | CallResult:
        """What to sample, or why nothing is."""
        body = facts.request.body
        try:
            settings = settings_of(body)
            if body.get("seed") is None:
                raise SettingsError("seed is missing; with keyed noise each call has one")
            prompt = self.engine.prompt_ids(body["messages"], body.get("tools") or ())
        except SettingsError as error:
            return CallResult("upstream_error", 1, 400, "engine", error=refusal(str(error)))
        if len(prompt) + settings.max_tokens > self.engine.context:
            refused = too_long(len(prompt), settings.max_tokens, self.engine.context)
            return CallResult("upstream_error", 1, 400, "engine", error=refused)
        return SampleRequest(_key(str(facts.rollout_id), facts.participant), prompt, int(body["seed"]), settings)


class Played:
    """Answers from scripts, as a scripted server gives them; with `tokens` as an engine does, with the ids of `scripted_tokens`."""

    def __init__(self, scripts: Scripts, *, tokens: bool = False, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.scripts, self.tokens, self._monotonic = scripts, tokens, monotonic
        self.address = "torch://scripted" if tokens else "scripted://here"

    def upstream(self, model_version: str) -> Upstream:
        """This as an upstream."""
        if self.tokens:
            return Upstream(self.address, model_version, kind="torch", logprobs_mode="processed_logprobs")
        return Upstream(self.address, model_version, kind="scripted")

    def answer(self, calls: Sequence[CallFacts], spent: Spent) -> list[Answered]:
        """What each call's script says."""
        answered = []
        for facts in calls:
            began = self._monotonic()
            result = self._result(facts)
            answered.append(Answered(result, self._monotonic() - began))
        spent.record_s += sum(one.latency_s for one in answered)
        return answered

    def release(self, rollout_id: str, participant: str) -> None:
        """Nothing is kept of a conversation; the collection itself forgets a rollout's script."""

    def _result(self, facts: CallFacts) -> CallResult:
        try:
            reply = self.scripts.reply(facts.rollout_id, facts.role, facts.request.raw)
        except Unscripted as error:
            return CallResult("upstream_error", 1, error.status, facts.upstream.error_source, error=error.body)
        trace = _traced(reply) if self.tokens else TokenTrace()
        return CallResult("completed", 1, 200, body=dumps(reply.response), response=reply.response, trace=trace)


def _traced(reply: Reply) -> TokenTrace:
    """The tokens of a scripted answer, which then counts them."""
    prompt = prompt_ids(reply.shown, reply.request.get("tools") or ())
    found = trace(prompt, said(reply.turn), ended=not reply.cut)
    usage = {"prompt_tokens": len(prompt), "completion_tokens": found.sampled_count}
    reply.response["usage"] = {**usage, "total_tokens": sum(usage.values())}
    return found


def _key(rollout_id: str, participant: str) -> str:
    return f"{rollout_id}/{participant}"
