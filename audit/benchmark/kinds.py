"""The kinds of planted faults: at which boundary each strikes, how a plan of it is drawn, and which kinds are held out. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

from audit.taxonomy import boundary_of
from ledger.errors import SettingsError
from ledger.events import Boundary


@dataclass(frozen=True)
class Places:
    """Where a fault can strike in a rollout that goes as its script says.

    Attributes:
        calls: number of tool calls.
        repeats: indices of those that change what counts of the state once more when they are carried out twice.
        answers: number of model calls.
        acting: indices of model calls with a tool call.
        other_start: initial state of another task of the same sort; None where there is no other.
    """

    calls: int
    repeats: tuple[int, ...]
    answers: int
    acting: tuple[int, ...]
    other_start: Any = None


Entry = Mapping[str, Any]
Draw = Callable[[Random, Places], Entry | None]
"""An entry of a plan of faults; None where such a rollout has no place for it."""


@dataclass(frozen=True)
class Kind:
    """A kind of planted fault, by its name in `audit.taxonomy`.

    Attributes:
        draw: how an entry of a plan is drawn; None for those that are not planted by plans.
        policies: what share of its cases which sort of policy makes: `careful`, `blind` (goes on whatever it is answered) or `failing`.
        worlds: where it can be planted; everywhere when empty.
        held_out: whether nothing may be tuned on it.
    """

    name: str
    draw: Draw | None = None
    policies: tuple[tuple[str, int], ...] = (("careful", 7), ("blind", 2), ("failing", 1))
    worlds: tuple[str, ...] = ()
    held_out: bool = False

    @property
    def boundary(self) -> Boundary:
        """Where it strikes."""
        return boundary_of(self.name)


def _at_call(kind: str, *, first: int = 0, repeats: bool = False, **choices: Sequence[Any]) -> Draw:
    """An entry at a drawn tool call, with parameters drawn from choices; at one that counts twice where `repeats` and there is one."""

    def draw(rng: Random, places: Places) -> Entry | None:
        calls = [at for at in (places.repeats if repeats and places.repeats else range(places.calls)) if at >= first]
        params = {name: rng.choice(list(values)) for name, values in choices.items()}
        return {"kind": kind, "at": [rng.choice(calls)], **params} if calls else None

    return draw


def _at_answer(kind: str, *, first: int = 0) -> Draw:
    """An entry at a drawn model call that asks for a tool; from the third on a prompt that lost something no longer extends the last."""

    def draw(rng: Random, places: Places) -> Entry | None:
        answers = [at for at in places.acting if at >= first]
        return {"kind": kind, "at": [rng.choice(answers)]} if answers else None

    return draw


def _dropped(rng: Random, places: Places) -> Entry | None:
    entry = _at_call("dropped_connection")(rng, places)
    told = rng.random() < 0.5
    return entry and {**entry, "recovered": told, "executed": told and rng.random() < 0.5}


def _reset(rng: Random, places: Places) -> Entry | None:
    """Mostly what another task left, which a stray write seldom matters beside."""
    if rng.random() < 0.25:
        return {"kind": "wrong_reset"}
    return None if places.other_start is None else {"kind": "wrong_reset", "initial_state": places.other_start}


_RIGHT = (("careful", 5), ("blind", 4), ("failing", 1))
_DESK = ("ticket_desk",)
_KINDS = (
    Kind("tool_timeout", _at_call("timeout", seconds=(5.0, 30.0, 60.0), executed=(False, True))),
    Kind("permission_denied", _at_call("permission_denied")),
    Kind("malformed_result", _at_call("malformed_result", form=("broken_json", "wrong_type"))),
    Kind("truncated_result", _at_call("truncated_result"), held_out=True),
    Kind("connection_dropped", _dropped),
    Kind("call_executed_twice", _at_call("duplicate_delivery", repeats=True, form=("executed_twice",)), policies=_RIGHT),
    Kind("stale_answer", _at_call("duplicate_delivery", first=1, form=("stale_answer",)), held_out=True),
    Kind("state_corrupted", _at_call("corrupted_state"), policies=_RIGHT, worlds=_DESK),
    Kind("wrong_reset", _reset, policies=_RIGHT, worlds=_DESK),
    Kind("seed_ignored", lambda rng, places: {"kind": "seed_ignored"}, policies=_RIGHT),
    Kind("call_dropped_by_parser", _at_answer("call_dropped"), policies=_RIGHT),
    Kind("history_cut", _at_answer("history_cut", first=2), policies=_RIGHT, held_out=True),
    Kind("length_stop_as_failure", _at_answer("length_stop"), policies=_RIGHT),
    Kind("template_drift", _at_answer("template_drift", first=2)),
    Kind("verifier_crashed", policies=_RIGHT),
    Kind("false_accept", policies=(("failing", 1),)),
    Kind("false_reject", policies=(("careful", 1), ("blind", 1)), held_out=True),
    Kind("stale_weights"), Kind("masked_row_votes"), Kind("swapped_rewards", held_out=True), Kind("logprobs_filled"),
)  # fmt: skip
KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _KINDS})
"""By name, in the order in which tables show them."""


def chosen_kinds(text: str) -> tuple[Kind, ...]:
    """The kinds that a text asks for.

    Args:
        text: names with commas, or `tuned` for all that something may be tuned on, `held-out` for the others, `all` for both.
    Raises:
        SettingsError: it names something else.
    """
    if text in ("tuned", "held-out", "all"):
        return tuple(kind for kind in _KINDS if text == "all" or kind.held_out == (text == "held-out"))
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        raise SettingsError(f"kinds {text!r}: no {', '.join(unknown) or 'name'}; allowed: tuned, held-out, all, or {', '.join(KINDS)}")
    return tuple(kind for kind in _KINDS if kind.name in names)
