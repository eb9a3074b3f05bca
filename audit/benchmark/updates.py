"""Updates on tiny recorded runs, some of them forged: what training does wrong, with labels that say where. Writes the ledger."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from random import Random

from audit.benchmark.kinds import Kind
from audit.benchmark.suite import SuiteSpec
from audit.benchmark.tiny_rounds import SIZE, Round, round_events
from audit.benchmark.truth import Truth, labels
from ledger.canonical import digest
from ledger.errors import UnknownId
from ledger.events import BatchAssembled, BatchRow, FaultInjected, LossWeight, ModelVersionPublished, RunConfigured, UpdateApplied
from ledger.events.training import TrainingRow
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.token_packing import pack_rollout
from training.advantages import advantages
from training.weightings import weightings

ROUNDS = 3
"""Updates of a run; the last one is forged where one is."""


@dataclass(frozen=True)
class TinyRun:
    """A run of three updates.

    Attributes:
        seed: of the suite.
        number: number of the case.
        kind: what is wrong with its last update.
        bundle_id: its one task.
    """

    seed: int
    number: int
    kind: Kind
    bundle_id: str

    @cached_property
    def run_id(self) -> str:
        """Its id, the same in every ledger."""
        return derived_id("run", "tiny", self.seed, self.kind.name, self.number, self.bundle_id)

    @property
    def update_ids(self) -> tuple[str, ...]:
        """Its updates in order."""
        return tuple(derived_id("update", self.run_id, step) for step in range(ROUNDS))

    @property
    def struck(self) -> str:
        """The forged update."""
        return self.update_ids[-1]

    def version(self, step: int) -> str:
        """The version that update `step` begins with."""
        return f"tiny-{sha256(f'{self.run_id}/{step}'.encode()).hexdigest()[:16]}"

    def round(self, number: int) -> Round:
        """One round, with what the fault does to its rollouts."""
        rng = Random(derived_id("values", self.run_id, number))
        values: list[float | None] = [1.0, 0.0, float(rng.random() < 0.5), float(rng.random() < 0.5)]
        forged = number == ROUNDS - 1
        # Sound rounds have a broken rollout now and then too, so that it says nothing.
        if (forged and self.kind.name == "masked_row_votes") or rng.random() < 0.4:
            values[3] = None
        rng.shuffle(values)
        stale = forged and self.kind.name == "stale_weights"
        return Round(
            self.run_id, number, self.bundle_id, self.version(number), self.version(0 if stale else number),
            forged and self.kind.name == "logprobs_filled", tuple(values),
        )  # fmt: skip


def tiny_runs(spec: SuiteSpec, bundle_ids: Sequence[str]) -> tuple[TinyRun, ...]:
    """The runs of a suite, one for each case of each kind of training fault.

    Args:
        bundle_ids: of sealed tasks; taken in turn.
    """
    kinds = [kind for kind in spec.kinds if kind.boundary == "training"]
    return tuple(TinyRun(spec.seed, n, kind, bundle_ids[n % len(bundle_ids)]) for kind in kinds for n in range(spec.cases))


def make_updates(ledger: LedgerHandle, runs: Sequence[TinyRun]) -> None:
    """Append all events of the runs and the labels of their forged updates; what is there already stays."""
    for run in runs:
        if ledger.read_stream(f"update-{run.struck}"):
            continue
        config = ledger.pending_json({"name": "tiny", "number": run.number})
        experiment_id = derived_id("experiment", run.run_id)
        events = [ledger.new(RunConfigured(
            run_id=run.run_id, experiment_id=experiment_id, name="tiny", config=config.ref,
            config_digest=digest({"name": "tiny", "number": run.number}), root_seed=run.seed,
        ), config), ledger.new(_published(run, 0))]  # fmt: skip
        label = FaultInjected(rollout_id=run.struck, index=0, fault=run.kind.name, place=f"step:{ROUNDS - 1}", seed=run.seed)
        ledger.append([*events, ledger.new(label)])
        for number in range(ROUNDS):
            round = run.round(number)
            ledger.append(list(round_events(ledger, round, experiment_id)))
            for rollout_id in round.rollout_ids:
                pack_rollout(ledger, rollout_id)
            ledger.append([ledger.new(body, correlation_id=run.run_id) for body in _update(run, round)])


def update_truths(ledger: LedgerHandle, runs: Sequence[TinyRun]) -> tuple[Truth, ...]:
    """The truth of each update of the runs, by its label.

    Raises:
        UnknownId: an update is not there.
    """
    ids = [update_id for run in runs for update_id in run.update_ids]
    ledger.barrier()
    there = {event.stream.removeprefix("update-") for event in ledger.read_streams([f"update-{name}" for name in ids])}
    if missing := [name for name in ids if name not in there]:
        raise UnknownId(f"update {missing[0]!r} of the benchmark is not there; make the suite first")
    found = labels(ledger, ids)
    return tuple(_truth(run, update_id, found.get(update_id, [])) for run in runs for update_id in run.update_ids)


def _truth(run: TinyRun, update_id: str, told: Sequence[str]) -> Truth:
    if not told:
        return Truth(f"update-{update_id}", "none", None, None, "clean", run.run_id)
    return Truth(f"update-{update_id}", "training", told[0], told[0], "caused", run.run_id)


def _published(run: TinyRun, step: int) -> ModelVersionPublished:
    version = run.version(step)
    return ModelVersionPublished(
        model_version=version, name="tiny", weights_digest=sha256(version.encode()).hexdigest(), tokenizer_digest="1" * 64,
        template_digest="2" * 64, scripted=False, parent=None if step == 0 else run.version(step - 1), run_id=run.run_id,
        stage="reinforce", round=None if step == 0 else step - 1, step=None if step == 0 else step - 1,
    )  # fmt: skip


@dataclass(frozen=True)
class _Row:
    """A rollout as the batch has it."""

    slot: int
    reward_id: str
    reward: float
    advantage: float
    tokens: int
    trained: int


def _rows(run: TinyRun, round: Round) -> list[_Row]:
    """The rollouts that train, with the advantages that they were given: rewards less the group's mean, rightly or as it is forged."""
    forged = run.kind.name if round.number == ROUNDS - 1 else ""
    given = {slot: (round.reward_id(slot), value) for slot, value in enumerate(round.values) if value is not None}
    if forged == "swapped_rewards":
        passed = next(slot for slot, (_, value) in given.items() if value == 1.0)
        failed = next(slot for slot, (_, value) in given.items() if value == 0.0)
        by_id = Random(derived_id("form", run.run_id)).random() < 0.5
        one, other = given[passed], given[failed]
        # The values alone change places, or the rewards with their ids.
        given[passed], given[failed] = (other, one) if by_id else ((one[0], other[1]), (other[0], one[1]))
    voters = SIZE if forged == "masked_row_votes" else len(given)
    mean = sum(value for _, value in given.values()) / voters
    rows = []
    for slot, (reward_id, value) in given.items():
        sampled = round.sampled(slot)
        trained = sum(map(len, sampled))
        rows.append(_Row(slot, reward_id, value, value - mean, 3 + trained + 2 * (len(sampled) - 1), trained))
    return rows


def _update(run: TinyRun, round: Round) -> Iterator[BatchAssembled | UpdateApplied | ModelVersionPublished]:
    rows, number = _rows(run, round), round.number
    total = sum(row.trained for row in rows)
    credit = sum(abs(row.advantage) * row.trained / total for row in rows)
    batch_id = derived_id("batch", run.run_id, number)
    left_out = [round.rollout_ids[slot] for slot, value in enumerate(round.values) if value is None]
    yield BatchAssembled(
        batch_id=batch_id, run_id=run.run_id, round=number, exclusions={"world_error": left_out} if left_out else {},
        model_version=run.version(number), stage="reinforce",
        methods={
            "advantages": [advantages.bind("group_mean").ref.method_id], "weightings": [weightings.bind("token_mean").ref.method_id],
        },
        rows=[
            BatchRow(
                rollout_id=round.rollout_ids[row.slot], reward_id=row.reward_id, votes=True, trains=True, group_id=round.group_id,
                reward=row.reward, advantage=row.advantage, path="native",
                rows=[TrainingRow(
                    index=0, open_reason="start", tokens=row.tokens, trained=row.trained, weight=row.trained / total,
                    credit=abs(row.advantage) * row.trained / total,
                )],
            )
            for row in rows
        ],
    )  # fmt: skip
    yield UpdateApplied(
        update_id=run.update_ids[number], batch_id=batch_id, run_id=run.run_id, step=number, model_version_before=run.version(number),
        model_version_after=run.version(number + 1), stage="reinforce", round=number, counters={"rows": len(rows), "lag_max": 0},
        weights=[
            LossWeight(
                rollout_id=round.rollout_ids[row.slot], reward_id=row.reward_id, weight=row.trained / total, advantage=row.advantage,
                share=abs(row.advantage) * row.trained / total / credit if credit else 0.0,
            )
            for row in rows
        ],
    )  # fmt: skip
    yield _published(run, number + 1)
