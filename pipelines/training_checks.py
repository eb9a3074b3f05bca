"""Checks that stop training: a batch holds everybody who was dispatched, and a version continues the one before it, as it was sampled."""

from collections.abc import Mapping, Sequence

import dagster as dg

from ledger.attempts import DispatchedGroup, attempts, dispatched
from ledger.evaluated import of_kind
from ledger.events import BatchAssembled, EngineRefreshed
from ledger.ledger import LedgerHandle
from pipelines.assets.training import model_version, training_batch
from pipelines.partitions import EXPERIMENT_ROUNDS, ExperimentRound, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.rounds import sampled_for, update_of
from training.lab import Lab


@dg.asset_check(asset=training_batch, blocking=True, partitions_def=EXPERIMENT_ROUNDS)
def everybody_dispatched_is_in_the_batch(
    context: dg.AssetCheckExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.AssetCheckResult:
    """Dispatched = rows + exclusions, each rollout once; none is at a task of the test split; and something is trained on."""
    from training.optimise.update_read import recorded_batch

    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        if sampled_for(lab.config.train, part) is None:
            return _nothing_to_check("the round has no batch")
        run_id = lab.run().run_id
        groups = [group for group in dispatched(lab.ledger, run_id, part.round) if group.policy == lab.config.name]
        batch = recorded_batch(lab.ledger, run_id, part.round)
        filled = {a.rollout_id for a in attempts(lab.ledger, [group.group_id for group in groups]) if a.counts}
        splits = {bundle.bundle_id: bundle.draft.split for bundle in lab.bundles}
    counts = _counted(groups, batch)
    faults = _batch_faults(counts, groups, batch, filled=filled, splits=splits)
    summed = "{dispatched} dispatched, {rows} in the batch, {exclusions} left out, {trained_tokens} trained tokens".format(**counts)
    return dg.AssetCheckResult(passed=not faults, description="; ".join([summed, *faults]), metadata={**counts, "faults": len(faults)})


@dg.asset_check(asset=model_version, blocking=True, partitions_def=EXPERIMENT_ROUNDS)
def the_version_continues_the_one_before(
    context: dg.AssetCheckExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.AssetCheckResult:
    """The version's parent is that of the round before, whose rollouts an engine sampled that agreed with the trainer in a probe."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        if update_of(lab.config.train, part) is None:
            return _nothing_to_check("the round has no update of its own")
        faults, gap = _version_faults(lab, part)
    metadata = {} if gap is None else {"probe gap": gap}
    said = "no probe" if gap is None else f"probe gap {gap:.3g} nats"
    return dg.AssetCheckResult(passed=not faults, description="; ".join([said, *faults]), metadata={**metadata, "faults": len(faults)})


TRAINING_CHECKS = [everybody_dispatched_is_in_the_batch, the_version_continues_the_one_before]


def _nothing_to_check(why: str) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True, description=f"nothing to check: {why}")


def _counted(groups: Sequence[DispatchedGroup], batch: Sequence[BatchAssembled]) -> dict[str, int]:
    return {
        "dispatched": sum(group.size for group in groups),
        "rows": sum(len(part.rows) for part in batch),
        "exclusions": sum(len(ids) for part in batch for ids in part.exclusions.values()),
        "trained_tokens": sum(piece.trained for part in batch for row in part.rows if row.trains for piece in row.rows),
    }


def _batch_faults(
    counts: Mapping[str, int],
    groups: Sequence[DispatchedGroup],
    batch: Sequence[BatchAssembled],
    *,
    filled: set[str],
    splits: Mapping[str, str],
) -> list[str]:
    named = {row.rollout_id for part in batch for row in part.rows} | {
        rollout_id for part in batch for ids in part.exclusions.values() for rollout_id in ids
    }
    apart = counts["dispatched"] - counts["rows"] - counts["exclusions"]
    strangers = sorted(named - filled)
    held_out = sorted(group.bundle_id for group in groups if splits.get(group.bundle_id, "unknown") not in ("train", "validation"))
    found = [
        (apart != 0 or len(named) != counts["rows"] + counts["exclusions"], f"{apart} of the dispatched have no part in it, or two"),
        (bool(strangers), f"{len(strangers)} fill no slot of the round, the first {strangers[:1]}"),
        (bool(held_out), f"{len(held_out)} tasks of the test split or of no split, the first {held_out[:1]}"),
        (counts["trained_tokens"] == 0, "no token is trained on"),
    ]
    return [said for wrong, said in found if wrong]


def _version_faults(lab: Lab, part: ExperimentRound) -> tuple[list[str], float | None]:
    """What is wrong with the version of a round, and the largest gap of the probes of the version that it comes from."""
    from training.optimise.chain import published_version
    from training.optimise.opened import Training

    training = Training(lab)
    chain = training.chain()
    if len(chain) < part.round:
        return [f"the update was not applied: the run has {len(chain)}"], None
    update = chain[part.round - 1]
    before = chain[part.round - 2].after if part.round > 1 else update.before
    faults: list[str] = []
    if update.after != before and not update.counters.get("weights_unchanged"):
        version = published_version(lab.ledger, update.after)
        parent = None if version is None else version.parent
        if parent != before:
            faults.append(f"the parent of {update.after} is {parent}; allowed: {before}, of the round before")
    if sampled_for(lab.config.train, part) is None:
        return faults, None
    gaps = _probe_gaps(lab.ledger, before)
    measured = [gap for gap in gaps if gap is not None]
    tolerance = training.table.engine.probe_tolerance_nats
    if not gaps or len(measured) < len(gaps):
        faults.append(f"{len(gaps) - len(measured)} of {len(gaps)} times that an engine took {before} no probe was recorded")
    if measured and max(measured) > tolerance:
        faults.append(f"engine and trainer differ by {max(measured):.3g} nats in {before}; allowed: {tolerance:g}")
    return faults, max(measured, default=None)


def _probe_gaps(ledger: LedgerHandle, version: str) -> list[float | None]:
    bodies = [body for event in of_kind(ledger, "EngineRefreshed") if isinstance(body := event.body, EngineRefreshed)]
    return [body.probe_gap for body in bodies if body.model_version == version]
