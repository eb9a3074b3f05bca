"""Updates as the ledger holds them: who voted, who trained and how much of the gradient each rollout got. Reads the database."""

from collections.abc import Mapping
from dataclasses import dataclass

from ledger import queries
from ledger.errors import UnknownId
from ledger.evaluated import of_kind
from ledger.events import BatchAssembled, BatchRow, LossWeight, ModelVersionPublished, UpdateApplied
from ledger.ledger import LedgerHandle

_PAGE = 10_000


@dataclass(frozen=True)
class UpdateLine:
    """An update in one line."""

    update_id: str
    run_id: str
    stage: str | None
    round: int | None
    step: int
    before: str
    after: str
    batch_id: str
    counters: dict[str, int | float]


@dataclass(frozen=True)
class RolloutShare:
    """What one rollout had of an update: its part of the batch, and its part of the gradient where it has one."""

    row: BatchRow
    weight: float | None
    share: float | None


@dataclass(frozen=True)
class UpdateDetail:
    """An update with its batch.

    Attributes:
        line: the update.
        rollouts: those that vote or train, by falling share.
        exclusions: reason to the ids of the rollouts that neither vote nor train.
        methods: family to the ids of the methods that shaped the batch.
        batch_counters: fallbacks and special cases of the batch.
    """

    line: UpdateLine
    rollouts: tuple[RolloutShare, ...]
    exclusions: dict[str, list[str]]
    methods: dict[str, list[str]]
    batch_counters: dict[str, int | float]


def update_lines(ledger: LedgerHandle, *, run_id: str | None = None) -> list[UpdateLine]:
    """All updates, or those of a run, in the order in which they were applied."""
    ledger.barrier()
    found: list[UpdateLine] = []
    since = 0
    while page := ledger.read(since, kinds=["UpdateApplied"], limit=_PAGE):
        for event in page:
            body = event.body
            if isinstance(body, UpdateApplied) and body.part == 0 and run_id in (None, body.run_id):
                found.append(_line(body))
        assert page[-1].position is not None
        since = page[-1].position
    return found


def update_detail(ledger: LedgerHandle, ident: str) -> UpdateDetail:
    """An update by its id, or by the model version that it made; a beginning that no other shares will do.

    Raises:
        UnknownId: there is none, or the version was made by no update.
    """
    ledger.barrier()
    noun, full = queries.resolve_any(ledger, ident, ("update", "model"))
    bodies = [event.body for event in ledger.read_stream(f"update-{full if noun == 'update' else _made_by(ledger, full)}")]
    parts = [body for body in bodies if isinstance(body, UpdateApplied)]
    if not parts:
        raise UnknownId(f"{noun} {full} has no update; allowed: an update that was applied here")
    batch = [body for event in ledger.read_stream(f"batch-{parts[0].batch_id}") if isinstance(body := event.body, BatchAssembled)]
    # A reward, and a rollout without one, is weighed once an update.
    weights = {(weight.rollout_id, weight.reward_id): weight for part in parts for weight in part.weights}
    rows = [row for part in batch for row in part.rows]
    shares = [_share(row, weights) for row in rows]
    exclusions: dict[str, list[str]] = {}
    for part in batch:
        for reason, ids in part.exclusions.items():
            exclusions.setdefault(reason, []).extend(ids)
    first = next((part for part in batch if part.part == 0), None)
    return UpdateDetail(
        _line(next(part for part in parts if part.part == 0)), tuple(sorted(shares, key=lambda item: -(item.share or 0.0))), exclusions,
        {} if first is None else dict(first.methods), {} if first is None else dict(first.counters),
    )  # fmt: skip


def recorded_batch(ledger: LedgerHandle, run_id: str, round: int) -> tuple[BatchAssembled, ...]:
    """The parts of the newest batch of a round of a run; none where nothing was assembled for it."""
    ledger.barrier()
    bodies = [body for event in of_kind(ledger, "BatchAssembled") if isinstance(body := event.body, BatchAssembled)]
    mine = [body for body in bodies if (body.run_id, body.round) == (run_id, round)]
    return tuple(body for body in mine if body.batch_id == mine[-1].batch_id)


def _made_by(ledger: LedgerHandle, version: str) -> str:
    for line in reversed(update_lines(ledger)):
        if line.after == version:
            return line.update_id
    published = [event.body for event in ledger.read_stream(f"model-{version}") if isinstance(event.body, ModelVersionPublished)]
    origin = "it was published without one" if published else "it was never published"
    raise UnknownId(f"model version {version} was made by no update: {origin}")


def _share(row: BatchRow, weights: Mapping[tuple[str, str | None], LossWeight]) -> RolloutShare:
    weight = weights.get((row.rollout_id, row.reward_id))
    return RolloutShare(row, None if weight is None else weight.weight, None if weight is None else weight.share)


def _line(body: UpdateApplied) -> UpdateLine:
    return UpdateLine(
        body.update_id, body.run_id, body.stage, body.round, body.step, body.model_version_before, body.model_version_after, body.batch_id,
        dict(body.counters),
    )  # fmt: skip
