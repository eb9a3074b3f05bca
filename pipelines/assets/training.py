"""The assets of each round of training: its batch, its model version and its evaluation.

Round 0 of an experiment is what comes before its first round of rollouts; round k is the update with that number in the run.
"""

from base64 import b64encode
from collections import Counter

import dagster as dg

from audit.evaluation import Evaluation, Question, evaluate
from audit.evaluation_curves import curve_png, gains
from audit.evaluation_record import Purpose, append, measured_events, record_reads
from ledger.errors import UnknownId
from pipelines.assets.evaluation import rewards
from pipelines.assets.imitation import chain_metadata, nothing_to_do, sft_model
from pipelines.figures import markdown_table
from pipelines.partitions import EXPERIMENT_ROUNDS, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.rounds import ENGINE_POOL, is_due, sampled_for, update_of
from pipelines.summary import LoggedProgress, Metadata, merged, stage_metadata
from training.lab import Lab
from training.stages import StageReport
from training.train_config import EvaluationTable

_SHOWN = 20


@dg.asset(deps=[rewards], partitions_def=EXPERIMENT_ROUNDS, group_name="training", kinds={"python", "postgres"})
def training_batch(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Which rollouts vote in a baseline, which are in the loss with what advantage and weight, and why the others are not."""
    from training.optimise import trainer

    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        place = sampled_for(lab.config.train, part)
        if place is None:
            return nothing_to_do(lab, part)
        report = trainer.training_batch(lab, place.label, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=merged(batch_metadata(lab, part.round), stage_metadata(lab, part.round, report)))


@dg.asset(deps=[training_batch, sft_model], partitions_def=EXPERIMENT_ROUNDS, group_name="training", kinds={"torch", "postgres"})
def model_version(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """The update of the round applied and its version published, from the version of the round before, which the ledger names."""
    from training.optimise import trainer

    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        place = update_of(lab.config.train, part)
        if place is None:
            return nothing_to_do(lab, part)
        report = trainer.model_version(lab, place.label, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=merged(chain_metadata(lab, part.round), stage_metadata(lab, part.round, report)))


@dg.asset(
    deps=[model_version, sft_model], partitions_def=EXPERIMENT_ROUNDS, group_name="training", kinds={"python", "postgres"}, pool=ENGINE_POOL
)  # fmt: skip
def evaluation(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Success of the round's version on tasks that nobody trains on, beside fixed rules on the same ones, with curves over all rounds."""
    from training.optimise import evaluations
    from training.optimise.opened import Training
    from training.optimise.samplers import open_sampler

    part = parse_key(context.partition_key)
    progress = LoggedProgress(context.log.info)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        train = lab.config.train
        if train is None:
            return nothing_to_do(lab, part)
        wanted = [place for place in evaluations.evaluated_places(Training(lab)) if is_due(train, part, place)]
        since = lab.ledger.barrier()
        counts: dict[str, int] = {"versions": len(wanted)}
        with open_sampler(lab) as sampler:
            reports = [evaluations.evaluate_version(lab, place.label, sampler, progress=progress) for place in wanted]
        if part.round == 0:
            reports.append(evaluations.evaluate_fixed_rules(lab, progress=progress))
        for report in reports:
            for name, count in report.counts.items():
                counts[name] = counts.get(name, 0) + count
        shown = evaluation_metadata(lab) if wanted or part.round == 0 else {}
        return dg.MaterializeResult(
            metadata=merged(shown, stage_metadata(lab, part.round, StageReport(since, lab.ledger.barrier(), counts)))
        )


def batch_metadata(lab: Lab, round: int) -> Metadata:
    """Why rollouts are not in the loss, and who has the largest part of the gradient."""
    from training.optimise.update_read import recorded_batch

    parts = recorded_batch(lab.ledger, lab.run().run_id, round)
    reasons: Counter[str] = Counter()
    for body in parts:
        reasons.update({reason: len(ids) for reason, ids in body.exclusions.items()})
    left = [[reason, count] for reason, count in sorted(reasons.items())]
    rows = sorted((row for body in parts for row in body.rows), key=lambda row: -sum(part.credit for part in row.rows))
    total = sum(part.credit for row in rows for part in row.rows) or 1.0
    shown = [
        [row.rollout_id, _plain(row.reward), row.votes, row.trains, _plain(row.advantage), f"{sum(p.credit for p in row.rows) / total:.2%}"]
        for row in rows[:_SHOWN]
    ]
    return {
        "batch": dg.MetadataValue.text(parts[0].batch_id),
        "left out": dg.MetadataValue.md(markdown_table(["reason", "rollouts"], left) if left else "Nobody was left out."),
        "who got how much gradient": dg.MetadataValue.md(
            markdown_table(["rollout", "reward", "votes", "trains", "advantage", "share"], shown)
        ),
    }


def evaluation_metadata(lab: Lab) -> Metadata:
    """Success by slice, version and temperature with intervals, and the curves as a PNG; what is measured is appended as events."""
    assert lab.config.train is not None
    try:
        found = evaluate(lab.ledger, Question((lab.run().run_id,), split=lab.config.train.evaluation.split))
    except UnknownId:
        return {}
    purpose: Purpose = "selection" if lab.config.train.evaluation.split == "validation" else "report"
    record_reads(lab.ledger, found, purpose=purpose, reader="evaluation")
    append(lab.ledger, measured_events(lab.ledger, found))
    picture = b64encode(curve_png(found, gains(lab.ledger, found))).decode() if any(not cell.scripted for cell in found.cells) else None
    newest = newest_success(found, lab.config.train.evaluation)
    return {
        **({} if picture is None else {"curves": dg.MetadataValue.md(f"![learning curves](data:image/png;base64,{picture})")}),
        "success": dg.MetadataValue.md(success_table(found)),
        **({} if newest is None else {"newest success": dg.MetadataValue.float(newest)}),
    }


def newest_success(found: Evaluation, table: EvaluationTable) -> float | None:
    """Success of the newest version in the first slice at the first temperature; None where it was not measured."""
    place = table.slices[0], table.temperatures[0]
    learned = [cell for cell in found.cells if not cell.scripted and cell.step is not None]
    primary = [cell for cell in learned if (cell.key.slice, cell.key.temperature) == place]
    return max(primary, key=lambda cell: cell.step or 0).estimates["success"].value if primary else None


def success_table(found: Evaluation) -> str:
    """Policies against slices: success with its interval, and both denominators."""
    rows = []
    for cell in found.cells:
        told = cell.estimates["success"]
        value = "missing" if told.value is None else f"{told.value:.3f}"
        interval = "" if told.low is None or told.high is None else f"{told.low:.3f} to {told.high:.3f}"
        temperature = "" if cell.key.temperature is None else f"{cell.key.temperature:g}"
        made = " ".join(str(item) for item in (cell.stage, cell.round) if item is not None)
        who = cell.key.policy if cell.scripted else f"{made} {cell.key.model_version}"
        rows.append([cell.key.slice, who, temperature, value, interval, cell.counts.measured, cell.counts.expected])
    return markdown_table(["slice", "policy", "T", "success", "95 % interval", "measured", "expected"], rows)


def _plain(value: float | int | None) -> str:
    return "" if value is None else f"{value:.4g}"
