"""The policies of the benchmark: one that reads what it is answered, one that does not, and many that fail by their own doing. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from audit.benchmark.kinds import Places
from ledger.bundle import BundleDraft
from ledger.canonical import parse
from ledger.errors import BundleError, CanonicalError
from training.rollout.scripts import ReadingTurn
from training.worlds import AssistantTurn, ToolCall, World
from training.worlds.bfcl.scripts import wrong
from training.worlds.bfcl.world import Bfcl
from training.worlds.source import Script, source_of

CANNOT = "I cannot go on: I do not understand what I was answered."
_RAMBLING = "Let me think about what to do next. " * 200
_SHORTEST = 3
"""Shorter texts are found in answers by chance."""
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Rehearsed:
    """A script carried out in a healthy world.

    Attributes:
        turns: its answers.
        results: what the world answered to each of their calls, in order.
        places: where faults can strike.
    """

    turns: tuple[AssistantTurn, ...]
    results: tuple[str, ...]
    places: Places


def rehearse(world: World[Any], draft: BundleDraft, turns: Sequence[AssistantTurn]) -> Rehearsed:
    """The script carried out call by call; calls whose arguments are no JSON object never reach a world."""
    state = world.reset(draft, seed=0)
    results: list[str] = []
    repeats: list[int] = []
    for turn in turns:
        for name, arguments in turn.tool_calls:
            asked = _json(arguments)
            if not isinstance(asked, dict):
                continue
            before, (state, answer) = world.digest(state), world.call(state, ToolCall(name, asked))
            if world.digest(state) != before:
                twice, _ = world.call(state, ToolCall(name, asked))
                repeats += [len(results)] if _counts(world, twice) != _counts(world, state) else []
            results.append(answer.content)
    acting = tuple(number for number, turn in enumerate(turns) if turn.tool_calls)
    return Rehearsed(tuple(turns), tuple(results), Places(len(results), tuple(repeats), len(turns), acting))


def _counts(world: World[Any], state: Any) -> Any:
    return world.material(world.view(state))


@dataclass(frozen=True)
class CarefulTurn(ReadingTurn):
    """A turn that takes from earlier results what it needs, and gives up where the last one is not what it should be.

    Attributes:
        before: results that the conversation must hold.
        shape: of the last of them.
        reads: places in the arguments, each with the result and the place in it where the value stands.
    """

    before: int = 0
    shape: str = ""
    reads: tuple[tuple[Path, int, Path], ...] = ()

    def heard(self, messages: Sequence[Mapping[str, Any]]) -> AssistantTurn:
        """The turn with what was read, or that it cannot go on."""
        results = [str(message["content"]) for message in messages if message["role"] == "tool"]
        lost = any(message["role"] == "assistant" and message.get("content") == CANNOT for message in messages)
        if lost or len(results) < self.before or (self.before and _shape(results[-1]) != self.shape):
            return AssistantTurn(CANNOT)
        if not self.reads:
            return AssistantTurn(self.content, self.tool_calls)
        (name, text), *_ = self.tool_calls
        arguments = json.loads(text)
        for place, result, where in self.reads:
            found = _at(_json(results[result]), where)
            if not isinstance(found, str):
                return AssistantTurn(CANNOT)
            arguments = _put(arguments, place, found)
        return AssistantTurn(self.content, ((name, json.dumps(arguments)),))


def careful(draft: BundleDraft, rehearsed: Rehearsed) -> list[AssistantTurn]:
    """The script as a policy that reads plays it: what stands in an earlier result and not in the request comes from there."""
    request = json.dumps(dict(draft.request), ensure_ascii=False)
    seen = [dict(_texts(_json(result))) for result in rehearsed.results]
    done, turns = 0, list[AssistantTurn]()
    for turn in rehearsed.turns:
        reads = []
        for _, arguments in turn.tool_calls:
            for place, text in _texts(_json(arguments)):
                source = None if text in request else _source(text, seen[:done])
                reads += [] if source is None else [(place, *source)]
        shape = _shape(rehearsed.results[done - 1]) if done else ""
        turns.append(CarefulTurn(turn.content, turn.tool_calls, done, shape, tuple(reads)))
        done += len(turn.tool_calls)
    return turns


def right_policies(worlds: Mapping[str, World[Any]]) -> dict[str, Script]:
    """The policies that solve every task: `oracle` goes on whatever it is answered, `careful` reads."""

    def reading(draft: BundleDraft) -> list[AssistantTurn]:
        return careful(draft, rehearse(worlds[draft.world], draft, _oracle(draft)))

    return {"oracle": _oracle, "careful": reading}


def failing_policies(worlds: Mapping[str, World[Any]]) -> dict[str, Script]:
    """The policies that mostly fail, by name; one that has no way through a task raises a BundleError."""
    names = (
        "wrong_recipient", "duplicate_sender", "ignores_cooldown", "mails_on_the_limit", "forgets_reminder_time", "over_writer", "loops",
        "gives_up", "malformed_call", "mails_nobody", "mails_everyone", "ignores_the_window", "only_never_reminded", "fixed_window",
        "window_alone", "drops_last_call",
    )  # fmt: skip
    noisy = {
        f"noisy_teacher_{noise}_{lapse}": partial(_noisy, noise=noise, lapse=lapse) for noise, lapse in ((0.3, 0.0), (0.6, 0.0), (0.2, 0.5))
    }
    known: dict[str, dict[str, list[AssistantTurn]]] = {}
    changed = {name: _neighbour(worlds, name, known) for name in ("drop_call", "change_argument")}
    return {**{name: _named(name) for name in names}, **noisy, **changed, "stops_early": _stops_early, "rambles": _rambles}


def _named(name: str) -> Script:
    def play(draft: BundleDraft) -> Sequence[AssistantTurn]:
        script = source_of(draft.world).scripts.get(name)
        walk = draft.world == "ticket_desk" and "rule" in draft.spec
        if script is None or (draft.world == "ticket_desk" and not walk and name in _walks()):
            raise BundleError(f"bundle {draft.name!r} has no policy {name!r}")
        return script(draft)

    return play


def _walks() -> frozenset[str]:
    from training.worlds.ticket_desk.walks import WALKS

    return frozenset(WALKS)


def _noisy(draft: BundleDraft, *, noise: float, lapse: float) -> Sequence[AssistantTurn]:
    from training.worlds.ticket_desk.walks import noisy_teacher

    if "rule" not in draft.spec:
        raise BundleError(f"bundle {draft.name!r} is no walk")
    return noisy_teacher(draft, noise=noise, lapse=lapse)


def _neighbour(worlds: Mapping[str, World[Any]], name: str, known: dict[str, dict[str, list[AssistantTurn]]]) -> Script:
    """The policy of that name; what is `known` of a task need not be searched again, which takes many replays."""

    def play(draft: BundleDraft) -> Sequence[AssistantTurn]:
        world = worlds[draft.world]
        if draft.name not in known:
            known[draft.name] = wrong(draft, world) if isinstance(world, Bfcl) else {}
        if name not in known[draft.name]:
            raise BundleError(f"bundle {draft.name!r} has no neighbour {name!r}")
        return known[draft.name][name]

    return play


def _oracle(draft: BundleDraft) -> Sequence[AssistantTurn]:
    return source_of(draft.world).scripts["oracle"](draft)


def _stops_early(draft: BundleDraft) -> Sequence[AssistantTurn]:
    """The first half of the calls, then the texts alone."""
    turns = _oracle(draft)
    kept = sum(bool(turn.tool_calls) for turn in turns) // 2
    acting = [number for number, turn in enumerate(turns) if turn.tool_calls]
    left_out = set(acting[kept:])
    return [turn for number, turn in enumerate(turns) if number not in left_out]


def _rambles(draft: BundleDraft) -> Sequence[AssistantTurn]:
    """The first call, then a text without an end."""
    turns = _oracle(draft)
    first = next((number for number, turn in enumerate(turns) if turn.tool_calls), 0)
    return [*turns[: first + 1], AssistantTurn(_RAMBLING)]


def _json(text: str) -> Any:
    try:
        return parse(text)
    except CanonicalError:
        return None


def _shape(text: str) -> str:
    """Type and names of a result, by which a reader knows whether it is one of the sort that it asked for."""
    value = _json(text)
    if value is None and text.strip() != "null":
        return "no JSON"
    return f"{type(value).__name__} {sorted(value) if isinstance(value, dict) else ''}"


def _texts(value: Any, place: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str) and len(value) >= _SHORTEST:
        yield place, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _texts(inner, (*place, key))


def _source(text: str, seen: Sequence[Mapping[Path, str]]) -> tuple[int, Path] | None:
    """The latest result that holds a text, and where."""
    for number in range(len(seen) - 1, -1, -1):
        for place, held in seen[number].items():
            if held == text:
                return number, place
    return None


def _at(value: Any, place: Path) -> Any:
    for key in place:
        named = isinstance(value, dict) and key in value
        if not named and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            return None
        value = value[key]
    return value


def _put(value: Any, place: Path, new: Any) -> Any:
    if not place:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _put(copy[place[0]], place[1:], new)
    return copy
