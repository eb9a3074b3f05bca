"""A world version as its checks see it: rounds of legal and illegal calls of every tool, from the states of sample tasks. Runs worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Literal

from audit.paths import Step, Walk, steps_of, walk
from audit.run import Broken, guarded
from audit.tool_calls import CallMaker, is_read
from ledger.bundle import BundleDraft
from ledger.canonical import digest
from training.worlds import Change, ToolCall, World

Outcome = Literal["pass", "warning", "fail"]


@dataclass(frozen=True)
class Round:
    """One call by the front end and what the back end made of it.

    Attributes:
        tool: which tool the round is about.
        kind: `recorded` (a reference's own call at its own place), `legal` (made from schema and state), or what is wrong with it.
        call: as it was made.
        outcome: pass; warning where nobody can say whether the world is right; fail.
        fault: what is wrong, when it is a failure or a warning.
        error_class: of the observation.
        crashed: the world raised.
        changes: where the material state differs after it.
    """

    tool: str
    kind: str
    call: Step
    outcome: Outcome
    fault: str
    error_class: str | None
    crashed: bool
    changes: tuple[Change, ...]

    @property
    def legal(self) -> bool:
        """Whether the call keeps the tool's schema."""
        return self.kind in ("recorded", "legal")

    def as_json(self) -> dict[str, Any]:
        """The round as a JSON object."""
        changes = [{"path": change.path, "before": change.before, "after": change.after} for change in self.changes]
        return {"tool": self.tool, "kind": self.kind, "fault": self.fault, "call": self.call.as_json(), "changes": changes}


@dataclass(frozen=True)
class WorldSubject:
    """What the checks of one world version look at.

    Attributes:
        world: the world, open.
        drafts: sample tasks, from whose states and references calls are made.
        rounds_least: how many rounds in all.
        rounds_per_tool: how many a tool at least.
        rounds_most: how many in all at most; then each tool gets fewer.
        seed: of the calls.
    """

    world: World[Any]
    drafts: Sequence[BundleDraft]
    rounds_least: int
    rounds_per_tool: int
    rounds_most: int
    seed: int = 0

    @cached_property
    def tools(self) -> dict[str, Mapping[str, Any]]:
        """Tool name to schema, of all tools that the sample tasks may call in some turn."""
        return tools_of(self.world, self.drafts)

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """All rounds, tool by tool: half legal, of which half are references' own calls where there are any, half illegal."""
        if not self.tools:
            return ()
        share = max(self.rounds_per_tool, -(-self.rounds_least // len(self.tools)))
        share = max(4, min(share, self.rounds_most // len(self.tools)))
        return tuple(round_ for tool in sorted(self.tools) for round_ in self._of_tool(tool, share))

    @cached_property
    def _walks(self) -> tuple[tuple[BundleDraft, Walk, CallMaker], ...]:
        """The sample tasks with their references walked as far as they go."""
        made = []
        for draft in self.drafts:
            start = guarded(lambda draft=draft: self.world.reset(draft, seed=self.seed))  # type: ignore[misc]
            if isinstance(start, Broken):
                continue
            known = steps_of((draft.reference or {}).get("turns", ()))
            walked = walk(self.world, start, known)
            tools = list(tools_of(self.world, [draft]).values())
            made.append((draft, walked, CallMaker(tools, [self.world.view(walked.states[0]), self.world.view(walked.states[-1])], known)))
        return tuple(made)

    def _of_tool(self, tool: str, share: int) -> list[Round]:
        rng = Random(f"{self.world.version}/{tool}/{self.seed}")
        offering = [(walked, maker) for _, walked, maker in self._walks if tool in maker.schemas]
        recorded = [
            (walked.states[index], step)
            for walked, _ in offering
            for index, step in enumerate(walked.steps[: len(walked.trace) + (walked.broken is not None)])
            if step.name == tool
        ]
        if not offering:
            return []
        rounds = []
        for number in range(share):
            walked, maker = offering[number % len(offering)]
            state = walked.states[rng.randrange(len(walked.states))]
            if number % 4 == 0 and recorded:
                at, step = recorded[(number // 4) % len(recorded)]
                rounds.append(self._round(tool, "recorded", at, step))
            elif number % 2 == 0:
                rounds.append(self._round(tool, "legal", state, Step(0, tool, maker.legal(tool, rng))))
            else:
                at, base = (state, maker.legal(tool, rng)) if not recorded else _base(rng, recorded)
                wrong = maker.illegal(tool, rng, base)
                rounds.append(self._round(tool, wrong.kind, at, Step(0, wrong.name, wrong.arguments)))
        return rounds

    def _round(self, tool: str, kind: str, state: Any, step: Step) -> Round:
        world = self.world
        before = world.digest(state)
        made = guarded(lambda: world.call(state, ToolCall(step.name, step.arguments, "probe")))
        if isinstance(made, Broken):
            return Round(tool, kind, step, "fail", f"the world broke: {made.error} ({made.place})", None, True, ())
        after, observation = made
        changes: tuple[Change, ...] = ()
        if world.digest(after) != before:
            changes = material_changes(world, state, after)
        outcome, fault = _judge(kind in ("recorded", "legal"), kind, observation.error_class, bool(changes))
        if not isinstance(observation.content, str):
            outcome, fault = "fail", f"the observation is {type(observation.content).__name__}; allowed: text"
        if world.digest(state) != before:
            outcome, fault = "fail", "the call changed the state that it was given"
        return Round(tool, kind, step, outcome, fault, observation.error_class, False, changes)


def tools_of(world: World[Any], drafts: Sequence[BundleDraft]) -> dict[str, Mapping[str, Any]]:
    """Tool name to schema, of all tools that the tasks may call in some turn."""
    found: dict[str, Mapping[str, Any]] = {}
    for draft in drafts:
        for turn in range(len(draft.request["turns"])):
            found.update({tool["function"]["name"]: tool for tool in world.tools(draft, turn=turn)})
    return found


def material_changes(world: World[Any], before: Any, after: Any) -> tuple[Change, ...]:
    """Where the material parts of two states differ."""
    from training.worlds.difference import differences

    return differences(world.material(world.view(before)), world.material(world.view(after))).changes


def sample(world: World[Any], drafts: Sequence[BundleDraft], most: int) -> list[BundleDraft]:
    """Tasks that together offer every tool that any of them offers, then others up to `most`, in the order given."""
    chosen, seen, rest = [], set[str](), []
    for draft in drafts:
        tools = set(tools_of(world, [draft]))
        if tools <= seen:
            rest.append(draft)
        else:
            chosen.append(draft)
            seen |= tools
    return [*chosen, *rest[: max(0, most - len(chosen))]]


def is_reading(subject: WorldSubject, tool: str) -> bool:
    """Whether a tool of the subject says that it only reads."""
    return is_read(subject.tools[tool])


def scope_of(tools: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Tool name to digest of its schema: what an exercise covers."""
    return {name: digest(dict(tool), allow_nul=True)[:16] for name, tool in sorted(tools.items())}


def _base(rng: Random, recorded: Sequence[tuple[Any, Step]]) -> tuple[Any, dict[str, Any]]:
    at, step = recorded[rng.randrange(len(recorded))]
    return at, dict(step.arguments)


def _judge(legal: bool, kind: str, error_class: str | None, changed: bool) -> tuple[Outcome, str]:
    if legal and error_class is None:
        return "pass", ""
    if legal and changed:
        return "fail", f"refused as {error_class}, and the material state changed"
    if legal and kind == "recorded":
        # Some references hold calls that are meant to be refused.
        return "warning", f"a reference's own call was refused as {error_class}"
    if legal:
        return "warning", f"a call that keeps the schema was refused as {error_class}"
    if error_class is None and changed:
        return "fail", f"an illegal call ({kind}) was carried out"
    if error_class is None:
        return "warning", f"an illegal call ({kind}) was answered without an error class"
    return ("fail", f"refused as {error_class}, and the material state changed") if changed else ("pass", "")
