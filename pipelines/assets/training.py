"""The assets of each round of training: its batch, its model version and its evaluation.

Round 0 of an experiment is what comes before its first round of rollouts; round k is the update with that number in the run.
"""

from base64 import b64encode

import dagster as dg

from audit.evaluation import Evaluation, Question, evaluate
from audit.evaluation_curves import curve_png, gains
from audit.evaluation_record import Purpose, append, measured_events, record_reads
from ledger.errors import UnknownId
from ledger.events import BatchAssembled
from pipelines.assets.evaluation import rewards
from pipelines.assets.imitation import chain_metadata, nothing_to_do, sft_model
from pipelines.figures import markdown_table
from pipelines.partitions import EXPERIMENT_ROUNDS, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.rounds import ENGINE_POOL, is_due, label_of
from pipelines.summary import LoggedProgress, Metadata, merged, stage_metadata
from training.lab import Lab
from training.stages import StageReport

_SHOWN = 20


@dg.asset(deps=[rewards], partitions_def=EXPERIMENT_ROUNDS, group_name="training", kinds={"python", "postgres"})
def training_batch(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Which rollouts vote in a baseline, which are in the loss with what advantage and weight, and why the others are not."""
    from training.optimise import trainer

    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        label = label_of(lab.config.train, part)
        if label is None:
            return nothing_to_do(lab, part)
        report = trainer.training_batch(lab, label, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=merged(batch_metadata(lab, report), stage_metadata(lab, part.round, report)))


@dg.asset(deps=[training_batch, sft_model], partitions_def=EXPERIMENT_ROUNDS, group_name="training", kinds={"torch", "postgres"})
def model_version(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """The update of the round applied and its version published, from the version of the round before, which the ledger names."""
    from training.optimise import trainer

    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        label = label_of(lab.config.train, part)
        if label is None:
            return nothing_to_do(lab, part)
        report = trainer.model_version(lab, label, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=merged(chain_metadata(lab), stage_metadata(lab, part.round, report)))


@dg.asset(
    deps=[model_version], partitions_def=EXPERIMENT_ROUNDS, group_name="training", kinds={"python", "postgres"}, pool=ENGINE_POOL
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
        if lab.config.train is None:
            return nothing_to_do(lab, part)
        wanted = [place for place in evaluations.evaluated_places(Training(lab)) if is_due(part, place.round, place.stage.stage)]
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


def batch_metadata(lab: Lab, report: StageReport) -> Metadata:
    """Why rollouts are not in the loss, and who has the largest part of the gradient."""
    bodies = [event.body for event in lab.ledger.read(report.since, kinds=["BatchAssembled"], limit=1000)]
    parts = [body for body in bodies if isinstance(body, BatchAssembled)]
    if not parts:
        return {}
    batch_id = parts[-1].batch_id
    parts = [body for body in parts if body.batch_id == batch_id]
    left = [[reason, len(ids)] for body in parts for reason, ids in sorted(body.exclusions.items())]
    rows = sorted((row for body in parts for row in body.rows), key=lambda row: -sum(part.credit for part in row.rows))
    total = sum(part.credit for row in rows for part in row.rows) or 1.0
    shown = [
        [row.rollout_id, _plain(row.reward), row.votes, row.trains, _plain(row.advantage), f"{sum(p.credit for p in row.rows) / total:.2%}"]
        for row in rows[:_SHOWN]
    ]
    return {
        "batch": dg.MetadataValue.text(batch_id),
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
    newest = [cell for cell in found.cells if not cell.scripted]
    return {
        **({} if picture is None else {"curves": dg.MetadataValue.md(f"![learning curves](data:image/png;base64,{picture})")}),
        "success": dg.MetadataValue.md(success_table(found)),
        **({"newest success": dg.MetadataValue.float(newest[-1].estimates["success"].value or 0.0)} if newest else {}),
    }


def success_table(found: Evaluation) -> str:
    """Policies against slices: success with its interval, and both denominators."""
    rows = []
    for cell in found.cells:
        told = cell.estimates["success"]
        value = "missing" if told.value is None else f"{told.value:.3f}"
        interval = "" if told.low is None or told.high is None else f"{told.low:.3f} to {told.high:.3f}"
        temperature = "" if cell.key.temperature is None else f"{cell.key.temperature:g}"
        who = cell.key.policy if cell.scripted else f"{cell.stage or ''} {cell.round or ''} {cell.key.model_version}"
        rows.append([cell.key.slice, who, temperature, value, interval, cell.counts.measured, cell.counts.expected])
    return markdown_table(["slice", "policy", "T", "success", "95 % interval", "measured", "expected"], rows)


def _plain(value: float | int | None) -> str:
    return "" if value is None else f"{value:.4g}"
