"""Asks a bundle's verifier, and the world's others, again about a recorded end. Runs verifiers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from audit.replays import REPEATS
from audit.rollout_subject import RolloutSubject
from audit.run import Broken, guarded
from audit.world_replay import RecordedCall
from ledger.bundle import Bundle
from ledger.canonical import digest, parse
from ledger.errors import CanonicalError, MethodError, SettingsError
from ledger.events import VerifierRegistered
from training.verifiers import Judge, JudgeTask, TraceStep, verifiers
from training.worlds import Observation, ToolCall, World
from training.worlds.source import source_of

Registered = Callable[[str], tuple[VerifierRegistered, Mapping[str, Any]] | None]
"""Id of a verifier to its registration and the JSON of its method; None for one that is not registered."""


@dataclass(frozen=True)
class RecordedEnd:
    """A recorded rollout as verifiers see it."""

    s0: Any
    s_end: Any
    trace: tuple[TraceStep, ...]


def recorded_end(subject: RolloutSubject, calls: tuple[RecordedCall, ...]) -> RecordedEnd | None:
    """First and last state with the calls between them; None where no end was recorded."""
    if len(subject.snapshots) < 2:
        return None
    made = []
    for call in calls:
        if call.body.executed_by == "world":
            arguments = None if call.body.arguments_parsed is None else subject.json(call.body.arguments_parsed)
            asked = ToolCall(subject.text(call.body.name), arguments if isinstance(arguments, Mapping) else {}, call.body.tool_call_id)
            made.append(TraceStep(call.body.turn, asked, Observation(call.content, call.body.error_class)))
    first, last = subject.snapshots[0][1], subject.snapshots[-1][1]
    return RecordedEnd(subject.json(first.view), subject.json(last.view), tuple(made))


def judge_of(verifier_id: str, registered: Registered) -> Judge | str:
    """The verifier of this id, or why it cannot be asked."""
    found = registered(verifier_id)
    if found is None:
        return "its verifier is not registered here"
    body, method = found
    try:
        bound = verifiers.bind(body.name, **method.get("params", {}))
    except MethodError as error:
        return f"its verifier is not among this release's: {error}"
    if bound.ref.method_id != verifier_id:
        return f"verifier {body.name!r} of this release is another version than the one that judged"
    return bound.call


def asked_again(judge: Judge, end: RecordedEnd, bundle: Bundle, world: World[Any]) -> tuple[str, ...]:
    """What the verifier says each time: `passed`, `failed` or `error`."""
    return tuple({True: "passed", False: "failed", None: "error"}[_asked(judge, end, bundle, world)] for _ in range(REPEATS))


def other_opinions(bundle: Bundle, end: RecordedEnd, world: World[Any], own: str) -> dict[str, bool | None]:
    """What the other verifiers that the world ships say, by name, without the comparison of end states."""
    try:
        shipped = [name for name, _ in source_of(world.name).verifiers]
    except SettingsError:
        return {}
    return {name: _asked(verifiers[name], end, bundle, world) for name in shipped if name not in (own, "end_state")}


def is_reference_end(bundle: Bundle, end: RecordedEnd, world: World[Any]) -> bool | None:
    """Whether the recorded end equals the reference's in all that is material; None where the reference has no end."""
    reference = bundle.draft.reference or {}
    if reference.get("end_state") is None and not isinstance(reference.get("end_state_digest"), str):
        return None
    seen = world.material(end.s_end)
    if reference.get("end_state") is not None:
        return digest(seen, allow_nul=True) == digest(reference["end_state"], allow_nul=True)
    return bool(digest(seen, allow_nul=True) == reference["end_state_digest"])


def method_of(data: bytes) -> Mapping[str, Any]:
    """The method of a registration; empty where it is none."""
    try:
        value = parse(data)
    except CanonicalError:
        return {}
    return value if isinstance(value, Mapping) else {}


def _asked(judge: Judge, end: RecordedEnd, bundle: Bundle, world: World[Any]) -> bool | None:
    verdict = guarded(lambda: judge(end.s0, end.s_end, end.trace, JudgeTask(bundle.draft, world.material)))
    return None if isinstance(verdict, Broken) or verdict.error is not None else verdict.passed
