"""A task bundle as its checks see it: the draft, the world, the verifier, and what was tried on them, worked out once. Runs worlds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from audit.bundle_batch import ALONE, BundleBatch
from audit.bundle_mutants import Mutant, mutants_of
from audit.paths import Step, Walk, steps_of, walk
from audit.run import Broken, guarded
from audit.tool_calls import CallMaker, is_read
from audit.world_subject import tools_of
from ledger.bundle import Bundle, BundleDraft
from ledger.queries_rows import RolloutLine
from training.rewards import JudgedRollout, Reward, rewards
from training.verifiers import Judge, JudgeTask, Verdict
from training.worlds import Change, World
from training.worlds.difference import differences, is_within

_STRAYS = 4
_STRAY_TOOLS = 10
_STRAY_TRIES = 4


@dataclass(frozen=True)
class Attempt:
    """A path that was tried and judged.

    Attributes:
        name: what it is, such as `reference`, `no_op` or a mutant's kind.
        walk: what the world made of it.
        view: the state's view at the end.
        material: the part of it that decides whether two ends are the same.
        verdict: what the verifier says; one with an error when it broke, or when the world did.
    """

    name: str
    walk: Walk
    view: Any
    material: Any
    verdict: Verdict

    @property
    def accepted(self) -> bool:
        """Whether every condition in the basis passed."""
        return self.verdict.passed is True

    def as_json(self) -> dict[str, Any]:
        """The attempt as a JSON object: calls, end and what was said of it."""
        statuses = {condition.name: condition.status for condition in self.verdict.conditions}
        broken = None if self.walk.broken is None else self.walk.broken.error
        return {
            "path": self.name, "passed": self.verdict.passed, "conditions": statuses, "verifier_error": self.verdict.error,
            "world_error": broken, "calls": [step.as_json() for step in self.walk.steps],
        }  # fmt: skip


@dataclass(frozen=True)
class BundleSubject:
    """What the checks of one bundle look at.

    Attributes:
        bundle: the sealed or sealable bundle.
        world: its world, open.
        judge: its own verifier.
        batch: all bundles that were proposed together, for what can only be seen among many.
        limits: of its harness, by name.
        rollouts: what the ledger holds of policies' attempts at it.
        reward: the rule by which verdicts become numbers.
        mutants_per_kind: how many mutants of one kind are tried at most.
    """

    bundle: Bundle
    world: World[Any]
    judge: Judge
    batch: BundleBatch = ALONE
    limits: Mapping[str, int | float] = field(default_factory=dict)
    rollouts: Sequence[RolloutLine] = ()
    reward: Reward = field(default_factory=lambda: rewards["all_conditions"])
    mutants_per_kind: int = 2

    @property
    def draft(self) -> BundleDraft:
        """The bundle's draft."""
        return self.bundle.draft

    @property
    def solution(self) -> Mapping[str, Any]:
        """The reference, empty when there is none."""
        return self.draft.reference or {}

    @cached_property
    def start(self) -> Any:
        """The initial state under seed 0."""
        return self.world.reset(self.draft, seed=0)

    @cached_property
    def start_view(self) -> Any:
        """The view of the initial state."""
        return self.world.view(self.start)

    @cached_property
    def start_material(self) -> Any:
        """The material part of the initial state."""
        return self.world.material(self.start_view)

    @cached_property
    def tools(self) -> dict[str, Mapping[str, Any]]:
        """Tool name to schema, of all tools of some turn."""
        return tools_of(self.world, [self.draft])

    @cached_property
    def reference(self) -> Attempt | None:
        """The reference, replayed and judged; None when the draft has none."""
        return None if self.draft.reference is None else self.attempt("reference", steps_of(self.solution.get("turns", ())))

    @cached_property
    def no_op(self) -> Attempt:
        """No call at all, judged."""
        return self.attempt("no_op", ())

    @cached_property
    def equivalent(self) -> tuple[Attempt, ...]:
        """The paths that the draft declares as right as the reference."""
        return tuple(self.attempt(str(path["name"]), steps_of(path["turns"])) for path in self.solution.get("equivalent", ()))

    @cached_property
    def wrong(self) -> tuple[tuple[Attempt, tuple[str, ...]], ...]:
        """The paths that the draft declares as wrong, each with the conditions that it is said to break."""
        return tuple(
            (self.attempt(str(path["name"]), steps_of(path["turns"])), tuple(path.get("breaks", ())))
            for path in self.solution.get("wrong", ())
        )

    @cached_property
    def writes(self) -> tuple[int, ...]:
        """Indices of the reference's calls that change the material state."""
        if self.reference is None:
            return ()
        states = self.reference.walk.states
        materials = [self.world.material(self.world.view(state)) for state in states]
        return tuple(index for index in range(len(states) - 1) if materials[index] != materials[index + 1])

    @cached_property
    def maker(self) -> CallMaker:
        """Makes calls from the tools, the reference and the states that it passes."""
        views = [self.start_view] if self.reference is None else [self.start_view, self.reference.view]
        return CallMaker(list(self.tools.values()), views, () if self.reference is None else self.reference.walk.steps)

    @cached_property
    def mutants(self) -> tuple[tuple[Mutant, Attempt], ...]:
        """Mutants of the reference that end in another material state than it, judged; the others are equivalent and left out."""
        reference = self.reference
        if reference is None:
            return ()
        kept, kinds = list[Mutant](), Counter[str]()
        for mutant in mutants_of(reference.walk.steps, self.writes, self.maker):
            if kinds[mutant.kind] < self.mutants_per_kind:
                walked, _, material = self.end_of(mutant.steps)
                if walked.broken is None and material != reference.material:
                    kinds[mutant.kind] += 1
                    kept.append(mutant)
        return tuple((mutant, self.attempt(mutant.kind, mutant.steps)) for mutant in (*kept, *self.strays))

    @cached_property
    def strays(self) -> tuple[Mutant, ...]:
        """The reference followed by one write in a place that it leaves alone, of as many tools as can make one."""
        reference = self.reference
        if reference is None or reference.walk.broken is not None:
            return ()
        touched = [change.path for change in differences(self.start_material, reference.material).changes]
        rng, found = Random(f"stray/{self.bundle.bundle_id}"), list[Mutant]()
        last = reference.walk.steps[-1].turn if reference.walk.steps else 0
        writing = [reference.walk.steps[index].name for index in self.writes]
        tools = sorted((name for name, tool in self.tools.items() if not is_read(tool)), key=lambda name: (name not in writing, name))
        for tool in tools[:_STRAY_TOOLS]:
            for _ in range(_STRAY_TRIES):
                steps = (*reference.walk.steps, Step(last, tool, self.maker.legal(tool, rng)))
                walked, _, material = self.end_of(steps)
                places = [change.path for change in differences(reference.material, material).changes] if walked.broken is None else []
                if places and not any(is_within(place, path) or is_within(path, place) for place in places for path in touched):
                    found.append(Mutant(f"stray {tool}", steps))
                    break
            if len(found) >= _STRAYS:
                break
        return tuple(found)

    @cached_property
    def _ends(self) -> dict[str, tuple[Walk, Any, Any]]:
        return {}

    @cached_property
    def _verdicts(self) -> dict[int, Verdict]:
        """By identity of the walks, which `_ends` keeps alive."""
        return {}

    def attempt(self, name: str, steps: Sequence[Step]) -> Attempt:
        """A path carried out from the initial state and judged; the same path is judged once."""
        walked, view, material = self.end_of(steps)
        if id(walked) not in self._verdicts:
            broken = walked.broken
            self._verdicts[id(walked)] = (
                self.judged(self.start_view, view, walked) if broken is None else Verdict((), error=f"the world broke: {broken.error}")
            )
        return Attempt(name, walked, view, material, self._verdicts[id(walked)])

    def end_of(self, steps: Sequence[Step]) -> tuple[Walk, Any, Any]:
        """What comes of a path from the initial state, with view and material of where it ends."""
        key = repr([(step.turn, step.name, step.arguments) for step in steps])
        if key not in self._ends:
            known = self.__dict__.get("reference")
            walked = walk(self.world, self.start, steps, known=None if known is None else known.walk)
            view = self.world.view(walked.states[-1])
            self._ends[key] = walked, view, self.world.material(view)
        return self._ends[key]

    def judged(self, s0: Any, s_end: Any, walked: Walk, *, draft: BundleDraft | None = None) -> Verdict:
        """What the verifier says of a walk; one with an error when it breaks.

        Args:
            draft: in place of the bundle's own, for what another specification makes of the same end.
        """
        task = JudgeTask(self.draft if draft is None else draft, self.world.material)
        found = guarded(lambda: self.judge(s0, s_end, walked.trace, task))
        return Verdict((), error=f"{found.error} ({found.place})") if isinstance(found, Broken) else found

    def rewarded(self, verdict: Verdict) -> Any:
        """The reward that the rule gives a finished rollout with this verdict."""
        status = {"passed": True, "failed": False, "error": None}
        conditions = {item.name: status[item.status] for item in verdict.conditions if item.in_basis}
        view = JudgedRollout("finished", verdict.passed, "completed" if verdict.error is None else "error", conditions)
        return self.reward([view]).value_R[0]

    def changed(self, attempt: Attempt) -> tuple[Change, ...]:
        """Where an attempt's end differs from the reference's."""
        assert self.reference is not None
        return differences(self.reference.material, attempt.material).changes
