"""Rollouts as subjects of checks, made of real events without a database; each part is given, and healthy where it is not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from audit.results import CheckResult
from audit.rollout_audit import checks_named
from audit.rollout_subject import RolloutSubject, SeenCall, Sibling
from audit.run import run_checks
from audit.severity import load_policy
from ledger.attribution_view import Evidence
from ledger.canonical import canonical_bytes, digest
from ledger.decoders import Decoder
from ledger.events import (
    BlobRef,
    EventBody,
    GroupDispatched,
    HarnessRegistered,
    ModelCallDispatched,
    ModelCalled,
    Participant,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    StateSnapshotted,
    ToolCalled,
    VerdictGiven,
    VersionSpan,
)
from ledger.events.model_call import TokenArray
from ledger.events.verdict import ConditionResult
from ledger.lineage import calls_digest
from ledger.token_calls import IDS, LOGPROBS, TokenCall
from ledger.token_reading import Tokens
from training.captured import captured_calls
from training.row_builder import build_rows

POLICY = load_policy("v1", kind="rollout")
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def state(name: object) -> str:
    """The digest of a state."""
    return digest({"state": str(name)})


@dataclass(frozen=True)
class Call:
    """A model call and what is done for its answer; `called` and `sent` replace fields of its two events."""

    prompt: Sequence[int] = ()
    sampled: Sequence[int] = ()
    logprobs: Sequence[float] | None = None
    content: str = ""
    tool_calls: Sequence[tuple[str, str]] = ()
    text: str | None = None
    finish: str = "stop"
    request: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] = field(default_factory=dict)
    called: Mapping[str, Any] = field(default_factory=dict)
    sent: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tool:
    """A tool call; `by` is the number of the model call that asked for it."""

    name: str = "list_tickets"
    sampled: str = "{}"
    parsed: Any = field(default_factory=dict)
    by: int | None = 0
    error: str | None = None
    before: str = "0"
    after: str = "0"
    fields: Mapping[str, Any] = field(default_factory=dict)


HEALTHY = (
    Call([9, 1, 2, 3], [4, 5, 6], [-0.5, -0.25, -0.01], tool_calls=[("list_tickets", "{}")], finish="tool_calls"),
    Call([9, 1, 2, 3, 4, 5, 6, 7], [8, 6], [-0.5, -0.01], content="Done."),
)
"""Two turns: a reading call, then the answer; each prompt goes on from what was sampled."""


class Made:
    """A rollout under construction, an event at a time."""

    def __init__(self) -> None:
        self.events: list[Evidence] = []
        self.blobs: dict[str, bytes] = {}

    def blob(self, value: Any) -> BlobRef:
        """A blob of bytes, text or JSON."""
        data = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else json.dumps(value).encode()
        name = digest({"blob": data.hex()})
        self.blobs[name] = data
        return BlobRef(blob_id=name, size=len(data), media="application/json")

    def event(self, body: EventBody, *, late_s: float = 0.0) -> Evidence:
        """One more event."""
        kind, n = type(body).__name__, len(self.events)
        event_id = f"00000000-0000-8000-8000-{n:012d}"
        made = Evidence(
            event_id, body.stream(), n, kind, body.schema_version, _BEGAN + timedelta(seconds=n + late_s), canonical_bytes(body.model_dump())
        )  # fmt: skip
        self.events.append(made)
        return made


def rollout(
    calls: Sequence[Call] = HEALTHY,
    tools: Sequence[Tool] = (Tool(),),
    *,
    started: Mapping[str, Any] | None = None,
    member: Mapping[str, Any] | None = None,
    ended: Mapping[str, Any] | None = None,
    group: Mapping[str, Any] | None = None,
    verdicts: Sequence[Mapping[str, Any]] = ({},),
    rewards: Sequence[Mapping[str, Any]] = ({},),
    reward_first: bool = False,
    after_end: Sequence[EventBody] = (),
    before: Sequence[EventBody] = (),
    states: tuple[str, str] | None = None,
    siblings: Sequence[Sibling] = (),
    decode: Decoder | None = None,
    tool_format: str = "native",
    limits: Mapping[str, float] | None = None,
    running: bool = False,
) -> RolloutSubject:
    """A rollout with its events, tokens and rows; every mapping replaces fields of the event that it is named after."""
    made = Made()
    agent = Participant(**{
        "name": "agent", "role": "agent", "model_version": "tiny-1", "endpoint": "test", "sampling": {}, "trainable": True, **(member or {})
    })  # fmt: skip
    made.event(RolloutStarted(**{
        "rollout_id": "r", "group_id": "g", "bundle_id": "b" * 64, "slot": 0, "attempt": 1, "rollout_kind": "ordinary",
        "participants": [agent], "seed": 1, **(started or {}),
    }))  # fmt: skip
    first, last = states or (tools[0].before if tools else "0", tools[-1].after if tools else "0")
    _snapshot(made, 0, first)
    for body in before:
        made.event(body)
    held: dict[str, TokenCall] = {}
    told: list[Mapping[str, Any]] = [{"role": "user", "content": "Find the tickets."}]
    for n, call in enumerate(calls):
        told = _call(made, n, call, told, held)
        for index, tool in enumerate(tools):
            if tool.by == n:
                _tool(made, index, tool)
    for index, tool in enumerate(tools):
        if tool.by is None or tool.by >= len(calls):
            _tool(made, index, tool)
    if not running:
        _snapshot(made, len(tools) + 1, last)
        names = [f"c{n}" for n in range(len(calls))]
        made.event(RolloutEnded(**{
            "rollout_id": "r", "ended_by": "finished", "boundary": "policy", "reason": "answered", "model_calls": len(calls),
            "tool_calls": len(tools), "calls_digest": calls_digest(names), "wall_s": 2.0, "sampling_s": 0.2 * len(calls),
            "tool_s": 0.1 * len(tools), **(ended or {}),
        }))  # fmt: skip
    for body in after_end:
        made.event(body)
    own = tuple(made.events)
    heard = _heard(made, verdicts, rewards, state(last), reward_first)
    dispatched = made.event(GroupDispatched(**{
        "group_id": "g", "bundle_id": "b" * 64, "size": 4, "experiment_id": "e", "run_id": "run", "round": 0, "policy": "agent",
        "rollout_kind": "ordinary", **(group or {}),
    }))  # fmt: skip
    harness = HarnessRegistered(
        harness_id="f" * 64, name="loop", source=made.blob("x"), limits=dict(limits or {"wall_s": 60.0}), context_policy="append",
        tool_format=tool_format,
    )  # fmt: skip
    return RolloutSubject(
        rollout_id="r", own=own, group=dispatched, bundle=None, verdicts=tuple(e for e in heard if e.kind == "VerdictGiven"),
        rewards=tuple(e for e in heard if e.kind == "RewardDerived"), reviews=(), calls=_seen(own, held),
        built=build_rows("r", captured_calls(own, Tokens(calls=held)).calls), others=(), bytes_of=made.blobs.__getitem__, heard=heard,
        siblings=tuple(siblings), harness=harness, decode=decode,
    )  # fmt: skip


def _snapshot(made: Made, step: int, name: str) -> None:
    made.event(StateSnapshotted(rollout_id="r", step=step, state=state(name), view=made.blob({}), snapshot=made.blob(b"")))


def _call(made: Made, n: int, call: Call, told: list[Mapping[str, Any]], held: dict[str, TokenCall]) -> list[Mapping[str, Any]]:
    request = made.blob({"messages": list(told), "n": n, **call.request})
    base = {"call_id": f"c{n}", "rollout_id": "r", "index": n, "participant": "agent", "role": "agent"}
    made.event(ModelCallDispatched(**{
        **base, "request": request, "request_digest": request.blob_id, "upstream": "u", "model": "tiny", "stream_requested": False, **call.sent
    }))  # fmt: skip
    asked = [{"id": f"t{n}{m}", "function": {"name": name, "arguments": args}} for m, (name, args) in enumerate(call.tool_calls)]
    message: dict[str, Any] = {"role": "assistant", "content": call.content, **({"tool_calls": asked} if asked else {})}
    choice: dict[str, Any] = {"message": message, "finish_reason": call.finish}
    if call.text is not None:
        choice["logprobs"] = {"content": [{"token": call.text, "bytes": list(call.text.encode())}]}
    answer = made.blob({"id": f"chat-{n}", "model": "tiny", "choices": [choice], **call.answer})
    tokens = {
        "prompt_ids": _array(call.prompt), "sampled_ids": _array(call.sampled), "logprobs": _array(call.logprobs),
        "usage": {"prompt_tokens": len(call.prompt), "completion_tokens": len(call.sampled)}, "logprobs_mode": "processed_logprobs",
        "version_spans": [VersionSpan(model_version="tiny-1", start=0, end=len(call.sampled))],
    } if call.sampled else {"tokens_missing": "none"}  # fmt: skip
    event = made.event(ModelCalled(**{
        **base, "status": "completed", "response": answer, "finish_reason": call.finish, "attempts": 1, "latency_s": 0.2,
        "sampling": {"temperature": 1.0, "seed": 100 + n}, **tokens, **call.called,
    }))  # fmt: skip
    if call.sampled:
        logprobs = None if call.logprobs is None else np.array(call.logprobs, LOGPROBS)
        held[event.event_id] = TokenCall(event.event_id, np.array(call.prompt, IDS), np.array(call.sampled, IDS), logprobs)
    return [*told, message]


def _array(values: Sequence[float] | None) -> TokenArray | None:
    return None if values is None else TokenArray(count=len(values), commitment=digest({"array": [repr(value) for value in values]}))


def _tool(made: Made, index: int, tool: Tool) -> None:
    made.event(ToolCalled(**{
        "rollout_id": "r", "index": index, "turn": 0, "model_call_id": None if tool.by is None else f"c{tool.by}",
        "tool_call_id": f"t{index}", "name": made.blob(tool.name), "arguments_sampled": made.blob(tool.sampled),
        "arguments_parsed": None if tool.parsed is None else made.blob(tool.parsed), "result": made.blob("{}"), "error_class": tool.error,
        "state_before": state(tool.before), "state_after": state(tool.after), "latency_s": 0.1, **tool.fields,
    }))  # fmt: skip


def _heard(
    made: Made, verdicts: Sequence[Mapping[str, Any]], rewards: Sequence[Mapping[str, Any]], end: str, reward_first: bool
) -> tuple[Evidence, ...]:  # fmt: skip
    condition = ConditionResult(name="C1", status="passed", in_basis=True, evidence=None)
    judged = [VerdictGiven(**{
        "verdict_id": f"v{n}", "rollout_id": "r", "verifier_id": "a" * 64, "verifier_kind": "program", "role": "bundle",
        "status": "completed", "passed": True, "conditions": [condition], "side_effect_count": 0, "state_end": end, **given,
    }) for n, given in enumerate(verdicts)]  # fmt: skip
    rewarded = [RewardDerived(**{
        "reward_id": f"w{n}", "rollout_id": "r", "rule": "all_conditions", "rule_id": "c" * 64,
        "verdict_ids": [body.verdict_id for body in judged], "value": 1.0, "reason": "passed", **given,
    }) for n, given in enumerate(rewards)]  # fmt: skip
    bodies: list[EventBody] = [*rewarded, *judged] if reward_first else [*judged, *rewarded]
    return tuple(made.event(body) for body in bodies)


def _seen(own: Sequence[Evidence], held: Mapping[str, TokenCall]) -> tuple[SeenCall, ...]:
    sent = {body.call_id: (event.event_id, body) for event in own if isinstance(body := event.body, ModelCallDispatched)}
    answered = {body.call_id: (event.event_id, body) for event in own if isinstance(body := event.body, ModelCalled)}
    calls = []
    for call_id in dict.fromkeys([*sent, *answered]):
        asked_id, asked = sent.get(call_id, (None, None))
        given_id, given = answered.get(call_id, (None, None))
        calls.append(SeenCall(call_id, asked, asked_id, given, given_id, held.get(given_id or "")))
    return tuple(calls)


# A test asks for few checks, and binding one reads all of its source.
@lru_cache
def _bound(check_id: str) -> tuple[Any, ...]:
    return checks_named([check_id], POLICY)


def checked(subject: RolloutSubject, check_id: str) -> CheckResult:
    """The result of one check; a failure names a kind of fault as it must, and events of the rollout that show it."""
    result = run_checks(_bound(check_id), subject, POLICY.thresholds)[check_id]
    known = {event.event_id for event in (*subject.own, *subject.heard)} | {one.started_id for one in subject.siblings}
    known |= {one.state_id or "" for one in subject.siblings} | ({subject.group.event_id} if subject.group is not None else set())
    assert result.status != "error", result.reason
    assert result.status != "fail" or (result.evidence_event_ids and set(result.evidence_event_ids) <= known)
    return result


def status(subject: RolloutSubject, check_id: str) -> str:
    """What one check says."""
    return checked(subject, check_id).status


def failed(subject: RolloutSubject, check_id: str, fault: str | None) -> CheckResult:
    """The failure of one check, which blames that kind of fault."""
    result = checked(subject, check_id)
    assert (result.status, result.fault) == ("fail", fault), (result.status, result.fault, result.reason)
    return result
