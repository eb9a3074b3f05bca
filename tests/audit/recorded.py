"""Rollouts of scripted policies on the desk as audits see them, made in memory: with faults, with verdicts, without a database."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from audit.attribution import Attribution, attribute
from audit.harness_replay import HarnessFacts
from audit.replaying import Judging, replayed
from audit.results import CheckResult
from audit.rollout_subject import RolloutSubject, SeenCall
from ledger.attribution_view import Evidence
from ledger.bundle import Bundle, BundleDraft
from ledger.canonical import canonical_bytes
from ledger.events import (
    BlobRef,
    EventBody,
    GroupDispatched,
    HistoryRewritten,
    ModelCallDispatched,
    ModelCalled,
    Participant,
    ReviewDecided,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    StateSnapshotted,
    ToolCalled,
    VerdictGiven,
)
from training.rollout.tool_formats import parsed_object
from training.rows import BuiltRows
from training.verifiers import JudgeTask, TraceStep, verifiers
from training.worlds import AssistantTurn, Observation, ToolCall
from training.worlds.fault_plan import read_plan
from training.worlds.faults import FaultyWorld
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.scripts import SCRIPTS

WORLD = TicketDesk()
DRAFTS = generate(12, seed=7)
VERIFIER_ID = "b" * 64
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Edit = Callable[[list[ToolCall]], list[ToolCall]]


@dataclass
class Recording:
    """One rollout, written event by event; every part can be changed before `subject` is asked."""

    draft: BundleDraft = DRAFTS[0]
    rollout_id: str = "r0"
    own: list[EventBody] = field(default_factory=list)
    verdicts: list[VerdictGiven] = field(default_factory=list)
    rewards: list[RewardDerived] = field(default_factory=list)
    reviews: list[ReviewDecided] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)

    @property
    def bundle(self) -> Bundle:
        """The task."""
        return Bundle(self.draft, WORLD.version, VERIFIER_ID, "d" * 64)

    def ref(self, value: Any) -> BlobRef:
        """A text or a JSON value kept as a blob."""
        data = value.encode() if isinstance(value, str) else bytes(value) if isinstance(value, bytes) else canonical_bytes(value)
        name = hashlib.sha256(data).hexdigest()
        self.blobs[name] = data
        return BlobRef(blob_id=name, size=len(data), media="text/plain")

    def run(
        self, script: str | Sequence[AssistantTurn], faults: Sequence[Mapping[str, Any]] = (), *, retries: bool = False,
        drop: Sequence[int] = (), ended_by: Any = "finished", max_tokens: int = 512,
    ) -> "Recording":  # fmt: skip
        """What a scripted policy did, judged by the desk's verifier.

        Args:
            faults: a plan; empty for a healthy world.
            retries: the policy makes a call again that got no answer.
            drop: numbers of calls that the harness does not make although they were sampled.
        """
        world: Any = FaultyWorld(WORLD, read_plan(list(faults)), key=(1, self.rollout_id)) if faults else WORLD
        agent = Participant(name="p", role="agent", model_version="m", endpoint="t", sampling={}, trainable=True)
        self.own.append(RolloutStarted(
            rollout_id=self.rollout_id, group_id="g", bundle_id=self.bundle.bundle_id, slot=0, attempt=1, rollout_kind="ordinary",
            participants=[agent], seed=3,
        ))  # fmt: skip
        state = world.reset(self.draft, seed=3)
        s0 = world.view(state)
        self._snapshot(world, state, 0)
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        trace: list[TraceStep] = []
        sampled, made = 0, 0
        for index, turn in enumerate(SCRIPTS[script](self.draft) if isinstance(script, str) else script):
            self.model_call(index, messages, turn, max_tokens=max_tokens)
            asked = [
                {"id": f"c{index}_{n}", "type": "function", "function": {"name": a, "arguments": b}}
                for n, (a, b) in enumerate(turn.tool_calls)
            ]
            messages = [*messages, {"role": "assistant", "content": turn.content or "", **({"tool_calls": asked} if asked else {})}]
            for name, arguments in turn.tool_calls:
                sampled += 1
                if sampled - 1 in drop:
                    continue
                for _ in range(2):
                    state, answer = self._act(world, state, (name, arguments), made, index, trace)
                    made += 1
                    messages = [*messages, {"role": "tool", "tool_call_id": f"c{made}", "content": answer.content}]
                    if not (retries and answer.error_class in ("timeout", "permission_denied", "connection_error")):
                        break
        self._snapshot(world, state, made + 1)
        self.own.append(RolloutEnded(
            rollout_id=self.rollout_id, ended_by=ended_by, boundary="policy", reason="said so", model_calls=index + 1, tool_calls=made,
            calls_digest="0" * 64, wall_s=1.0, sampling_s=0.5, tool_s=0.1,
        ))  # fmt: skip
        found = verifiers["desk_conditions"](s0, world.view(state), trace, JudgeTask(self.draft, WORLD.material))
        self.verdict(found.passed)
        return self

    def verdict(self, passed: bool | None, *, status: Any = "completed", error: str | None = None) -> None:
        """The task's verifier says this, in place of what it said before."""
        self.verdicts[:] = [VerdictGiven(
            verdict_id="v", rollout_id=self.rollout_id, verifier_id=VERIFIER_ID, verifier_kind="program", role="bundle", status=status,
            passed=passed, conditions=[], side_effect_count=0, error=None if error is None else self.ref(error),
        )]  # fmt: skip

    def model_call(self, index: int, messages: Sequence[Any], turn: AssistantTurn, *, max_tokens: int, finish: str | None = None) -> None:
        """A model call with its answer."""
        call_id = f"call{index}"
        asked = [
            {"id": f"c{index}_{n}", "type": "function", "function": {"name": a, "arguments": b}} for n, (a, b) in enumerate(turn.tool_calls)
        ]
        message = {"role": "assistant", "content": turn.content, "tool_calls": asked}
        self.own.append(ModelCallDispatched(
            call_id=call_id, rollout_id=self.rollout_id, index=index, participant="p", role="agent",
            request=self.ref({"messages": list(messages), "max_tokens": max_tokens}), request_digest="0" * 64, upstream="u", model="m",
            stream_requested=False,
        ))  # fmt: skip
        self.own.append(ModelCalled(
            call_id=call_id, rollout_id=self.rollout_id, index=index, participant="p", role="agent", status="completed",
            response=self.ref({"choices": [{"message": message}]}), finish_reason=finish or ("tool_calls" if asked else "stop"), attempts=1,
            latency_s=0.1, usage={"prompt_tokens": 20, "completion_tokens": 5},
        ))  # fmt: skip

    def _act(self, world: Any, state: Any, call: tuple[str, str], index: int, at: int, trace: list[TraceStep]) -> tuple[Any, Observation]:
        name, raw = call
        parsed, refused = parsed_object(raw)
        before = world.digest(state)
        answer = refused
        if parsed is not None:
            asked = ToolCall(name, parsed, f"c{index}")
            state, answer = world.call(state, asked)
            trace.append(TraceStep(0, asked, answer))
        assert answer is not None
        self.own.append(ToolCalled(
            rollout_id=self.rollout_id, index=index, turn=0, model_call_id=f"call{at}", tool_call_id=f"c{index}", name=self.ref(name),
            arguments_sampled=self.ref(raw), arguments_parsed=None if parsed is None else self.ref(json.dumps(parsed)),
            result=self.ref(answer.content), error_class=answer.error_class, state_before=before, state_after=world.digest(state),
            latency_s=0.01 + answer.delay_s,
        ))  # fmt: skip
        return state, answer

    def _snapshot(self, world: Any, state: Any, step: int) -> None:
        self.own.append(StateSnapshotted(
            rollout_id=self.rollout_id, step=step, state=world.digest(state), view=self.ref(world.view(state)),
            snapshot=self.ref(world.snapshot(state).data),
        ))  # fmt: skip

    def subject(self) -> RolloutSubject:
        """The rollout as audits see it."""
        own = tuple(_evidence(body, f"rollout-{self.rollout_id}", number) for number, body in enumerate(self.own))
        group = GroupDispatched(
            group_id="g",
            bundle_id=self.bundle.bundle_id,
            size=1,
            experiment_id="e",
            run_id="run",
            round=0,
            policy="p",
            rollout_kind="ordinary",
        )
        sent = {b.call_id: (e.event_id, b) for e, b in zip(own, self.own, strict=True) if isinstance(b, ModelCallDispatched)}
        given = {b.call_id: (e.event_id, b) for e, b in zip(own, self.own, strict=True) if isinstance(b, ModelCalled)}
        calls = tuple(SeenCall(name, sent[name][1], sent[name][0], given[name][1], given[name][0]) for name in sent)
        return RolloutSubject(
            rollout_id=self.rollout_id, own=own, group=_evidence(group, "group-g", 0), bundle=self.bundle,
            verdicts=tuple(_evidence(body, "verdict-v", n) for n, body in enumerate(self.verdicts)),
            rewards=tuple(_evidence(body, "reward-w", n) for n, body in enumerate(self.rewards)),
            reviews=tuple(_evidence(body, "review-x", n) for n, body in enumerate(self.reviews)), calls=calls, built=BuiltRows(()), others=(),
            bytes_of=self.blobs.__getitem__,
        )  # fmt: skip

    def attributed(
        self, results: Sequence[CheckResult] = (), *, facts: HarnessFacts = HarnessFacts(None, {"max_tokens": 512}, False), world: Any = WORLD,
        judge: Any = None,
    ) -> Attribution:  # fmt: skip
        """Whose fault its failure is."""
        subject = self.subject()
        own = Judging(verifiers["desk_conditions"] if judge is None else judge, "desk_conditions")
        return attribute(subject, results, replayed(subject, world, own, facts, seeds=(3, 0), results=results))

    def rewritten(self, before_call: int) -> None:
        """The harness rewrote the conversation before a model call."""
        at = next(n for n, body in enumerate(self.own) if isinstance(body, ModelCallDispatched) and body.index == before_call)
        self.own.insert(at, HistoryRewritten(
            rollout_id=self.rollout_id, index=0, dropped=1, kept=1, summary=None, reason="compaction", before_call=before_call,
        ))  # fmt: skip


def _evidence(body: EventBody, stream: str, version: int) -> Evidence:
    name = f"{stream}/{version}"
    return Evidence(name, stream, version, type(body).__name__, type(body).schema_version, NOW, body.canonical_bytes())
