"""Faults as a wrapper: a world and a user that fail where a plan says, and are otherwise the world and the user that they were."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Generic, TypeVar

from ledger.bundle import BundleDraft
from training.worlds import Diff, Observation, Snapshot, ToolCall, World
from training.worlds.fault_effects import arriving, json_of, refusal, stray_write
from training.worlds.fault_kinds import (
    ChangingUser,
    CorruptedState,
    DroppedConnection,
    DuplicateDelivery,
    InterruptingUser,
    PermissionDenied,
    SeedIgnored,
    StrayWrite,
    Timeout,
    WrongReset,
)
from training.worlds.fault_plan import FaultPlan, Strike, check_last_wish, declared_plan

S = TypeVar("S")
Tell = Callable[[Strike], None]
"""Takes note of a fault that strikes; called before its effect is seen."""


def untold(strike: Strike) -> None:
    """Takes no note: for faults that a bundle declares."""


@dataclass(frozen=True)
class FaultyState(Generic[S]):
    """A state with what later faults depend on.

    Attributes:
        inner: the world's own state.
        calls: calls that have reached the world.
        last: the last answer that the world gave, None before the first.
    """

    inner: S
    calls: int = 0
    last: Observation | None = None


class FaultyWorld(Generic[S]):
    """A world that fails where its plan says, at most once a call: the first fault in the plan's order that strikes.

    Name, version, views and digests are the world's own, so that nothing in a state says that it came about by a fault. A snapshot holds
    the world's state alone; a state that was restored counts its calls anew.

    Args:
        world: what works otherwise.
        plan: which faults.
        key: what the faults' random streams belong to, such as a root seed and a rollout id.
        tell: takes note of each fault that strikes.
    """

    def __init__(self, world: World[S], plan: FaultPlan, *, key: tuple[Any, ...], tell: Tell = untold) -> None:
        self.name, self.version, self.source, self.fidelity = world.name, world.version, world.source, world.fidelity
        self._world, self._plan, self._key, self._tell = world, plan, key, tell

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas that the policy may call in user turn `turn`."""
        return self._world.tools(draft, turn=turn)

    def reset(self, draft: BundleDraft, *, seed: int) -> FaultyState[S]:
        """The initial state of the task, or what the faults of the reset make of it.

        Raises:
            SettingsError: the plan has a stray write that this world cannot carry out.
        """
        strikes = list(self._plan.at("reset", 0, self._key))
        for strike in strikes:
            self._tell(strike)
            if isinstance(strike.fault, SeedIgnored):
                seed = strike.rng.getrandbits(31)
            elif isinstance(strike.fault, WrongReset) and strike.fault.initial_state is not None:
                draft = replace(draft, initial_state=strike.fault.initial_state)
        state = self._world.reset(draft, seed=seed)
        writes = [fault for fault in self._plan.root if isinstance(fault, CorruptedState | WrongReset)]
        if any(fault.call is None and getattr(fault, "initial_state", None) is None for fault in writes):
            json_of(self._world, state)
        for strike in strikes:
            if isinstance(strike.fault, WrongReset) and strike.fault.initial_state is None:
                state = self._written(state, strike.fault, strike.rng)
        return FaultyState(state)

    def call(self, state: FaultyState[S], call: ToolCall) -> tuple[FaultyState[S], Observation]:
        """The state after the call, and the observation, by the fault that strikes if one does.

        Raises:
            WorldFailed: the connection dropped for good, or the world itself broke.
        """
        for strike in self._plan.at("call", state.calls, self._key):
            stale = isinstance(strike.fault, DuplicateDelivery) and strike.fault.form == "stale_answer"
            if not (stale and state.last is None):
                self._tell(strike)
                return self._struck(state, call, strike)
        inner, answer = self._world.call(state.inner, call)
        return FaultyState(inner, state.calls + 1, answer), answer

    def _struck(self, state: FaultyState[S], call: ToolCall, strike: Strike) -> tuple[FaultyState[S], Observation]:
        fault, inner = strike.fault, state.inner
        if isinstance(fault, PermissionDenied) or (isinstance(fault, Timeout | DroppedConnection) and not fault.executed):
            return replace(state, calls=state.calls + 1), refusal(fault)
        if isinstance(fault, CorruptedState):
            inner = self._written(inner, fault, strike.rng)
        inner, answer = self._world.call(inner, call)
        if isinstance(fault, DuplicateDelivery) and fault.form == "executed_twice":
            inner, answer = self._world.call(inner, call)
        after = FaultyState(inner, state.calls + 1, answer)
        return after, refusal(fault) if isinstance(fault, Timeout | DroppedConnection) else arriving(answer, state.last, strike)

    def _written(self, inner: Any, fault: StrayWrite, rng: Random) -> Any:
        """The wrapped world's state after a stray write, which faults that the bundle declares neither see nor count."""
        if isinstance(self._world, FaultyWorld):
            return replace(inner, inner=self._world._written(inner.inner, fault, rng))
        return stray_write(self._world, inner, fault, rng)

    def snapshot(self, state: FaultyState[S]) -> Snapshot:
        """The world's state at rest."""
        return self._world.snapshot(state.inner)

    def restore(self, snapshot: Snapshot) -> FaultyState[S]:
        """The state that was put to rest, before its first call."""
        return FaultyState(self._world.restore(snapshot))

    def fork(self, snapshot: Snapshot, n: int) -> list[FaultyState[S]]:
        """`n` independent states, each equal to the snapshot and before its first call."""
        return [FaultyState(state) for state in self._world.fork(snapshot, n)]

    def view(self, state: FaultyState[S]) -> Any:
        """The world's state as a JSON value."""
        return self._world.view(state.inner)

    def material(self, view: Any) -> Any:
        """The part of a view on which end states are compared."""
        return self._world.material(view)

    def diff(self, before: FaultyState[S], after: FaultyState[S]) -> Diff:
        """Where two of the world's states differ."""
        return self._world.diff(before.inner, after.inner)

    def digest(self, state: FaultyState[S]) -> str:
        """Hex SHA-256 of the canonical form of the view of the world's state."""
        return self._world.digest(state.inner)


class FaultyUser:
    """A user who speaks between steps where a plan says. One object a rollout: it remembers which changes were said."""

    def __init__(self, draft: BundleDraft, plan: FaultPlan, *, key: tuple[Any, ...], tell: Tell = untold) -> None:
        self._plan, self._key, self._tell = plan, key, tell
        self._changes = [fault for fault in plan.root if isinstance(fault, ChangingUser)]
        check_last_wish(plan, draft)

    def says(self, step: int, *, ended: bool) -> list[dict[str, Any]]:
        """The user's messages before model call `step`; a change that is still due is said at the latest when the policy thinks it is done.

        Args:
            step: number of the model call to come, 1 or more.
            ended: the policy has answered the last user turn.
        """
        said: list[dict[str, Any]] = []
        for strike in () if ended else self._plan.at("step", step, self._key):
            if isinstance(strike.fault, InterruptingUser):
                said.append(self._said(strike, strike.fault.message))
        due = [change for change in self._changes if ended or step >= change.at[0]]
        for change in sorted(due, key=lambda change: change.at):
            self._changes.remove(change)
            (strike,) = (strike for strike in self._plan.at("step", change.at[0], self._key) if strike.fault is change)
            said.append(self._said(replace(strike, where=f"step:{step}"), change.message))
        return said

    def _said(self, strike: Strike, message: str) -> dict[str, Any]:
        self._tell(strike)
        return {"role": "user", "content": message}


def declared_world(world: World[Any], draft: BundleDraft, *, seed: int) -> World[Any]:
    """The world as the bundle declares it: with the faults of its spec, drawn from the seed of the reset; itself when there are none."""
    plan = declared_plan(draft)
    return world if plan is None else FaultyWorld(world, plan, key=("declared", seed))


def declared_user(draft: BundleDraft, *, seed: int) -> FaultyUser | None:
    """The user as the bundle declares it, or None for one who never speaks between steps."""
    plan = declared_plan(draft)
    return None if plan is None else FaultyUser(draft, plan, key=("declared", seed))
