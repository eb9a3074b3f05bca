"""Asset checks: worlds and bundles hold, splits are disjoint, slots are filled, oracles succeed, missing rewards have reasons."""

from collections.abc import Iterator

import dagster as dg

from audit import bundle_stages
from audit.bundle_batch import BundleBatch
from audit.expectations import expectations
from ledger import queries
from ledger.attempts import attempts
from ledger.queries import Filter, RolloutLine
from pipelines.assets.evaluation import rewards, verdicts
from pipelines.assets.rollouts import rollouts
from pipelines.assets.synthesis import admitted_bundles, world_checks
from pipelines.figures import coverage_table, markdown_table, missing_table
from pipelines.partitions import EXPERIMENT_ROUNDS, ExperimentRound, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.rounds import sampled_for
from pipelines.training_checks import TRAINING_CHECKS
from training.lab import Lab
from training.rollout.collect import Group

ORACLE = "oracle"
_NAMED = 20
_PAGE = 1000


@dg.asset_check(asset=world_checks, blocking=True, partitions_def=EXPERIMENT_ROUNDS)
def worlds_hold(
    context: dg.AssetCheckExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.AssetCheckResult:
    """No world of the experiment fails a check that its policy takes for a failure: no bundle of such a world could be admitted."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        checked = bundle_stages.world_checks(lab)
    blocked = [f"{name}: {check_id}" for name, gate in checked.gates.items() for check_id in gate.blocking]
    return dg.AssetCheckResult(
        passed=not blocked,
        description=f"{len(checked.gates)} worlds checked" + _named(blocked, "blocked by"),
        metadata={"worlds": len(checked.gates), "blocked": len(blocked)},
    )


@dg.asset_check(asset=admitted_bundles, blocking=True, partitions_def=EXPERIMENT_ROUNDS)
def every_bundle_is_decided(
    context: dg.AssetCheckExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.AssetCheckResult:
    """Admitted + rejected = bundles, and at least one is admitted."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        found = bundle_stages.admitted_bundles(lab)
    counts = found.report.counts
    undecided = [bundle.draft.name for bundle, admission in found.rows if admission.gate_id is None]
    return dg.AssetCheckResult(
        passed=counts["undecided"] == 0 and counts["admitted"] > 0,
        description=f"{counts['admitted']} of {counts['bundles']} bundles admitted, {counts['rejected']} rejected"
        + _named(undecided, "undecided:"),
        metadata={name: counts[name] for name in ("bundles", "admitted", "rejected", "undecided")},
    )


@dg.asset_check(asset=admitted_bundles, blocking=True, partitions_def=EXPERIMENT_ROUNDS)
def splits_are_disjoint(
    context: dg.AssetCheckExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.AssetCheckResult:
    """Admitted bundles of two splits share neither request, nor text and initial state, nor a family, wording, pool of names or group."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        found = bundle_stages.admitted_bundles(lab)
    kept = BundleBatch([bundle for bundle, admission in found.rows if admission.admitted])
    straddling = kept.straddling
    return dg.AssetCheckResult(
        passed=not straddling,
        description=f"{len(kept.bundles)} admitted bundles" + _named(straddling, "sharing"),
        metadata={"admitted": len(kept.bundles), "straddling": len(straddling)},
    )


@dg.asset_check(asset=rollouts, blocking=True, partitions_def=EXPERIMENT_ROUNDS)
def every_slot_is_filled(
    context: dg.AssetCheckExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.AssetCheckResult:
    """Every slot that the round asks for has one counted attempt, and expected = measured + masked + failed + omitted + unknown."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        expected = _expected_slots(lab, part)
        filled = {(a.group_id, a.slot) for a in attempts(lab.ledger, sorted({group_id for group_id, _ in expected})) if a.counts}
        empty = [name for slot, name in expected.items() if slot not in filled]
        queries.fresh(lab.ledger)
        lines = queries.coverage(lab.ledger, Filter(experiment_id=lab.experiment_id, round=part.round))
    unequal = [c for c in lines if c.unknown < 0]
    return dg.AssetCheckResult(
        passed=not empty and not unequal,
        description=f"{len(expected) - len(empty)} of {len(expected)} expected slots have a counted attempt" + _named(empty, "without"),
        metadata={
            "expected": len(expected),
            "empty": len(empty),
            "rows that do not add up": len(unequal),
            "coverage": dg.MetadataValue.md(coverage_table(lines)),
        },
    )


@dg.asset_check(asset=verdicts, blocking=True, partitions_def=EXPERIMENT_ROUNDS)
def oracles_succeed(
    context: dg.AssetCheckExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.AssetCheckResult:
    """The reference policy succeeds on every bundle that it was tried on; a bundle on which it does not is broken, and is named."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        queries.fresh(lab.ledger)
        tried = list(_lines(lab, Filter(run_id=lab.run(part.round).run_id, round=part.round, policy=ORACLE, counted=True)))
    broken = [line for line in tried if line.outcome != "succeeded"]
    rows = [[line.bundle, line.world, line.outcome, line.ended_by, line.rollout_id] for line in broken]
    names = [str(line.bundle or line.bundle_id) for line in broken]
    return dg.AssetCheckResult(
        passed=not broken,
        description=f"the oracle succeeded in {len(tried) - len(broken)} of {len(tried)} rollouts" + _named(names, "but not on"),
        metadata={
            "tried": len(tried),
            "broken": len(broken),
            "bundles": dg.MetadataValue.md(markdown_table(["bundle", "world", "outcome", "ended by", "rollout"], rows)),
        },
    )


@dg.asset_check(asset=rewards, blocking=True, partitions_def=EXPERIMENT_ROUNDS)
def nulls_have_reasons(
    context: dg.AssetCheckExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.AssetCheckResult:
    """Every ended rollout has a reward, and every reward without a number says why."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        queries.fresh(lab.ledger)
        missing = queries.missing_rewards(lab.ledger, Filter(run_id=lab.run(part.round).run_id, round=part.round, counted=True))
    unexplained = sum(line.count for line in missing if not line.derived or not line.reason)
    return dg.AssetCheckResult(
        passed=unexplained == 0,
        description=f"{sum(line.count for line in missing)} rollouts have no number, {unexplained} of them without a recorded reason",
        metadata={"unexplained": unexplained, "missing": dg.MetadataValue.md(missing_table(missing))},
    )


@dg.asset_check(asset=rewards, blocking=False, partitions_def=EXPERIMENT_ROUNDS)
def read_models_hold(deployment: dg.ResourceParam[Deployment]) -> dg.AssetCheckResult:
    """The expectations over all read models, run by Great Expectations; rows that break one are shown."""
    with deployment.connect() as ledger:
        queries.fresh(ledger)
        results = expectations(ledger)
    broken = [result for result in results if not result.success]
    rows = [[result.table, result.rule, result.unexpected, result.rows[:1]] for result in broken]
    return dg.AssetCheckResult(
        passed=not broken,
        description=f"{len(results) - len(broken)} of {len(results)} expectations hold",
        metadata={"broken": dg.MetadataValue.md(markdown_table(["read model", "rule", "rows", "first row"], rows))},
    )


CHECKS = [
    worlds_hold, every_bundle_is_decided, splits_are_disjoint, every_slot_is_filled, oracles_succeed, nulls_have_reasons, read_models_hold,
    *TRAINING_CHECKS,
]  # fmt: skip


def _expected_slots(lab: Lab, part: ExperimentRound) -> dict[tuple[str, int], str]:
    """(group, slot) that the round asks for, to a name that a person can read.

    In an experiment that trains, rounds after round 0 have no collections: those of a reinforce stage have their drawn groups.
    """
    run = lab.run(part.round)
    return {
        (run.group_id(group), slot): f"{group.policy.name} on {group.bundle.draft.name} #{slot}"
        for group in _expected_groups(lab, part)
        for slot in range(group.size)
    }


def _expected_groups(lab: Lab, part: ExperimentRound) -> list[Group]:
    place = sampled_for(lab.config.train, part)
    if place is not None:
        from training.optimise import trainer

        return list(trainer.expected_groups(lab, place.label))
    if lab.config.train is not None and part.round:
        return []
    return [group for collection in lab.config.collect for group in lab.groups(collection)]


def _lines(lab: Lab, where: Filter) -> Iterator[RolloutLine]:
    offset = 0
    while True:
        page = queries.rollouts(lab.ledger, where, limit=_PAGE, offset=offset, newest=False)
        yield from page.lines
        offset += len(page.lines)
        if not page.lines or offset >= page.total:
            return


def _named(names: list[str], how: str) -> str:
    """A clause that names the first of the names and says how many more there are; nothing without names."""
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"; {how} {', '.join(names[:_NAMED])}{more}"
