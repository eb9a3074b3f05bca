"""A rollout for anybody's agent: `with rollout(bundle, ...) as r` gives it a base URL. Starts a thread, serves HTTP, writes the ledger.

from training.rollout import session as tally

with tally.rollout(bundle, upstream=upstream) as r:
    run_my_agent(base_url=r.base_url, task=r.messages, tools=r.tools, call=r.call)
"""

import asyncio
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, TypeVar

from ledger.appender import Appender
from ledger.bundle import Bundle
from ledger.canonical import canonical_bytes, digest
from ledger.connect import connect
from ledger.errors import RolloutClosed, SettingsError, WorldFailed
from ledger.events import GroupDispatched, Participant, RolloutStarted, RunConfigured
from ledger.events.rollout import EndedBy
from ledger.exclusive import exclusive
from ledger.ids import derived_id, uuid7
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from ledger.token_packing import pack_rollout
from training.bundles import load
from training.rollout.abandoned import end_abandoned, session_group, session_lock
from training.rollout.episode import Act, Boundary, Clock, End, Episode, SampledCall
from training.rollout.gateway import Gateway, Upstream
from training.rollout.planting import plant
from training.rollout.recording import RolloutRecord
from training.rollout.tool_formats import ReadCall, parsed_object, refusal
from training.worlds import Observation, ToolCall, World
from training.worlds.asynchronous import as_async
from training.worlds.source import source_of

T = TypeVar("T")


@contextmanager
def rollout(
    bundle: Bundle | str,
    *,
    upstream: Upstream,
    ledger: LedgerHandle | None = None,
    world: World[Any] | None = None,
    settings: Settings | None = None,
    policy: str = "agent",
    trainable: bool = False,
    run: str = "sessions",
    seed: int = 0,
    clock: Clock = time.monotonic,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> Iterator["Session"]:
    """One rollout at a sealed bundle; it has started when the block begins and has ended, exactly once, when the block is left.

    Left in the ordinary way it is `finished`; by an exception `harness_error`, with the traceback as its detail, or `world_error` where
    the world broke; by an interrupt `cancelled` and not counted. `Session.end` says otherwise. The exception goes on. A process that is
    killed ends nothing: the next session of the project ends what it left open, as `cancelled` and not counted (`end_abandoned`).

    Args:
        bundle: sealed bundle, or its id.
        upstream: who answers the model calls, with its model version.
        ledger: open ledger; None opens that of the settings and closes it.
        world: open world of the bundle's version; None opens it and closes it.
        settings: of the deployment; None reads the environment.
        policy: name of the agent in tables.
        trainable: whether its tokens may be trained on.
        run: name of the run that the rollout belongs to.
        seed: of the world's reset.
        clock: seconds.
        random_bytes: where the rollout's id comes from.
    Raises:
        UnknownId: the bundle is not sealed in this ledger.
        SettingsError: the world is not of the version that the bundle was sealed with.
    """
    with ExitStack() as stack:
        book = stack.enter_context(connect(settings)) if ledger is None else ledger
        sealed = load(book, bundle if isinstance(bundle, str) else bundle.bundle_id)
        if world is None:
            world = source_of(sealed.draft.world).open(settings or Settings(), {})
            stack.callback(getattr(world, "close", lambda: None))
        if world.version != sealed.world_id:
            raise SettingsError(f"world {world.name!r} has version {world.version}; the bundle was sealed with {sealed.world_id}")
        end_abandoned(book)
        rollout_id = uuid7(random_bytes(10))
        # Held before the rollout exists, so that nobody takes it for abandoned.
        stack.enter_context(exclusive(book, session_lock(rollout_id), wait_s=0.0))
        participant = Participant(
            name=policy, role="agent", model_version=upstream.model_version, endpoint=upstream.kind, sampling={}, trainable=trainable
        )
        session = Session(book, sealed, world, upstream, rollout_id, participant=participant, run=run, seed=seed, clock=clock)
        yield stack.enter_context(session)


class Session:
    """A rollout under way, for callers in any thread.

    Attributes:
        rollout_id: its id in the ledger.
        base_url: OpenAI base URL; whatever is sent there is recorded as the rollout's.
        env: environment variables that point an OpenAI client there.
        draft: the task.
        turn: the user turn that is under way, from 0.
    """

    def __init__(
        self, ledger: LedgerHandle, bundle: Bundle, world: World[Any], upstream: Upstream, rollout_id: str, *, participant: Participant,
        run: str, seed: int, clock: Clock,
    ) -> None:  # fmt: skip
        self.rollout_id, self.draft, self.turn = rollout_id, bundle.draft, 0
        self.base_url = ""
        self._ledger, self._bundle, self._upstream, self._participant = ledger, bundle, upstream, participant
        self._run, self._seed, self._clock = run, seed, clock
        self._run_id = derived_id("run", ledger.ledger_id, ledger.project, "session", run)
        self._pool = ThreadPoolExecutor(1, "tally-session-world")
        planting = plant(world, bundle.draft, None, rollout_id, seed=seed)
        self._episode = Episode(as_async(planting.world, self._pool), bundle.draft, None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tally-session", daemon=True)
        self._acting = threading.Lock()
        self._began: float | None = None
        self._ended: End | None = None

    def __enter__(self) -> "Session":
        self._thread.start()
        with ExitStack() as undo:
            undo.callback(self._close)
            self._wait(self._listen())
            undo.pop_all()
            undo.push(self.__exit__)
            self._wait(self._start())
            undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._ended is None and self._began is not None:
                self._finish(_end_of(error))
        finally:
            self._wait(self._stop())
            self._close()

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for an OpenAI client in another process; the key is not looked at."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": "tallystick"}

    @property
    def tools(self) -> list[dict[str, Any]]:
        """OpenAI schemas of the tools of the user turn under way."""
        return self._wait(self._episode.world.tools(self.draft, turn=self.turn))

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """What the user says in the turn under way, after the task's system prompt in the first one."""
        system = self.draft.request.get("system")
        head = [{"role": "system", "content": system}] if system and self.turn == 0 else []
        return [*head, *self.draft.request["turns"][self.turn]]

    def next_turn(self) -> bool:
        """Whether there was a further user turn, which is under way now."""
        if self.turn + 1 >= len(self.draft.request["turns"]):
            return False
        self.turn += 1
        return True

    def call(self, name: str, /, **arguments: Any) -> Observation:
        """What the world answers a tool call; see `execute`."""
        return self.execute(name, canonical_bytes(arguments).decode("utf-8"))

    def execute(self, name: str, arguments: str, *, tool_call_id: str | None = None, model_call_id: str | None = None) -> Observation:
        """What the world answers a tool call with the argument text that the model sampled; the call is recorded before this returns.

        Args:
            tool_call_id: the id that the model gave the call.
            model_call_id: the model call that asked for it, from `X-Tally-Call-Id`; None: the newest of the rollout.
        Raises:
            RolloutClosed: the rollout has ended.
            WorldFailed: the world broke.
        """
        with self._acting:
            if self._ended is not None:
                raise RolloutClosed(f"rollout {self.rollout_id} has ended ({self._ended.ended_by}); it acts no more")
            return self._wait(self._act(name, arguments, tool_call_id, model_call_id))

    def end(self, ended_by: EndedBy = "finished", reason: str = "the agent said so", *, boundary: Boundary = "policy") -> None:
        """End the rollout now; model calls that come later are refused.

        Raises:
            RolloutClosed: it has ended.
        """
        if self._ended is not None:
            raise RolloutClosed(f"rollout {self.rollout_id} has ended ({self._ended.ended_by}); it ends once")
        self._finish(End(ended_by, boundary, reason))

    async def _listen(self) -> None:
        self._appender = Appender(self._ledger)
        self._gateway = Gateway(self._ledger, appender=self._appender)
        await self._gateway.start()
        self._record = RolloutRecord(self._ledger, self._appender.append, self.rollout_id, correlation_id=self._run_id)

    async def _start(self) -> None:
        ledger, group_id = self._ledger, session_group(self.rollout_id)
        config = {"session": True, "name": self._run}
        blob, experiment_id = ledger.pending_json(config), derived_id("experiment", "session", self._run)
        bodies: Sequence[RunConfigured | GroupDispatched | RolloutStarted] = (
            RunConfigured(
                run_id=self._run_id, experiment_id=experiment_id, name=self._run, config=blob.ref, config_digest=digest(config), root_seed=0
            ),
            GroupDispatched(
                group_id=group_id, bundle_id=self._bundle.bundle_id, size=1, experiment_id=experiment_id, run_id=self._run_id, round=0,
                policy=self._participant.name, rollout_kind="ordinary",
            ),
            RolloutStarted(
                rollout_id=self.rollout_id, group_id=group_id, bundle_id=self._bundle.bundle_id, slot=0, attempt=1, rollout_kind="ordinary",
                participants=[self._participant], seed=self._seed,
            ),
        )  # fmt: skip
        blobs = [[blob], [], []]
        await self._appender.append([
            ledger.new(body, *own, correlation_id=self._run_id) for body, own in zip(bodies, blobs, strict=True)
        ])  # fmt: skip
        self._began = self._clock()
        self._gateway.register(self.rollout_id, self._upstream, participant=self._participant.name, correlation_id=self._run_id)
        self.base_url = self._gateway.base_url(self.rollout_id)
        self._episode.state = await self._episode.world.reset(self.draft, seed=self._seed)
        await self._record.begin(self._episode)

    async def _act(self, name: str, arguments: str, tool_call_id: str | None, model_call_id: str | None) -> Observation:
        episode, clock = self._episode, self._clock
        tools = await episode.world.tools(self.draft, turn=self.turn)
        sampled = SampledCall(tool_call_id or f"call_{episode.tool_calls}", name, arguments)
        call = ReadCall(sampled, *parsed_object(arguments))
        began, before = clock(), episode.world.digest(episode.state)
        observation = refusal(call, tools)
        if observation is None:
            episode.state, observation = await episode.world.call(episode.state, ToolCall(name, call.parsed or {}, sampled.call_id))
        latency_s = clock() - began + observation.delay_s
        episode.tool_s += latency_s
        episode.unslept_s += observation.delay_s
        newest = self._gateway.calls(self.rollout_id).call_ids[-1:]
        asked_by = model_call_id or (newest[0] if newest else None)
        after = episode.world.digest(episode.state)
        await self._record.act(Act(
            episode.tool_calls, self.turn, sampled, asked_by, call.parsed, observation, before, after, latency_s,
        ))  # fmt: skip
        episode.tool_calls += 1
        return observation

    def _finish(self, end: End) -> None:
        with self._acting:
            self._ended = end
            self._wait(self._record_end(end))

    async def _record_end(self, end: End) -> None:
        calls = self._gateway.close_rollout(self.rollout_id)
        await self._record.end(self._episode, end, calls, wall_s=self._clock() - (self._began or 0.0))
        # What does not fit its events stays staged, where verification finds it.
        await asyncio.to_thread(pack_rollout, self._record.ledger, self.rollout_id)

    async def _stop(self) -> None:
        await self._gateway.stop()
        await self._appender.close()

    def _close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._pool.shutdown()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        finally:
            # Whoever is interrupted here does not leave it to go on behind the rollout's end.
            running.cancel()


def _end_of(error: BaseException | None) -> End:
    if error is None:
        return End("finished", "policy", "the agent left its session")
    detail = "".join(traceback.format_exception(error))
    if isinstance(error, WorldFailed):
        return End("world_error", "world", "the world broke", detail)
    if isinstance(error, Exception):
        return End("harness_error", "harness", f"the agent raised {type(error).__name__}", detail)
    return End("cancelled", "operator", f"interrupted by {type(error).__name__}", detail)
