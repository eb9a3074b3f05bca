"""What a wrongly judged solution did otherwise than the reference, and the same done to another task's reference. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random
from typing import Any, Literal

from ledger.canonical import canonical_bytes
from ledger.errors import ProposalError
from training.proposing.acting import Turns, calls_of
from training.proposing.arguments import Leaf, Pools, leaves_of, nested
from training.worlds import ToolCall

Kind = Literal["drop", "repeat", "alter", "add", "earlier", "later"]


@dataclass(frozen=True)
class Counterexample:
    """A solution that a verifier judged wrongly.

    Attributes:
        draft: name of the task.
        verifier: who judged.
        accepted: what it said.
        correct: what is true.
        turns: the calls of the solution.
    """

    draft: str
    verifier: str
    accepted: bool
    correct: bool
    turns: Turns


@dataclass(frozen=True)
class Edit:
    """One difference from a reference: calls of `tool` dropped, repeated, made earlier or later, or with other values at `paths`.

    For `add` these are calls of their own; `every` when all of the reference's calls of the tool were treated so.
    """

    kind: Kind
    tool: str
    every: bool
    paths: tuple[tuple[Leaf, Any, Any], ...] = ()


def read_counterexample(value: Mapping[str, Any]) -> Counterexample:
    """The counterexample in a JSON object.

    Raises:
        ProposalError: a field is missing or of the wrong kind, or the verifier was right.
    """
    kinds: dict[str, type] = {"draft": str, "verifier": str, "accepted": bool, "correct": bool}
    for name, kind in kinds.items():
        if not isinstance(value.get(name), kind):
            raise ProposalError(f"counterexample.{name} is {value.get(name)!r}; allowed: {kind.__name__}")
    if value["accepted"] == value["correct"]:
        raise ProposalError(
            f"counterexample of draft {value['draft']!r}: {value['verifier']} judged it rightly, so there is nothing to learn"
        )
    return Counterexample(value["draft"], value["verifier"], value["accepted"], value["correct"], calls_of(value.get("turns")))


def edits(reference: Turns, solution: Turns) -> list[Edit]:
    """How a solution differs from the reference, edit by edit."""
    ours = [call for calls in reference for call in calls]
    theirs = [call for calls in solution for call in calls]
    a, b = [_key(call) for call in ours], [_key(call) for call in theirs]
    removed: list[ToolCall] = []
    added: list[ToolCall] = []
    for operation, a1, a2, b1, b2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if operation != "equal":
            removed += ours[a1:a2]
            added += theirs[b1:b2]
    found: list[Edit] = []
    for call in list(added):
        same = next((item for item in removed if _key(item) == _key(call)), None)
        if same is not None:
            removed.remove(same)
            added.remove(call)
            kind: Kind = "earlier" if b.index(_key(call)) < a.index(_key(call)) else "later"
            found.append(Edit(kind, call.name, every=False))
    for call in added:
        partner = next((item for item in removed if item.name == call.name), None)
        if partner is not None:
            removed.remove(partner)
            found.append(Edit("alter", call.name, _is_every(call.name, "alter", ours, theirs), _changed(partner, call)))
        elif _key(call) in a:
            found.append(Edit("repeat", call.name, _is_every(call.name, "repeat", ours, theirs)))
        else:
            near = next((item for item in ours if item.name == call.name), None)
            found.append(Edit("add", call.name, every=False, paths=() if near is None else _changed(near, call)))
    found += [Edit("drop", call.name, _is_every(call.name, "drop", ours, theirs)) for call in removed]
    return _distinct(found)


def transferred(found: Sequence[Edit], reference: Turns, known: tuple[Pools, Pools], *, rng: Random) -> Turns:
    """Another task's reference with the same done to it.

    Args:
        found: the edits.
        reference: the other task's calls.
        known: values by name in the state of the task that the edits are from, and in that of the other task.
        rng: chooses the calls and values.
    Raises:
        ProposalError: the other task has no such call, or no other value.
    """
    calls = [(turn, call) for turn, each in enumerate(reference) for call in each]
    for edit in found:
        places = [index for index, (_, call) in enumerate(calls) if call.name == edit.tool]
        if not places:
            raise ProposalError(f"no such call: the reference never calls {edit.tool}")
        chosen = set(places if edit.every else [rng.choice(places)])
        edited: list[tuple[int, ToolCall]] = []
        moved: list[tuple[int, ToolCall]] = []
        for index, (turn, call) in enumerate(calls):
            if index not in chosen:
                edited.append((turn, call))
            elif edit.kind == "repeat":
                edited += [(turn, call), (turn, call)]
            elif edit.kind == "alter":
                edited.append((turn, _altered(call, edit, known, rng)))
            elif edit.kind == "add":
                edited += [(turn, call), (turn, _altered(call, edit, known, rng))]
            elif edit.kind in ("earlier", "later"):
                moved.append((turn, call))
        calls = [*moved, *edited] if edit.kind == "earlier" else [*edited, *moved]
    return tuple(tuple(call for at, call in calls if at == turn) for turn in range(len(reference)))


def _altered(call: ToolCall, edit: Edit, known: tuple[Pools, Pools], rng: Random) -> ToolCall:
    leaves = dict(leaves_of(call.arguments))
    for path, old, new in edit.paths:
        leaves[path] = _other_value(leaves.get(path), (old, new), known, rng)
    return ToolCall(call.name, nested({path: value for path, value in leaves.items() if value is not None}))


def _other_value(current: Any, seen: tuple[Any, Any], known: tuple[Pools, Pools], rng: Random) -> Any:
    """Another value from where the edit's old and new value were found together; the new value itself where that is nowhere."""
    source, target = known
    old, new = seen
    names = [name for name, values in source.items() if new in values and (old is None or old in values) and name in target]
    names.sort(key=lambda name: (len(source[name]), name))
    for name in names:
        others = [value for value in target[name] if value != current]
        if others:
            return rng.choice(others)
    if names:
        raise ProposalError(f"no other value: the state holds only {current!r} under {names[0]!r}")
    return new


def _changed(before: ToolCall, after: ToolCall) -> tuple[tuple[Leaf, Any, Any], ...]:
    old, new = dict(leaves_of(before.arguments)), dict(leaves_of(after.arguments))
    return tuple((path, old.get(path), new.get(path)) for path in dict.fromkeys([*old, *new]) if old.get(path) != new.get(path))


def _is_every(tool: str, kind: Kind, ours: Sequence[ToolCall], theirs: Sequence[ToolCall]) -> bool:
    before, after = [sum(call.name == tool for call in calls) for calls in (ours, theirs)]
    kept = {_key(call) for call in ours if call.name == tool} & {_key(call) for call in theirs}
    return {"drop": after == 0, "repeat": after >= 2 * before, "alter": not kept}.get(kind, False) and before > 1


def _distinct(found: Sequence[Edit]) -> list[Edit]:
    """Edits that treat every call of a tool alike are one edit."""
    kept: list[Edit] = []
    for edit in found:
        if not (edit.every and any((item.kind, item.tool, item.every) == (edit.kind, edit.tool, True) for item in kept)):
            kept.append(edit)
    return kept


def _key(call: ToolCall) -> bytes:
    return canonical_bytes([call.name, dict(call.arguments)], allow_nul=True)
