"""A run's training opened for work: its schedule, chain and folders, and where each update starts from. Reads the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ledger.errors import SettingsError, TrainingBroken
from ledger.exclusive import exclusive
from training.examples import Example
from training.lab import Lab
from training.optimise.chain import AppliedUpdate, applied_updates, published_by, published_version
from training.optimise.checkpoints import Checkpoints
from training.optimise.recipe import BoundTerm, Recipe, reinforce_recipe, supervised_term
from training.optimise.schedule import Place, Stream, schedule, stream_seed
from training.optimise.team import Team
from training.rollout.pretrained import smollm2
from training.traces import Trace
from training.train_config import TraceSource

ID_CHARS = 8


@dataclass(frozen=True)
class Start:
    """What an update starts from.

    Attributes:
        version: model version.
        folder: its policy folder.
        previous: the update before it in the same stage, whose optimiser goes on; None at a stage's start.
    """

    version: str
    folder: Path
    previous: AppliedUpdate | None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A sealed dataset of supervised examples, in order, with the ids of the methods that chose them."""

    dataset_id: str
    examples: tuple[Example, ...]
    methods: tuple[str, ...]


class Training:
    """The training part of an experiment.

    Attributes:
        lab: the experiment.
        table: its `[train]`.
        run_id: of its run.
        places: all of its updates in order.
        checkpoints: its folders.
        datasets: stage to its dataset, once it was made in this process.
        traces: supervised stage to its sources with their rollouts, once they were all there.
        said: rollout to what was said in it, of traces that were read for a tokenizer and are not in a dataset yet.
        team: the processes that take its steps.
    """

    def __init__(self, lab: Lab, *, team: Team | None = None) -> None:
        """Bind every method, so that a recipe that does not fit is refused before anything runs.

        Raises:
            SettingsError: the experiment trains nothing.
            MethodError: a method does not exist, or does not take a parameter.
        """
        if lab.config.train is None:
            raise SettingsError(f"experiment {lab.config.name!r} has no [train]; allowed: one with stages")
        self.team = team or Team()
        self.lab, self.ledger, self.table = lab, lab.ledger, lab.config.train
        if self.table.policy.lora is not None and self.table.policy.serving == "adapter":
            raise SettingsError("policy.serving is 'adapter'; allowed in training: 'merged', since rounds are sampled from whole folders")
        self.run_id = lab.run().run_id
        self.places = schedule(self.table)
        self.checkpoints = Checkpoints(lab.settings.data_dir / "models" / self.run_id)
        self._chain: list[AppliedUpdate] = []
        self._recipes: dict[str, Recipe] = {}
        self._terms: dict[str, BoundTerm] = {}
        self.datasets: dict[str, Dataset] = {}
        self.traces: dict[str, list[tuple[TraceSource, list[str]]]] = {}
        self.said: dict[str, Trace | str] = {}
        self._tokenizers: dict[str, str | None] = {}
        for stage in self.table.stages:
            if stage.stage == "reinforce":
                self._recipes[stage.name] = reinforce_recipe(stage, shuffle_seed=0)
            elif stage.stage == "supervised":
                self._terms[stage.name] = supervised_term(stage)

    @cached_property
    def base(self) -> tuple[str, Path] | None:
        """Name and folder of the policy that training starts from; None for one that is made from scratch."""
        policy = self.table.policy
        if policy.source == "tiny":
            return None
        if policy.source == "smollm2":
            return "smollm2", smollm2(self.lab.settings.data_dir / "models", say=self.lab.say)
        assert policy.folder is not None
        folder = Path(policy.folder).expanduser().resolve()
        return folder.name.lower(), folder

    @property
    def version_name(self) -> str:
        """First part of the names of the run's versions."""
        return f"{self.lab.config.name}-{self.run_id[:ID_CHARS]}"

    def recipe(self, place: Place) -> Recipe:
        """The bound methods of a round."""
        recipe = replace(self._recipes[place.stage.name], max_mask_fraction=self.table.max_mask_fraction)
        return recipe if recipe.shuffle_seed is None else replace(recipe, shuffle_seed=self.seed("shuffle", place))

    def term(self, place: Place) -> BoundTerm:
        """The bound loss of a supervised stage."""
        return self._terms[place.stage.name]

    def seed(self, stream: Stream, place: Place, *more: int) -> int:
        """The seed of a stream for an update."""
        return stream_seed(self.lab.config.seed, stream, place.stage.name, place.index, *more)

    def chain(self) -> list[AppliedUpdate]:
        """The updates that were applied."""
        self._chain = applied_updates(self.ledger, self.run_id, self.places, known=self._chain)
        return list(self._chain)

    def done(self, place: Place) -> AppliedUpdate | None:
        """The update at a place; None when it was not applied yet."""
        chain = self.chain()
        return chain[place.round - 1] if len(chain) >= place.round else None

    def require_turn(self, place: Place) -> None:
        """Nothing, when every update before a place was applied.

        Raises:
            TrainingBroken: one was not.
        """
        made = len(self.chain())
        if made < place.round - 1:
            missing = self.places[made].label
            raise TrainingBroken(f"update {place.label} cannot be made before {missing}; allowed: the next one, {missing}")

    def start(self, place: Place, initial: str) -> Start:
        """What the update at a place starts from.

        Args:
            initial: the version that the run starts from.
        Raises:
            TrainingBroken: the updates before it are not all applied, or a folder is missing.
        """
        self.require_turn(place)
        chain = self.chain()
        before = chain[place.round - 2] if place.round > 1 else None
        version = initial if before is None else before.after
        return Start(version, self.folder(version), before if before is not None and before.place.stage is place.stage else None)

    def first(self, start: Start) -> str:
        """The version that the run started from: the base of an adapter.

        Args:
            start: of any update; without an update so far it is its version.
        """
        chain = self.chain()
        return chain[0].before if chain else start.version

    def folder(self, version: str) -> Path:
        """The policy folder of a version of the run or of its base.

        Raises:
            TrainingBroken: it is not there.
        """
        published = published_version(self.ledger, version)
        if published is None:
            raise TrainingBroken(f"model version {version} was never published in project {self.ledger.project!r}")
        if published.run_id != self.run_id and self.base is not None:
            return self.base[1]
        return self.checkpoints.folder(version)

    def tokenizer_of(self, version: str) -> str | None:
        """Digest of a version's tokenizer; None for one without tokens."""
        if version not in self._tokenizers:
            published = published_version(self.ledger, version)
            self._tokenizers[version] = None if published is None else published.tokenizer_digest
        return self._tokenizers[version]

    @contextmanager
    def alone(self) -> Iterator[dict[str, int]]:
        """What was swept, with no other process training this run until the block ends.

        Folders that no event names are what a killed process left behind, since a version is an event only after its folder is durable.

        Raises:
            TallyError: another process trains it.
        """
        with exclusive(self.ledger, f"training of run {self.run_id}"):
            there = sorted(path.name for path in self.checkpoints.root.iterdir()) if self.checkpoints.root.is_dir() else []
            versions = published_by(self.ledger, self.run_id, [name for name in there if not name.startswith(".")])
            updates = {update.update_id for update in self.chain()}
            swept = self.checkpoints.discard_orphans(versions=versions, updates=updates)
            if any(swept.values()):
                self.lab.say("swept what an interrupted process left: " + ", ".join(f"{n} {what}" for what, n in swept.items() if n))
            yield swept
