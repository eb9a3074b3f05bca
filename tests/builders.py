"""Realistic histories for tests: real tasks, world, harness, verifiers and reward rule over a real ledger; only the model is a script."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from ledger import tokens
from ledger.blobs import Pending
from ledger.bundle import Bundle
from ledger.events import (
    GroupDispatched,
    ModelCallDispatched,
    ModelCalled,
    ModelVersionPublished,
    Participant,
    RolloutEnded,
    RolloutStarted,
    RunConfigured,
    StateSnapshotted,
    ToolCalled,
    VersionSpan,
)
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.lineage import calls_digest
from ledger.queries import Filter, fresh, rollouts, verdicts
from ledger.store import New, StagedTokens
from ledger.tokens import CapturedTokens
from tests.token_histories import held
from training.bundles import register, seal
from training.rewards import rewards
from training.rollout.derive import Judged, derive
from training.rollout.harness import Act, Answer, End, Episode, SampledCall, drive, tool_loop
from training.rollout.judge import Judging, judge
from training.rollout.policies import scripted
from training.verifiers import verifiers
from training.worlds import AssistantTurn
from training.worlds.asynchronous import as_async
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.scripts import SCRIPTS

SAMPLED = "sampled"
"""Name of the policy whose calls have tokens and logprobs."""
PLANTED = ("desk_without_cooldown", "desk_without_side_effects", "desk_any_mail")


class DeskHistory:
    """Writes a run on the ticket desk: bundles, groups, rollouts, verdicts and rewards.

    Attributes:
        bundles: sealed tasks, in order.
        run_id, experiment_id: of everything that is written.
    """

    def __init__(self, ledger: LedgerHandle, *, tasks: int = 3, model: Path | None = None) -> None:
        """Register and seal everything that rollouts need; `model` is a folder with a tokenizer, without which nothing has tokens."""
        self.ledger, self.world, self.harness = ledger, TicketDesk(), tool_loop()
        self.judgings = [
            Judging(verifiers.bind(name), "state_diff" if name == "end_state" else "program", "second_opinion" if n else "bundle")
            for n, name in enumerate(("desk_conditions", "end_state", *PLANTED))
        ]
        register(ledger, self.world, [(j.verifier, j.kind) for j in self.judgings], self.harness, planted=PLANTED)
        own = self.judgings[0].verifier.ref.method_id
        self.bundles = [Bundle(draft, self.world.version, own, self.harness.harness_id) for draft in generate(tasks, seed=7)]
        seal(ledger, self.bundles)
        self.run_id, self.experiment_id = derived_id("run", "desk"), derived_id("experiment", "desk")
        config = ledger.pending_json({"name": "desk"})
        ledger.append([ledger.new(RunConfigured(
            run_id=self.run_id, experiment_id=self.experiment_id, name="desk", config=config.ref, config_digest="0" * 64, root_seed=7,
        ), config)])  # fmt: skip
        self.tokenizer: Any = None
        if model is not None:
            self._publish(model)

    def _publish(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        about = json.loads((folder / "tallystick.json").read_text(encoding="utf-8"))
        self.ledger.append([self.ledger.new(ModelVersionPublished(
            model_version=f"{SAMPLED}-1", name=SAMPLED, weights_digest="1" * 64, tokenizer_digest=about["tokenizer_sha256"],
            template_digest="2" * 64, scripted=False,
        ))])  # fmt: skip

    def group(self, task: int, policy: str, *, size: int = 1) -> str:
        """Id of a group that expects `size` rollouts of a policy at a task."""
        group_id = derived_id("group", task, policy, size)
        self.ledger.append([self.ledger.new(GroupDispatched(
            group_id=group_id, bundle_id=self.bundles[task].bundle_id, size=size, experiment_id=self.experiment_id, run_id=self.run_id,
            round=0, policy=policy, rollout_kind="ordinary",
        ))])  # fmt: skip
        return group_id

    def rollout(
        self, group_id: str, task: int, policy: str, script: str | Sequence[AssistantTurn], *, slot: int = 0, attempt: int = 1,
        fault: str | None = None, answered: bool = True,
    ) -> str:  # fmt: skip
        """Id of a rollout that the real harness drove through the real world.

        Args:
            script: name of a desk script, or the assistant's turns.
            fault: `engine_error` or `world_error`: the rollout breaks at its first call.
            answered: False leaves the first model call an intent without an answer, and the rollout running.
        """
        rollout_id, draft = derived_id("rollout", group_id, slot, attempt), self.bundles[task].draft
        turns = SCRIPTS[script](draft) if isinstance(script, str) else list(script)
        version = f"{SAMPLED}-1" if policy == SAMPLED else scripted(self.ledger, policy, SCRIPTS["oracle"]).model_version
        agent = Participant(name=policy, role="agent", model_version=version, endpoint="test", sampling={}, trainable=policy == SAMPLED)
        self.ledger.append([self.ledger.new(RolloutStarted(
            rollout_id=rollout_id, group_id=group_id, bundle_id=self.bundles[task].bundle_id, slot=slot, attempt=attempt,
            rollout_kind="ordinary", participants=[agent], seed=7 + slot,
        ))])  # fmt: skip
        writer = _Writer(
            self.ledger, rollout_id, policy, version=version, turns=turns, tokenizer=self.tokenizer if policy == SAMPLED else None
        )
        if not answered:
            writer.intend([{"role": "user", "content": "hello"}], [], 0)
            writer.flush()
            return rollout_id
        pool = ThreadPoolExecutor(1)
        episode = Episode(as_async(self.world, pool), draft, self.world.reset(draft, seed=0))
        writer.snapshot(episode, 0)
        if fault is not None:
            end = End(fault, "engine" if fault == "engine_error" else "world", "it broke on purpose", "Traceback: <b>boom</b>")  # type: ignore[arg-type]
        else:
            end = asyncio.run(drive(episode, self.harness, writer.ask, writer.record))
        pool.shutdown()
        writer.snapshot(episode, episode.tool_calls + 1)
        writer.end(episode, end)
        writer.flush()
        return rollout_id

    def judge_and_reward(self) -> None:
        """Verdicts of all five verifiers on every ended rollout, then a reward for each."""
        fresh(self.ledger)
        ended = [line for line in rollouts(self.ledger, Filter(), limit=1000).lines if line.ended_by is not None]
        for judging in self.judgings:
            judge(self.ledger, [(line.rollout_id, line.bundle_id) for line in ended], judging, self.world)
        fresh(self.ledger)
        ended = [line for line in rollouts(self.ledger, Filter(), limit=1000, newest=False).lines if line.ended_by is not None]
        said = verdicts(self.ledger, [line.rollout_id for line in ended])
        judged = []
        for line in ended:
            counting = next((v for v in said[line.rollout_id] if v.counts), None)
            judged.append(Judged(
                line.rollout_id, line.ended_by or "", line.verdict_id, line.verdict_status, line.passed,
                counting.conditions if counting else (),
            ))  # fmt: skip
        derive(self.ledger, judged, rewards.bind("all_conditions"))
        fresh(self.ledger)

    def unattributed(self) -> str:
        """Id of an answered model call that belongs to no rollout."""
        writer = _Writer(self.ledger, None, "stranger", version="", turns=[AssistantTurn("hello")], tokenizer=None)
        asyncio.run(writer.ask([{"role": "user", "content": "whose am I?"}], [], 0))
        writer.flush()
        return writer.call_ids[0]


class _Writer:
    """The scripted model and the recorder of one rollout."""

    def __init__(
        self,
        ledger: LedgerHandle,
        rollout_id: str | None,
        participant: str,
        *,
        version: str,
        turns: Sequence[AssistantTurn],
        tokenizer: Any,
    ) -> None:
        self.ledger, self.rollout_id, self.participant, self.version = ledger, rollout_id, participant, version
        self.turns, self.tokenizer, self.call_ids = list(turns), tokenizer, list[str]()
        self.events: list[New] = []

    def write(self, body: Any, *blobs: Pending, staged: StagedTokens | None = None) -> None:
        """One more event of the next append."""
        self.events.append(self.ledger.new(body, *blobs, tokens=staged))

    def flush(self) -> None:
        """Append what was written since the last time."""
        self.ledger.append(self.events)
        self.events = []

    def intend(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], index: int) -> str:
        """Id of a call whose intent is recorded."""
        call_id = derived_id("call", self.rollout_id, index)
        request = self.ledger.pending_json({"model": self.participant, "messages": list(messages), "tools": list(tools)})
        self.write(ModelCallDispatched(
            call_id=call_id, rollout_id=self.rollout_id, index=index, participant=self.participant, role="agent", request=request.ref,
            request_digest=request.ref.blob_id, upstream="http://127.0.0.1:1/v1", model=self.participant, stream_requested=False,
        ), request)  # fmt: skip
        return call_id

    async def ask(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], index: int) -> Answer:
        """The script's next answer, recorded as the gateway records a model's."""
        call_id = self.intend(messages, tools, index)
        turn = self.turns[index] if index < len(self.turns) else AssistantTurn("Done.")
        calls = tuple(SampledCall(f"call_{index}_{n}", name, arguments) for n, (name, arguments) in enumerate(turn.tool_calls))
        asked = [{"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
        finish = "tool_calls" if asked else "stop"
        message = {"role": "assistant", "content": turn.content, **({"tool_calls": asked} if asked else {})}
        response = self.ledger.pending_json({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})
        own = self._tokens(messages, turn, call_id)
        sampled = 0 if own.sampled_ids is None else own.sampled_ids.count
        self.write(ModelCalled(
            call_id=call_id, rollout_id=self.rollout_id, index=index, participant=self.participant, role="agent", status="completed",
            response=response.ref, finish_reason=finish, attempts=1, latency_s=0.2, sampling={"temperature": 1.0},
            tokens_missing=None if own.staged else "a scripted policy samples no tokens",
            logprobs_mode="processed_logprobs" if own.staged else None, usage=_usage(own),
            version_spans=[VersionSpan(model_version=self.version, start=0, end=sampled)] if own.staged else [],
            prompt_ids=own.prompt_ids, sampled_ids=own.sampled_ids, logprobs=own.logprobs,
        ), response, staged=own.staged)  # fmt: skip
        self.call_ids.append(call_id)
        return Answer(turn.content, calls, finish, call_id, 0.2)

    def _tokens(self, messages: Sequence[Mapping[str, Any]], turn: AssistantTurn, call_id: str) -> CapturedTokens:
        if self.tokenizer is None:
            return CapturedTokens()
        said = "".join(f"<|im_start|>{item['role']}\n{item.get('content') or ''}<|im_end|>\n" for item in messages)
        sampled = turn.content or ""
        for name, arguments in turn.tool_calls:
            sampled += f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
        prompt_ids = self.tokenizer.encode(f"{said}<|im_start|>assistant\n").ids
        sampled_ids = self.tokenizer.encode(f"{sampled}<|im_end|>").ids
        # Most tokens are nearly sure and a few are not, as with a model.
        logprobs = [-((7 * n % 13) ** 3) / 400 for n in range(len(sampled_ids))]
        arrays = (tokens.ids_bytes(prompt_ids), tokens.ids_bytes(sampled_ids), tokens.logprob_bytes(logprobs))
        return held(self.ledger, arrays, self.rollout_id, call_id)

    async def record(self, act: Act) -> None:
        """One tool call as an event."""
        name, sampled = self.ledger.pending(act.sampled.name), self.ledger.pending(act.sampled.arguments)
        parsed = None if act.parsed is None else self.ledger.pending_json(dict(act.parsed))
        result = self.ledger.pending(act.observation.content)
        self.write(ToolCalled(
            rollout_id=self.rollout_id or "", index=act.index, turn=act.turn, model_call_id=act.model_call_id,
            tool_call_id=act.sampled.call_id, name=name.ref, arguments_sampled=sampled.ref,
            arguments_parsed=None if parsed is None else parsed.ref, result=result.ref, error_class=act.observation.error_class,
            state_before=act.state_before, state_after=act.state_after, latency_s=act.latency_s,
        ), name, sampled, result, *([] if parsed is None else [parsed]))  # fmt: skip

    def snapshot(self, episode: Episode, step: int) -> None:
        """The state at a step."""
        view = self.ledger.pending_json(episode.world.view(episode.state))
        data = self.ledger.pending(TicketDesk().snapshot(episode.state).data, media="application/octet-stream")
        self.write(StateSnapshotted(
            rollout_id=self.rollout_id or "", step=step, state=episode.world.digest(episode.state), view=view.ref, snapshot=data.ref,
        ), view, data)  # fmt: skip

    def end(self, episode: Episode, end: End) -> None:
        """The end of the rollout."""
        detail = None if end.detail is None else self.ledger.pending(end.detail)
        self.write(RolloutEnded(
            rollout_id=self.rollout_id or "", ended_by=end.ended_by, boundary=end.boundary, reason=end.reason,
            detail=None if detail is None else detail.ref, model_calls=len(self.call_ids), tool_calls=episode.tool_calls,
            calls_digest=calls_digest(self.call_ids), wall_s=1.0, sampling_s=episode.sampling_s, tool_s=episode.tool_s,
        ), *([] if detail is None else [detail]))  # fmt: skip


def _usage(held: CapturedTokens) -> dict[str, int | None]:
    arrays = {"prompt_tokens": held.prompt_ids, "completion_tokens": held.sampled_ids}
    return {name: array.count for name, array in arrays.items() if array is not None}


def small_tokenizer(folder: Path, corpus: Sequence[str]) -> Path:
    """`folder` with a small byte-level tokenizer trained on `corpus`, and the manifest that names its digest."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = [AddedToken(mark, special=True, normalized=False) for mark in ("<|im_start|>", "<|im_end|>")]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=600, special_tokens=marks, initial_alphabet=alphabet, show_progress=False)
    )
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    digest = sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    (folder / "tallystick.json").write_text(json.dumps({"tokenizer_sha256": digest}), encoding="utf-8")
    return folder
