"""What a run has trained so far: its updates and model versions in one chain, read from the ledger. Reads the database."""

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.errors import TrainingBroken
from ledger.events import ModelVersionPublished, UpdateApplied
from ledger.ledger import LedgerHandle
from training.optimise.schedule import Place


@dataclass(frozen=True)
class AppliedUpdate:
    """An update of the chain."""

    place: Place
    update_id: str
    batch_id: str
    before: str
    after: str
    counters: dict[str, int | float]


def applied_updates(
    ledger: LedgerHandle, run_id: str, places: Sequence[Place], *, known: Sequence[AppliedUpdate] = ()
) -> list[AppliedUpdate]:
    """The updates of a run that were applied, in order; each starts from the version that the one before it made.

    Args:
        known: the first of them, read before: an update that was applied stays so, and is not read again.
    Raises:
        TrainingBroken: one is missing in the middle, or does not start where the one before it ended.
    """
    ledger.barrier()
    places = places[len(known) :]
    ids = [place.update_id(run_id) for place in places]
    found: dict[str, UpdateApplied] = {}
    for event in ledger.read_streams([f"update-{update_id}" for update_id in ids]):
        if isinstance(event.body, UpdateApplied) and event.body.part == 0:
            found[event.body.update_id] = event.body
    chain = list(known)
    for place, update_id in zip(places, ids, strict=True):
        body = found.pop(update_id, None)
        if body is None:
            break
        if chain and chain[-1].after != body.model_version_before:
            raise TrainingBroken(
                f"update {place.label} starts from {body.model_version_before}; allowed: {chain[-1].after}, which the one before it made"
            )
        chain.append(
            AppliedUpdate(place, update_id, body.batch_id, body.model_version_before, body.model_version_after, dict(body.counters))
        )
    if found:
        raise TrainingBroken(f"update {next(iter(found))} was applied though one before it was not; allowed: one chain without a gap")
    return chain


def published_version(ledger: LedgerHandle, version: str) -> ModelVersionPublished | None:
    """What was published of a model version; None when nothing was."""
    for event in ledger.read_stream(f"model-{version}"):
        if isinstance(event.body, ModelVersionPublished):
            return event.body
    return None


def published_by(ledger: LedgerHandle, run_id: str, versions: Sequence[str]) -> set[str]:
    """Those of the versions that the run has published."""
    ledger.barrier()
    bodies = [event.body for event in ledger.read_streams([f"model-{version}" for version in versions])]
    return {body.model_version for body in bodies if isinstance(body, ModelVersionPublished) and body.run_id == run_id}
