"""The suite of planted faults: rollouts, each with its fault-off twin, collected and judged in a ledger. Writes the ledger."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import Random
from typing import Any

from audit.benchmark.kinds import KINDS, Kind
from audit.benchmark.policies import failing_policies, rehearse, right_policies
from audit.benchmark.verifiers import planted_verifiers
from audit.benchmark.verifiers.misjudging import WAYS, mark
from ledger.appender import Appender
from ledger.attempts import attempts, counted
from ledger.bundle import Bundle, BundleDraft
from ledger.canonical import digest
from ledger.errors import BundleError, SettingsError
from ledger.events import FaultInjected, RunConfigured
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from training.bundles import register, seal
from training.rewards import rewards
from training.rollout.collect import Group, Run, Site
from training.rollout.derive import Judged, derive
from training.rollout.gateway import Gateway
from training.rollout.harness import tool_loop
from training.rollout.judge import JUDGED_ENDS, Judging, judge
from training.rollout.lockstep import collect_scripted
from training.rollout.lockstep_answers import Played
from training.rollout.planting import Plants
from training.rollout.policies import Policy, scripted
from training.rollout.scripts import Scripts
from training.verifiers import verifiers
from training.worlds import World
from training.worlds.fault_plan import read_plan
from training.worlds.source import Script, TaskQuery, source_of

WORLDS = ("ticket_desk", "bfcl")
GENUINE_A_CASE = 5
"""Rollouts of failing policies without any fault, for each case that a kind has."""
HARNESS = tool_loop(calls_per_turn=24, calls=120, max_tokens=256)
_BFCL_SHARE = 4
"""Every so manieth task is one of BFCL's."""
_OPINION = "end_state"
Say = Callable[[str], None]


@dataclass(frozen=True)
class SuiteSpec:
    """What a suite is a function of.

    Attributes:
        seed: root of everything that is drawn.
        cases: rollouts, or updates, in which each kind is planted.
        kinds: which kinds.
        worlds: where; each of `WORLDS`.
        policies: names of the failing policies that act; all when empty.
    """

    seed: int
    cases: int
    kinds: tuple[Kind, ...] = tuple(KINDS.values())
    worlds: tuple[str, ...] = WORLDS
    policies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = [world for world in self.worlds if world not in WORLDS]
        if unknown or not self.worlds:
            raise SettingsError(f"worlds {', '.join(self.worlds) or 'none'}; allowed: {', '.join(WORLDS)}")
        if self.cases < 1:
            raise SettingsError(f"{self.cases} cases a kind; allowed: 1 or more")

    @property
    def run(self) -> Run:
        """The run of its rollouts: the same in every ledger."""
        named = [self.seed, self.cases, [kind.name for kind in self.kinds], list(self.worlds), list(self.policies)]
        return Run(
            derived_id("run", "attribution benchmark", *named), derived_id("experiment", "attribution benchmark", *named), 0, self.seed
        )

    @property
    def rollout_kinds(self) -> tuple[Kind, ...]:
        """Those of its kinds that strike rollouts."""
        return tuple(kind for kind in self.kinds if kind.boundary != "training")


@dataclass(frozen=True, eq=False)
class Case:
    """A rollout of the suite.

    Attributes:
        kind: what is planted in it; None for a rollout without a fault, which is its own twin.
        group: of size 1, whose rollout it is.
        twin: the same without the fault.
    """

    kind: Kind | None
    group: Group
    twin: Group


@dataclass(frozen=True, eq=False)
class _Actor:
    """A policy at a task: what it says in a healthy world, and where it can be struck."""

    name: str
    policy: Policy
    draft: BundleDraft


@dataclass(eq=False)
class Suite:
    """A suite opened for work in a ledger of its own.

    Args:
        ledger: nothing else may be in its project.
        worlds: open worlds by name; closed by the caller.
    """

    spec: SuiteSpec
    ledger: LedgerHandle
    settings: Settings
    worlds: Mapping[str, World[Any]]
    say: Say = lambda _: None
    _policies: dict[str, Policy] = field(default_factory=dict)
    _able: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._right, self._failing = right_policies(self.worlds), failing_policies(self.worlds)
        unknown = [name for name in self.spec.policies if name not in self._failing]
        if unknown:
            raise SettingsError(f"no failing policy {unknown[0]!r}; there are {', '.join(self._failing)}")
        self._key = derived_id("marks", self.spec.seed)
        self._tasks = self._drafts()
        marks = sorted(self._marks())
        self._own = {
            name: planted_verifiers.bind("misjudging", inner=source_of(name).verifiers[0][0], key=self._key, marks=marks)
            for name in self.worlds
        }
        self.cases = tuple(self._cases())

    @property
    def run(self) -> Run:
        """The run of all its rollouts."""
        return self.spec.run

    @property
    def groups(self) -> dict[str, Group]:
        """All groups to collect, twins included, by id."""
        return {self.run.group_id(group): group for case in self.cases for group in (case.twin, case.group)}

    def rollout_ids(self) -> dict[str, str]:
        """Group to its counted rollout, as far as they are collected."""
        known = attempts(self.ledger, list(self.groups))
        return {attempt.group_id: attempt.rollout_id for attempt in known if attempt.counts}

    def _drafts(self) -> list[BundleDraft]:
        """Tasks in turn from the desk's reminders, its walks and BFCL; one for each case of a kind, so that no kind meets a task twice."""
        count, seed = self.spec.cases, self.spec.seed
        found: list[list[BundleDraft]] = []
        if "ticket_desk" in self.worlds:
            for options in ({}, {"families": True, "level": 0}):
                asked = TaskQuery(count // 2 + 1, seed, options)
                found.append(list(source_of("ticket_desk").tasks(self.worlds["ticket_desk"], asked, self.settings)))
        if "bfcl" in self.worlds:
            asked = TaskQuery(count if len(self.worlds) == 1 else count // _BFCL_SHARE + 1)
            found.append(list(source_of("bfcl").tasks(self.worlds["bfcl"], asked, self.settings)))
        mixed = [draft for place in range(max(map(len, found))) for part in found for draft in part[place : place + 1]]
        return mixed[:count]

    def _variant(self, draft: BundleDraft, what: str) -> str:
        return sha256(f"{self._key}/{draft.name}/{what}".encode()).hexdigest()[:12]

    def _marks(self) -> Iterator[str]:
        for kind in self.spec.rollout_kinds:
            if kind.name in WAYS:
                yield from (mark(self._key, kind.name, self._variant(draft, kind.name)) for draft in self._tasks)

    def _bundle(self, draft: BundleDraft, what: str) -> Bundle:
        """A task with a variant of its own; all variants name one verifier, which misjudges some."""
        own = replace(draft, spec={**draft.spec, "variant": self._variant(draft, what)})
        return Bundle(own, self.worlds[draft.world].version, self._own[draft.world].ref.method_id, HARNESS.harness_id)

    def _cases(self) -> Iterator[Case]:
        groups: set[str] = set()
        for kind in self.spec.rollout_kinds:
            tasks = [draft for draft in self._tasks if draft.world in (kind.worlds or self.worlds)]
            for number in range(self.spec.cases if tasks else 0):
                case = self._struck(kind, tasks[number % len(tasks)], number)
                if case is not None and (group_id := self.run.group_id(case.group)) not in groups:
                    groups.add(group_id)
                    yield case
        yield from self._genuine()

    def _struck(self, kind: Kind, draft: BundleDraft, number: int) -> Case | None:
        rng = Random(derived_id("case", self.spec.seed, kind.name, number))
        sorts = [sort for sort, share in kind.policies for _ in range(share)]
        actor = self._actor(rng.choice(sorts), draft, rng)
        twin = Group(self._bundle(draft, "twin"), actor.policy, 1)
        if kind.name in WAYS:
            return Case(kind, Group(self._bundle(draft, kind.name), actor.policy, 1), twin)
        assert kind.draw is not None
        script = actor.policy.script
        assert script is not None
        places = rehearse(self.worlds[draft.world], draft, script(draft)).places
        alike = [other for other in self._tasks if other.world == draft.world and ("rule" in other.spec) == ("rule" in draft.spec)]
        others = [other.initial_state for other in alike if other.name != draft.name]
        entry = kind.draw(rng, replace(places, other_start=rng.choice(others) if others else None))
        return None if entry is None else Case(kind, replace(twin, plants=Plants(read_plan([dict(entry)]), self.spec.seed)), twin)

    def _genuine(self) -> Iterator[Case]:
        """Rollouts without faults: every twin, and those of the failing policies."""
        for number in range(GENUINE_A_CASE * self.spec.cases):
            draft = self._tasks[number % len(self._tasks)]
            rng = Random(derived_id("genuine", self.spec.seed, number))
            group = Group(self._bundle(draft, "twin"), self._actor("failing", draft, rng, turn=number // len(self._tasks)).policy, 1)
            yield Case(None, group, group)

    def _actor(self, sort: str, draft: BundleDraft, rng: Random, *, turn: int | None = None) -> _Actor:
        """A policy of a sort at a task; of the failing ones the `turn`-th of those that have a way through it, in a drawn order."""
        if sort != "failing":
            name = "careful" if sort == "careful" else "oracle"
            return _Actor(name, self._policy(name, self._right[name]), draft)
        able = self._able_ones(draft)
        name = able[(rng.randrange(len(able)) if turn is None else turn) % len(able)]
        return _Actor(name, self._policy(name, self._failing[name]), draft)

    def _able_ones(self, draft: BundleDraft) -> list[str]:
        """Names of the failing policies that have a way through a task, in a drawn order."""
        if draft.name not in self._able:
            names = [name for name in self._failing if not self.spec.policies or name in self.spec.policies]
            order = Random(derived_id("policies", self.spec.seed, draft.name)).sample(names, len(names))
            self._able[draft.name] = [name for name in order if _has_way(self._failing[name], draft)]
            if not self._able[draft.name]:
                raise SettingsError(f"none of {', '.join(names)} has a way through task {draft.name!r}; allowed: at least one")
        return self._able[draft.name]

    def _policy(self, name: str, script: Script) -> Policy:
        if name not in self._policies:
            self._policies[name] = replace(scripted(self.ledger, name, script), trainable=True)
        return self._policies[name]


def _has_way(script: Script, draft: BundleDraft) -> bool:
    try:
        return bool(script(draft))
    except (BundleError, LookupError, ValueError):
        return False


def make(suite: Suite) -> None:
    """Collect, judge and reward all rollouts of a suite; what is there already stays, so that it can go on where it was stopped."""
    _record(suite)
    site = Site(suite.ledger, Appender(suite.ledger), Gateway(suite.ledger), Scripts(), suite.worlds, HARNESS, {})
    for world in suite.worlds:
        groups = [group for group in suite.groups.values() if group.bundle.draft.world == world]
        # A world that has to be closed works in other processes, which can work at the same time.
        threaded = hasattr(suite.worlds[world], "close")
        suite.say(f"{len(groups)} rollouts in world {world}")
        answers = Played(Scripts(limited=True), tokens=True)
        asyncio.run(collect_scripted(site, suite.run, groups, threaded=threaded, answers=answers))
    _judge(suite)


def _record(suite: Suite) -> None:
    spec, ledger = suite.spec, suite.ledger
    named = {
        "name": "attribution benchmark", "seed": spec.seed, "cases": spec.cases, "kinds": [kind.name for kind in spec.kinds],
        "worlds": list(spec.worlds), "policies": list(spec.policies),
    }  # fmt: skip
    config = ledger.pending_json(named)
    body = RunConfigured(
        run_id=suite.run.run_id, experiment_id=suite.run.experiment_id, name="attribution_benchmark", config=config.ref,
        config_digest=digest(named), root_seed=spec.seed,
    )  # fmt: skip
    ledger.append([ledger.new(body, config)])
    for name, world in suite.worlds.items():
        known = [(judging.verifier, judging.kind) for judging in _judgings(suite, name)]
        register(ledger, world, known, HARNESS, planted=["misjudging"])
    bundles = {group.bundle.bundle_id: group.bundle for group in suite.groups.values()}
    seal(ledger, list(bundles.values()), correlation_id=suite.run.run_id)


def _judgings(suite: Suite, world: str) -> Sequence[Judging]:
    """The bundles' own verifier, and the difference to the reference's end state as a second opinion."""
    return Judging(suite._own[world], "program", "bundle"), Judging(verifiers.bind(_OPINION), "state_diff", "second_opinion")


def _judge(suite: Suite) -> None:
    ledger, run = suite.ledger, suite.run
    _label_misjudged(suite)
    known = counted(ledger, run.run_id, run.round)
    given = {verdict_id for rollout in known for verdict_id in rollout.verdict_ids}
    for world in suite.worlds:
        for judging in _judgings(suite, world):
            mine = (rollout for rollout in known if rollout.world == world)
            todo = [(r.rollout_id, r.bundle_id) for r in mine if judging.verdict_id(r.rollout_id) not in given]
            judge(ledger, todo, judging, suite.worlds[world])
    judged = [
        Judged(r.rollout_id, r.ended_by, r.verdict_id, r.verdict_status, r.passed, r.conditions)
        for r in counted(ledger, run.run_id, run.round)
    ]
    derive(ledger, judged, rewards.bind("all_conditions"))


def _label_misjudged(suite: Suite) -> None:
    """Labels of the verdicts that the planted verifier will give wrongly; committed before them."""
    rollouts = suite.rollout_ids()
    ended = {rollout.rollout_id: rollout.ended_by for rollout in counted(suite.ledger, suite.run.run_id, suite.run.round)}
    labels = []
    for case in suite.cases:
        if case.kind is not None and case.kind.name in WAYS:
            rollout_id = rollouts.get(suite.run.group_id(case.group), "")
            if ended.get(rollout_id) in JUDGED_ENDS:
                labels.append(FaultInjected(rollout_id=rollout_id, index=0, fault=case.kind.name, place="verdict", seed=suite.spec.seed))
    for start in range(0, len(labels), 200):
        suite.ledger.append([suite.ledger.new(label) for label in labels[start : start + 200]])
