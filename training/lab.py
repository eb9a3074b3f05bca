"""Everything an experiment needs, opened from its file: worlds, verifiers, policies, model server, gateway. Starts processes."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ledger.appender import Appender
from ledger.bundle import Bundle
from ledger.canonical import digest
from ledger.errors import SettingsError, TallyError
from ledger.events import RunConfigured
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.methods import Bound
from ledger.settings import Settings
from training.admission import admissions
from training.bundles import Harness
from training.optimise.recipe import method_ids
from training.rewards import Reward, rewards
from training.rollout import engine, policies
from training.rollout.collect import Group, Run, Site
from training.rollout.gateway import Gateway, Upstream
from training.rollout.harness import harness_of
from training.rollout.judge import Judging
from training.rollout.planting import Plants
from training.rollout.policies import Policy
from training.rollout.pretrained import smollm2
from training.rollout.scripted import ScriptedServer
from training.rollout.scripts import Scripts
from training.run_config import Collection, RunConfig, TaskSource
from training.verifiers import verifiers
from training.worlds import World
from training.worlds.source import TaskQuery, WorldSource, source_of

if TYPE_CHECKING:
    from training.crew import Crew

Say = Callable[[str], None]
SMOLLM2 = "smollm2"


class Lab:
    """An experiment opened for work. Use as a context manager; closing it ends the worlds' processes, not the model server."""

    def __init__(self, config: RunConfig, ledger: LedgerHandle, settings: Settings, *, say: Say = lambda _: None) -> None:
        self.config, self.ledger, self.settings, self.say = config, ledger, settings, say
        self.crew: Crew | None = None
        """Started by `training.crew.crew_of`, where there is work for one."""
        self._open = ExitStack()

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def closing(self, callback: Callable[[], object]) -> None:
        """Have something called when the laboratory closes."""
        self._open.callback(callback)

    @cached_property
    def _opened(self) -> tuple[tuple[TaskSource, WorldSource, World[Any]], ...]:
        """The experiment's task sources with their worlds; sources that open alike share one."""
        opened: dict[tuple[str, str], World[Any]] = {}
        result = []
        for tasks in self.config.tasks:
            source = source_of(tasks.world)
            opening = {name: tasks.options[name] for name in source.opening if name in tasks.options}
            key = tasks.world, digest(opening)
            if key not in opened:
                opened[key] = source.open(self.settings, opening)
                self._open.callback(getattr(opened[key], "close", lambda: None))
            result.append((tasks, source, opened[key]))
        return tuple(result)

    @cached_property
    def worlds(self) -> dict[str, World[Any]]:
        """The worlds that the experiment's tasks need, by name.

        Raises:
            SettingsError: two of them share a name and are not the same.
        """
        worlds: dict[str, World[Any]] = {}
        for _, _, world in self._opened:
            if worlds.setdefault(world.name, world) is not world:
                raise SettingsError(f"two different worlds are called {world.name!r}; allowed: one opening of a world in an experiment")
        return dict(sorted(worlds.items()))

    @cached_property
    def sources(self) -> dict[str, WorldSource]:
        """World name to its kind."""
        return {world.name: source for _, source, world in self._opened}

    @cached_property
    def harness(self) -> Harness:
        """The harness that the experiment's table describes."""
        return harness_of(self.config.harness)

    @cached_property
    def judgings(self) -> dict[str, tuple[Judging, ...]]:
        """World to its verifiers at work, the bundle's own first.

        Raises:
            SettingsError: the file names a verifier that the world does not have, or two for one world.
        """
        found: dict[str, tuple[Judging, ...]] = {}
        for world, source in self.sources.items():
            named = {tasks.verifier or source.verifiers[0][0] for tasks, _, opened in self._opened if opened.name == world}
            kinds = dict((*source.verifiers, *source.choices))
            if len(named) != 1 or not named <= set(kinds):
                raise SettingsError(f"world {world!r} is judged by {', '.join(sorted(named))}; allowed: one of {', '.join(kinds)}")
            own = named.pop()
            others = [name for name, _ in source.verifiers if name != own] if self.config.second_opinions is not False else []
            opinions = (Judging(verifiers.bind(name), kinds[name], "second_opinion") for name in others)
            found[world] = (Judging(verifiers.bind(own), kinds[own], "bundle"), *opinions)
        return dict(sorted(found.items()))

    @cached_property
    def rule(self) -> Bound[Reward]:
        """The reward rule."""
        return rewards.bind(self.config.reward)

    @cached_property
    def bundles(self) -> tuple[Bundle, ...]:
        """All bundles of the experiment, in the order of its file."""
        return tuple(bundle for _, bundles in self._by_source for bundle in bundles)

    @cached_property
    def gated_bundles(self) -> tuple[Bundle, ...]:
        """Those that the experiment's file has the gates look at."""
        return tuple(bundle for tasks, bundles in self._by_source if tasks.gated for bundle in bundles)

    def training_bundles(self, stage: str) -> dict[str, Bundle]:
        """The bundles that a stage learns from, by id, in the order of the experiment's file."""
        mine = [bundles for tasks, bundles in self._by_source if stage in tasks.stages or not tasks.stages]
        return {bundle.bundle_id: bundle for bundles in mine for bundle in bundles if bundle.draft.split == "train"}

    @cached_property
    def _by_source(self) -> tuple[tuple[TaskSource, tuple[Bundle, ...]], ...]:
        made = []
        for tasks, source, world in self._opened:
            verifier_id = self.judgings[world.name][0].verifier.ref.method_id
            drafts = source.tasks(world, TaskQuery(tasks.count, tasks.seed, tasks.options), self.settings)
            made.append((tasks, tuple(Bundle(draft, world.version, verifier_id, self.harness.harness_id) for draft in drafts)))
        return tuple(made)

    @cached_property
    def experiment_id(self) -> str:
        """Digest of the file, the methods, the worlds and the harness: what was run, whoever ran it."""
        methods = [judging.verifier.ref.method_id for world in sorted(self.judgings) for judging in self.judgings[world]]
        worlds = {name: world.version for name, world in self.worlds.items()}
        trained = [] if self.config.train is None else method_ids(self.config.train)
        return derived_id(
            "experiment", self.config.model_dump(mode="json"), methods, self.rule.ref.method_id, worlds, self.harness.harness_id, *trained
        )

    def run(self, round: int = 0) -> Run:
        """The run that this ledger keeps of the experiment: running it again goes on with it."""
        run_id = derived_id("run", self.ledger.ledger_id, self.ledger.project, self.experiment_id)
        return Run(run_id, self.experiment_id, round, self.config.seed)

    def record_run(self) -> int:
        """Append the run's configuration, once; how many events were new."""
        config = self.config.model_dump(mode="json")
        blob, run = self.ledger.pending_json(config), self.run()
        body = RunConfigured(
            run_id=run.run_id, experiment_id=run.experiment_id, name=self.config.name, config=blob.ref, config_digest=digest(config),
            root_seed=self.config.seed,
        )  # fmt: skip
        return sum(item.created for item in self.ledger.append([self.ledger.new(body, blob, correlation_id=run.run_id)]).events)

    def groups(self, collection: Collection) -> tuple[Group, ...]:
        """The collection's groups with its policy published; ordinary rollouts leave out bundles that the gates rejected.

        Raises:
            SettingsError: no such policy or bundle.
        """
        left_out, plan = self.left_out(collection), collection.faults
        chosen = [bundle for bundle in self._chosen(collection) if bundle.bundle_id not in left_out]
        seed = self.config.seed if collection.fault_seed is None else collection.fault_seed
        plants = None if plan is None else Plants(plan, seed)
        if collection.policy == SMOLLM2:
            policy = self._smollm2(collection)
            return tuple(Group(bundle, policy, collection.size, collection.rollout_kind, plants) for bundle in chosen)
        by_world = {world: self._scripted(world, collection.policy) for world in sorted({bundle.draft.world for bundle in chosen})}
        return tuple(Group(bundle, by_world[bundle.draft.world], collection.size, collection.rollout_kind, plants) for bundle in chosen)

    def left_out(self, collection: Collection) -> frozenset[str]:
        """Ids of the bundles that a collection would attempt, had the newest decision of the gates not rejected them."""
        if collection.rollout_kind != "ordinary":
            return frozenset()
        return self.rejected & {bundle.bundle_id for bundle in self._chosen(collection)}

    @cached_property
    def rejected(self) -> frozenset[str]:
        """Ids of the experiment's bundles that the newest decision of the gates rejected; none that nothing has decided on."""
        known = admissions(self.ledger, [bundle.bundle_id for bundle in self.bundles])
        return frozenset(name for name, found in known.items() if found.gate_id is not None and not found.admitted)

    def _chosen(self, collection: Collection) -> list[Bundle]:
        if collection.tasks:
            by_name = {bundle.draft.name: bundle for bundle in self.bundles}
            missing = [name for name in collection.tasks if name not in by_name]
            if missing:
                raise SettingsError(
                    f"collection of {collection.policy!r} names task {missing[0]!r}; the experiment has {len(by_name)} others"
                )
            return [by_name[name] for name in collection.tasks]
        worlds = collection.worlds or tuple(self.worlds)
        unknown = [name for name in worlds if name not in self.worlds]
        if unknown:
            raise SettingsError(
                f"collection of {collection.policy!r} names world {unknown[0]!r}; the experiment has {', '.join(self.worlds)}"
            )
        return [bundle for world in worlds for bundle in [b for b in self.bundles if b.draft.world == world][: collection.first]]

    def _scripted(self, world: str, name: str) -> Policy:
        scripts = self.sources[world].scripts
        script = scripts.get(name)
        if script is None:
            raise SettingsError(f"no policy {name!r} for world {world!r}; there is {SMOLLM2} and {', '.join(scripts)}")
        return policies.scripted(self.ledger, name, script)

    def _smollm2(self, collection: Collection) -> Policy:
        folder = smollm2(self.settings.data_dir / "models", say=self.say)
        policy = policies.published(self.ledger, SMOLLM2, folder, sampling=collection.sampling, licence="Apache-2.0")
        return replace(policy, strict_tools=collection.strict_tools)

    @asynccontextmanager
    async def site(self, groups: Sequence[Group], *, upstreams: Mapping[str, Upstream] | None = None) -> AsyncIterator[Site]:
        """Where the groups run: gateway, scripted server and, when a policy samples, the model server.

        Args:
            upstreams: who serves which model version, where that is not the pretrained model's server.
        """
        appender = Appender(self.ledger)
        try:
            async with ScriptedServer() as scripted, Gateway(self.ledger, appender=appender) as gateway:
                used = {group.policy.model_version: group.policy for group in groups}
                known = dict(upstreams or {})
                known |= {version: self._upstream(policy, scripted) for version, policy in used.items() if version not in known}
                yield Site(self.ledger, appender, gateway, scripted, self.worlds, self.harness, known)
        finally:
            await appender.close()

    def bare_site(self) -> Site:
        """Where groups run in lock-step: without servers, for a collection that brings a gateway and an appender of its own."""
        return Site(self.ledger, Appender(self.ledger), Gateway(self.ledger), Scripts(), self.worlds, self.harness, {})

    def warm(self) -> None:
        """Fetch the model and start its server, which takes a while; a failure shows when the server is needed."""
        try:
            self._engine()
        except TallyError as error:
            self.say(f"the model server did not start yet: {error}")

    def cool(self) -> None:
        """Stop the model server, if one runs."""
        engine.stop(self.settings.data_dir / "engine")

    def _engine(self) -> engine.Engine:
        folder = smollm2(self.settings.data_dir / "models", say=self.say)
        spec = engine.EngineSpec(model=folder, served_name=SMOLLM2, version=policies.version_of(SMOLLM2, folder))
        return engine.start(spec, self.settings.data_dir / "engine", say=self.say)

    def _upstream(self, policy: Policy, scripted: ScriptedServer) -> Upstream:
        if policy.script is not None:
            return scripted.upstream(policy.model_version)
        running = self._engine()
        return Upstream(running.base_url, policy.model_version, kind="vllm", logprobs_mode=running.spec.logprobs_mode)
