"""What a healthy world makes of a rollout's own actions, and when the policy had spoilt its task by itself. Runs worlds."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from audit.paths import Step, Walk, steps_of, walk
from audit.run import Broken, guarded
from audit.world_replay import Followed, RecordedCall
from ledger.bundle import BundleDraft
from training.verifiers import Judge, JudgeTask
from training.worlds import World
from training.worlds.difference import differences


@dataclass(frozen=True)
class HealthyChain:
    """A rollout's actions in a healthy world.

    Attributes:
        world, draft, judge: as the bundle has them; no judge where its verifier cannot be asked.
        found: what following the record found.
        calls: as recorded.
        inserted: number of tool calls to calls that the policy made there and that a parser dropped.
    """

    world: World[Any]
    draft: BundleDraft
    judge: Judge | None
    found: Followed
    calls: tuple[RecordedCall, ...]
    inserted: Mapping[int, tuple[Step, ...]]

    @cached_property
    def repaired(self) -> bool | None:
        """What the verifier says of the actions, without the calls that only a fault made necessary; None where it cannot say."""
        return self._passes(self._walked)

    @cached_property
    def doomed(self) -> int | None:
        """The number of tool calls after which what the policy had done was wrong for good; None for never.

        It is wrong where the policy changed a place to what the reference does not leave there, and the verifier fails what comes of it
        when all that is missing of the reference is done afterwards.
        """
        reference = self.draft.reference
        if reference is None or self._reference_end is None or not self._passes(self._reference):
            return None
        start = self._material(self.found.start)
        before = start
        for number in range(1, len(self.calls) + 1):
            walked = walk(self.world, self.found.start, self._steps(number))
            after = self._material(walked.states[-1])
            if walked.broken is None and after != before and self._strayed(start, after):
                rest = _without(self._reference.steps, self._steps(number))
                if self._passes(walk(self.world, self.found.start, [*self._steps(number), *rest], known=walked)) is False:
                    return number
            before = after
        return None

    def related(self, struck: int) -> bool | None:
        """Whether what is wrong at the end in a healthy world concerns rows that a struck call touched; None where no row is named.

        Args:
            struck: number of the call, -1 for the reset.
        """
        rows = _rows(self.world.view(self.found.start))
        touched = _named(rows, self.found.seen.get(struck, ""))
        if self._reference_end is None or not touched:
            return None
        wrong = differences(self._reference_end, self._material(self._walked.states[-1])).changes
        missing = set().union(*(_named(rows, f"{change.path} {json.dumps([change.before, change.after])}") for change in wrong))
        return bool(missing & touched) if missing else None

    @cached_property
    def _walked(self) -> Walk:
        return walk(self.world, self.found.start, self._steps(len(self.calls)))

    @cached_property
    def _reference(self) -> Walk:
        return walk(self.world, self.found.start, steps_of((self.draft.reference or {}).get("turns", ())))

    @cached_property
    def _reference_end(self) -> Any | None:
        if self.draft.reference is None or self._reference.broken is not None:
            return None
        return self._material(self._reference.states[-1])

    def _steps(self, number: int) -> list[Step]:
        """The first `number` calls that count, with those that were dropped among them."""
        made: list[Step] = []
        for at in range(number + 1):
            made += self.inserted.get(at, ())
            if at < number and (step := self.calls[at].step) is not None and at not in self.found.skipped:
                made.append(step)
        return made

    def _strayed(self, start: Any, after: Any) -> bool:
        ends = {change.path: change.after for change in differences(start, self._reference_end).changes}
        return any(change.path not in ends or ends[change.path] != change.after for change in differences(start, after).changes)

    def _material(self, state: Any) -> Any:
        return self.world.material(self.world.view(state))

    def _passes(self, walked: Walk) -> bool | None:
        judge = self.judge
        if judge is None or walked.broken is not None:
            return None
        s0, s_end = self.world.view(self.found.start), self.world.view(walked.states[-1])
        verdict = guarded(lambda: judge(s0, s_end, walked.trace, JudgeTask(self.draft, self.world.material)))
        return None if isinstance(verdict, Broken) or verdict.error is not None else verdict.passed


def _without(steps: Sequence[Step], done: Sequence[Step]) -> list[Step]:
    """The steps without those that were done already, as often as they were."""
    left = Counter(_key(step) for step in done)
    rest = []
    for step in steps:
        if left[_key(step)] > 0:
            left[_key(step)] -= 1
        else:
            rest.append(step)
    return rest


def _key(step: Step) -> str:
    return json.dumps([step.name, dict(step.arguments)], sort_keys=True, default=str)


def _rows(view: Any) -> frozenset[str]:
    """The keys of rows: of objects that hold two objects or more and nothing else."""
    if not isinstance(view, Mapping):
        return frozenset()
    inner = frozenset().union(*(_rows(value) for value in view.values()))
    table = len(view) >= 2 and all(isinstance(value, Mapping) for value in view.values())
    # What a whole state is made of are no rows.
    named = frozenset(str(key) for key in view) if table and not inner else frozenset()
    return named | inner


def _named(rows: frozenset[str], text: str) -> frozenset[str]:
    return rows & set(re.findall(r"[\w.@:-]+", text))
