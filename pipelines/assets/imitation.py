"""The assets before the first round of rollouts: recorded traces, and the policy that imitates them."""

import dagster as dg

from pipelines.assets.synthesis import admitted_bundles
from pipelines.figures import markdown_table
from pipelines.partitions import EXPERIMENT_ROUNDS, ExperimentRound, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.summary import LoggedProgress, Metadata, merged, stage_metadata
from training.lab import Lab

_SHOWN = 20


@dg.asset(deps=[admitted_bundles], partitions_def=EXPERIMENT_ROUNDS, group_name="training", kinds={"python", "postgres"})
def supervised_traces(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Recorded rollouts that supervised stages imitate: of scripted teachers, or of policies that acted before; judged and rewarded."""
    from training.optimise.trainer import supervised_traces as collect

    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        if lab.config.train is None or part.round:
            return nothing_to_do(lab, part)
        report = collect(lab, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=stage_metadata(lab, part.round, report))


@dg.asset(deps=[supervised_traces], partitions_def=EXPERIMENT_ROUNDS, group_name="training", kinds={"torch", "postgres"})
def sft_model(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """All updates before the first round of rollouts: the policy made, copying learned, the traces imitated."""
    from training.optimise import trainer

    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        if lab.config.train is None or part.round:
            return nothing_to_do(lab, part)
        report = trainer.sft_model(lab, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=merged(chain_metadata(lab, report.counts["updates"]), stage_metadata(lab, part.round, report)))


def nothing_to_do(lab: Lab, part: ExperimentRound) -> dg.MaterializeResult[None]:
    """What an asset says of a round in which it has no work."""
    why = "the experiment trains nothing" if lab.config.train is None else f"round {part.round} has no such step"
    return dg.MaterializeResult(metadata={"nothing to do": dg.MetadataValue.text(why)})


def chain_metadata(lab: Lab, updates: int) -> Metadata:
    """The last of the run's first so many updates, and the version that the last one made."""
    from training.optimise.opened import Training

    chain = Training(lab).chain()[:updates]
    if not chain:
        return {}
    names = ("optimiser_steps", "tokens", "loss", "grad_norm", "gap_max")
    rows = [[u.place.label, u.before, u.after, *(_plain(u.counters.get(name)) for name in names)] for u in chain[-_SHOWN:]]
    last = chain[-1].counters
    return {
        "model version": dg.MetadataValue.text(chain[-1].after),
        "updates": dg.MetadataValue.int(len(chain)),
        **{name: dg.MetadataValue.float(float(last[name])) for name in ("loss", "grad_norm") if name in last},
        "chain": dg.MetadataValue.md(markdown_table(["update", "from", "to", *names], rows)),
        "counters": dg.MetadataValue.md(
            markdown_table(["counter", "value"], [[name, _plain(value)] for name, value in sorted(last.items())])
        ),
    }


def _plain(value: float | int | None) -> str:
    return "" if value is None else f"{value:.4g}"
