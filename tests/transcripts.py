"""Rollouts of a few tool calls as scanners see them, made by hand."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from audit.rollout_subject import RolloutSubject, SeenCall
from ledger.attribution_view import Evidence
from ledger.bundle import Bundle, BundleDraft
from ledger.events import BlobRef, EventBody, ModelCalled, RewardDerived, ToolCalled
from training.rows import BuiltRows

CLOCK = datetime(2026, 1, 1, tzinfo=UTC)


class _Blobs:
    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def ref(self, value: Any) -> BlobRef:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        name = sha256(data).hexdigest()
        self.held[name] = data
        return BlobRef(blob_id=name, size=len(data), media="text/plain")


def transcript(
    *calls: tuple[str, Mapping[str, Any], str], said: Sequence[str] = (), reward: float | None = None, request: str = "Fix the bug."
) -> RolloutSubject:
    """A rollout with its tool calls (name, arguments, result), answers without calls, and a reward; event ids are `tool-0`, `said-0`, ..."""
    blobs, own, seen = _Blobs(), list[Evidence](), list[SeenCall]()
    for index, (name, arguments, result) in enumerate(calls):
        own.append(_evidence(f"tool-{index}", ToolCalled(
            rollout_id="r", index=index, turn=index, model_call_id=None, tool_call_id=f"c{index}", name=blobs.ref(name),
            arguments_sampled=blobs.ref(dict(arguments)), arguments_parsed=blobs.ref(dict(arguments)), result=blobs.ref(result),
            error_class=None, state_before="0" * 64, state_after="0" * 64, latency_s=0.1,
        )))  # fmt: skip
    for index, text in enumerate(said):
        response = blobs.ref({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]})
        body = ModelCalled(
            call_id=f"m{index}", rollout_id="r", index=index, participant="p", role="agent", status="completed", response=response,
            attempts=1, latency_s=0.1,
        )  # fmt: skip
        own.append(_evidence(f"said-{index}", body))
        seen.append(SeenCall(f"m{index}", None, None, body, f"said-{index}"))
    derived = () if reward is None else (_evidence("reward-0", RewardDerived(
        reward_id="w", rollout_id="r", rule="all", rule_id="0" * 64, verdict_ids=["v"], value=reward, reason="",
    )),)  # fmt: skip
    draft = BundleDraft("django__django-11099", "swe", {"system": None, "turns": [[{"role": "user", "content": request}]]}, {})
    return RolloutSubject(
        "r", tuple(own), None, Bundle(draft, "w" * 64, "v" * 64, "h" * 64), (), derived, (), tuple(seen), BuiltRows(()), (),
        lambda name: blobs.held[name],
    )  # fmt: skip


def bash(command: str, result: str = "") -> tuple[str, Mapping[str, Any], str]:
    """One call of a shell tool."""
    return ("bash", {"command": command}, result)


def _evidence(event_id: str, body: EventBody) -> Evidence:
    return Evidence(event_id, body.stream(), 0, body.kind, body.schema_version, CLOCK, body.canonical_bytes())
