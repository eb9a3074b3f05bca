"""Follows a recorded rollout through a healthy world and says where it differs from what that world does. Runs worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from audit.paths import Step
from audit.replays import REPEATS, Cause
from audit.rollout_subject import RolloutSubject
from audit.run import Broken, guarded
from ledger.canonical import parse
from ledger.errors import CanonicalError
from ledger.events import StateSnapshotted, ToolCalled
from training.worlds import Observation, Snapshot, ToolCall, World
from training.worlds.difference import differences, is_within

_NO_ANSWER = {"timeout": "tool_timeout", "permission_denied": "permission_denied", "connection_error": "connection_dropped"}
_OTHER_SEEDS = 3


@dataclass(frozen=True)
class RecordedCall:
    """A tool call as it is recorded; `step` is None where it never reached the world."""

    event_id: str
    body: ToolCalled
    step: Step | None
    content: str


@dataclass(frozen=True)
class Followed:
    """What following a rollout found.

    Attributes:
        start: the healthy state after the reset.
        causes: where the record differs, in order; the retries by which a policy recovered are known from `skipped`.
        skipped: numbers of struck calls that a later call made up for, which a healthy world would not have needed.
        seen: number of a struck call to what it touched: its arguments and both answers, or what of the first state differs (-1).
        healthy_s: seconds that each call takes in a healthy world's own time, as far as it was followed.
    """

    start: Any
    causes: tuple[Cause, ...]
    skipped: frozenset[int]
    seen: Mapping[int, str]
    healthy_s: Mapping[int, float]


@dataclass(frozen=True)
class _Answered:
    state: Any
    observation: Observation

    def outcome(self, world: World[Any]) -> tuple[str, str | None, str]:
        return self.observation.content, self.observation.error_class, world.digest(self.state)


def recorded_calls(subject: RolloutSubject, tools_of_turn: Mapping[int, Sequence[str]]) -> tuple[RecordedCall, ...]:
    """The tool calls by index; those that the harness answered or refused have no step.

    Args:
        tools_of_turn: names of the tools that each user turn offers.
    """
    found = []
    for event_id, body in subject.tools:
        name = subject.text(body.name)
        arguments = None if body.arguments_parsed is None else subject.json(body.arguments_parsed)
        reached = body.executed_by == "world" and isinstance(arguments, Mapping) and name in tools_of_turn.get(body.turn, ())
        step = Step(body.turn, name, arguments) if reached and isinstance(arguments, Mapping) else None
        found.append(RecordedCall(event_id, body, step, subject.text(body.result)))
    return tuple(found)


def followed(subject: RolloutSubject, world: World[Any], calls: Sequence[RecordedCall], seeds: Sequence[int]) -> Followed | str:
    """What following the record finds, or why it cannot be followed.

    Args:
        world: healthy: as the bundle declares it.
        seeds: of the reset, as far as it is known, the likeliest first.
    """
    if subject.bundle is None or not subject.snapshots:
        return "no first state was recorded" if subject.bundle is not None else "its task was never sealed here"
    event_id, first = subject.snapshots[0]
    begun = _start(world, subject, first, seeds)
    if isinstance(begun, str):
        return begun
    start, tracked, causes, told = begun
    causes = [replace(cause, evidence_event_ids=(event_id,)) for cause in causes]
    seen = {-1: told} if causes else {}
    struck: dict[int, RecordedCall] = {}
    healthy_s: dict[int, float] = {}
    last: Observation | None = None
    lost: int | None = None
    for number, call in enumerate(calls):
        if call.step is None:
            continue
        lost = number
        if world.digest(tracked) != call.body.state_before:
            causes.append(
                Cause("state_corrupted", f"the state changed between call {number} and the one before it", (call.event_id,), number)
            )
            break
        made = _thrice(world, tracked, call)
        if isinstance(made, Broken):
            causes.append(Cause("world_crashed", f"a healthy world breaks at call {number}: {made.error}", (call.event_id,), number,
                                reproduced=0, agreed=False))  # fmt: skip
            break
        outcomes = [one.outcome(world) for one in made]
        record = (call.content, call.body.error_class, call.body.state_after)
        healthy_s[number] = made[0].observation.delay_s
        same = sum(outcome == record for outcome in outcomes)
        if same < REPEATS:
            agreed = len(set(outcomes)) == 1
            after, cause = _deviation(world, tracked, call, made[0], number=number, last=last)
            causes.append(replace(cause, reproduced=same, agreed=agreed))
            struck[number], seen[number] = call, "\n".join((repr(call.step.arguments), call.content, made[0].observation.content))
            if after is None:
                break
            # A call that was not carried out leaves the answer before it the last one.
            last = last if after is tracked else made[0].observation
            tracked = after
        else:
            tracked, last = made[0].state, made[0].observation
    else:
        lost = None
    return _recovered(world, Followed(start, tuple(causes), frozenset(), seen, healthy_s), calls, struck, lost)


def _start(
    world: World[Any], subject: RolloutSubject, first: StateSnapshotted, seeds: Sequence[int]
) -> tuple[Any, Any, list[Cause], str] | str:  # fmt: skip
    """The healthy first state, the recorded one, what is wrong with it, and where."""
    assert subject.bundle is not None
    draft, resets = subject.bundle.draft, {}
    for seed in dict.fromkeys(seeds):
        made = [guarded(lambda seed=seed: world.reset(draft, seed=seed)) for _ in range(REPEATS)]  # type: ignore[misc]
        broken = next((one for one in made if isinstance(one, Broken)), None)
        if broken is not None:
            return f"a healthy world does not reset: {broken.error}"
        if len({world.digest(state) for state in made}) > 1:
            return "resets with one seed differ from each other"
        if world.digest(made[0]) == first.state:
            return made[0], made[0], [], ""
        resets[seed] = made[0]
    seed, start = next(iter(resets.items()))
    data = subject.bytes_of(first.snapshot.blob_id)
    restored = guarded(lambda: world.restore(Snapshot(first.state, data)))
    if isinstance(restored, Broken):
        return f"the recorded first state cannot be restored: {restored.error}"
    changes = differences(world.view(start), subject.json(first.view)).changes
    found = [change.path for change in changes]
    others = [guarded(lambda n=n: world.reset(draft, seed=seed + n)) for n in range(1, _OTHER_SEEDS + 1)]  # type: ignore[misc]
    seeded = {
        change.path
        for other in others if not isinstance(other, Broken)
        for change in differences(world.view(start), world.view(other)).changes
    }  # fmt: skip
    ignored = bool(found) and all(any(is_within(path, place) or is_within(place, path) for place in seeded) for path in found)
    fault = "seed_ignored" if ignored else "wrong_reset"
    told = f"the first state differs from the task's in {len(found)} places: {', '.join(found[:12])}"
    return start, restored, [Cause(fault, told, (), 0)], "\n".join(map(repr, changes))


def _thrice(world: World[Any], state: Any, call: RecordedCall) -> list[_Answered] | Broken:
    assert call.step is not None
    asked, made = ToolCall(call.step.name, call.step.arguments, call.body.tool_call_id), []
    for _ in range(REPEATS):
        one = guarded(lambda: world.call(state, asked))
        if isinstance(one, Broken):
            return one
        made.append(_Answered(*one))
    return made


def _deviation(
    world: World[Any], state: Any, call: RecordedCall, healthy: _Answered, *, number: int, last: Observation | None
) -> tuple[Any | None, Cause]:
    """The state as recorded after a call that deviates, None where it is not known, and what happened to it."""
    body, answer = call.body, healthy.observation
    before, after = body.state_before, world.digest(healthy.state)
    known: Any | None = healthy.state if body.state_after == after else state if body.state_after == before else None
    if known is None:
        again = guarded(lambda: world.call(healthy.state, ToolCall(call.step.name, call.step.arguments, body.tool_call_id)))  # type: ignore[union-attr]
        if not isinstance(again, Broken) and world.digest(again[0]) == body.state_after:
            return again[0], Cause("call_executed_twice", f"call {number} was carried out twice", (call.event_id,), number)
    if body.error_class in _NO_ANSWER and body.error_class != answer.error_class:
        told = f"call {number} was answered {body.error_class}, which a healthy world does not answer"
        return known, Cause(_NO_ANSWER[body.error_class], told, (call.event_id,), number)
    if known is None:
        return None, Cause(
            "state_corrupted", f"call {number} left a state that it does not make of the one before", (call.event_id,), number
        )
    return known, Cause(*_answer_fault(call, answer, last, number), (call.event_id,), number)


def _answer_fault(call: RecordedCall, healthy: Observation, last: Observation | None, number: int) -> tuple[str, str]:
    if (call.content, call.body.error_class) == (healthy.content, healthy.error_class):
        return "state_corrupted", f"call {number} was answered as if carried out, and was not"
    if last is not None and (call.content, call.body.error_class) == (last.content, last.error_class):
        return "stale_answer", f"call {number} was answered with the answer of the call before"
    # A text that lacks no more than its last character was garbled, not cut.
    if healthy.content.startswith(call.content) and len(call.content) < len(healthy.content) - 1 and not _is_json(call.content):
        return "truncated_result", f"of the answer to call {number} the first {len(call.content)} of {len(healthy.content)} characters came"
    return "malformed_result", f"the answer to call {number} is not what a healthy world answers"


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except CanonicalError:
        return False
    return True


def _recovered(
    world: World[Any], found: Followed, calls: Sequence[RecordedCall], struck: Mapping[int, RecordedCall], lost: int | None
) -> Followed:
    """Marks the faults that the policy made up for by the same call again, without having had an effect twice."""
    skipped = set()
    causes = []
    for cause in found.causes:
        call = struck.get(cause.call)
        if call is not None and cause.fault not in ("state_corrupted", "call_executed_twice"):
            later = [n for n in range(cause.call + 1, len(calls)) if calls[n].step is not None and _same(calls[n], call)]
            good = [n for n in later if n not in struck and (lost is None or n < lost)]
            harmless = call.body.state_after == call.body.state_before or not _writes(world, found, calls, cause.call)
            if good and harmless:
                cause = replace(cause, recovered=True)
                skipped.add(cause.call)
        causes.append(cause)
    return replace(found, causes=tuple(causes), skipped=frozenset(skipped))


def _same(one: RecordedCall, other: RecordedCall) -> bool:
    return (
        one.step is not None and other.step is not None and (one.step.name, one.step.arguments) == (other.step.name, other.step.arguments)
    )


def _writes(world: World[Any], found: Followed, calls: Sequence[RecordedCall], number: int) -> bool:
    """Whether a call changes what the world calls material, when it is made after the calls before it in a healthy world."""
    state = found.start
    states = []
    for call in calls[: number + 1]:
        if call.step is not None:
            made = guarded(lambda state=state, step=call.step: world.call(state, ToolCall(step.name, step.arguments)))  # type: ignore[misc]
            if isinstance(made, Broken):
                return True
            states.append(state := made[0])
    materials = [world.material(world.view(one)) for one in ([found.start, *states])[-2:]]
    return any(before != after for before, after in pairwise(materials))
