"""The assets from worlds to the bundles that may be used: registered, checked, sealed, gated, admitted."""

import dagster as dg

from audit import bundle_stages
from ledger.canonical import digest
from pipelines.figures import bar_chart, markdown_table
from pipelines.partitions import EXPERIMENT_ROUNDS, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.summary import LoggedProgress, Metadata, merged, stage_metadata
from training import stages
from training.lab import Lab

_SHOWN = 50


@dg.asset(partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"})
def worlds(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """World, verifier and harness versions, each named by the digest of its source."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        report = stages.worlds(lab)
        return dg.MaterializeResult(metadata=merged(versions_metadata(lab), stage_metadata(lab, part.round, report)))


@dg.asset(deps=[worlds], partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"})
def world_checks(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """The environment gate: every tool exercised, reads that do not write, seeds that matter; kept by world version."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        checked = bundle_stages.world_checks(lab, progress=LoggedProgress(context.log.info))
        rows = [
            [name, result.check_id, result.status, gate.policy.severity[result.check_id], result.reason]
            for name, gate in checked.gates.items()
            for result in sorted(gate.results.values(), key=lambda result: result.check_id)
        ]
        table = dg.MetadataValue.md(markdown_table(["world", "check", "status", "severity", "why"], rows))
        return dg.MaterializeResult(metadata=merged({"checks": table}, stage_metadata(lab, part.round, checked.report)))


@dg.asset(deps=[worlds], partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"})
def task_bundles(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Content-addressed task bundles: request, environment version, initial state, verifier version, harness version."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        report = stages.task_bundles(lab, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=stage_metadata(lab, part.round, report))


@dg.asset(deps=[task_bundles, world_checks], partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"})
def bundle_checks(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Both gates of every bundle, with what each check measured; each decision is an event."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        checked = bundle_stages.bundle_checks(lab, progress=LoggedProgress(context.log.info))
        reasons = [[name, check_id, count] for name, gated in checked.gated.items() for check_id, count in gated.reasons.items()]
        rejected = [d for gated in checked.gated.values() for d in gated.decisions if not d.admitted]
        rows = [
            [d.bundle.draft.name, name, d.results[name].reason, d.results[name].remedy] for d in rejected[:_SHOWN] for name in d.blocking
        ]
        bars = {
            name: {"admitted": sum(d.admitted for d in gated.decisions), "rejected": sum(not d.admitted for d in gated.decisions)}
            for name, gated in checked.gated.items()
        }
        shown: Metadata = {
            "why rejected": dg.MetadataValue.md(
                markdown_table(["world", "check", "bundles"], reasons) if reasons else "No bundle was rejected."
            ),
            "rejected bundles": dg.MetadataValue.md(markdown_table(["bundle", "check", "why", "remedy"], rows) if rows else "None."),
            "chart": dg.MetadataValue.md(bar_chart("bundles", bars)),
        }
        return dg.MaterializeResult(metadata=merged(shown, versions_metadata(lab), stage_metadata(lab, part.round, checked.report)))


@dg.asset(deps=[bundle_checks], partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"})
def admitted_bundles(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """What may be used: the bundles that the newest decisions admit, by split, with the digest of the manifest."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        found = bundle_stages.admitted_bundles(lab)
        bars: dict[str, dict[str, int]] = {}
        for bundle, admission in found.rows:
            bar = bars.setdefault(f"{bundle.draft.world} · {bundle.draft.split}", {"admitted": 0, "rejected": 0, "undecided": 0})
            bar["admitted" if admission.admitted else "undecided" if admission.gate_id is None else "rejected"] += 1
        rows = [[*name.split(" · "), *bar.values()] for name, bar in sorted(bars.items())]
        shown: Metadata = {
            "manifest digest": dg.MetadataValue.text(found.manifest_digest),
            "splits": dg.MetadataValue.md(markdown_table(["world", "split", "admitted", "rejected", "undecided"], rows)),
            "chart": dg.MetadataValue.md(bar_chart("bundles", dict(sorted(bars.items())))),
        }
        return dg.MaterializeResult(metadata=merged(shown, stage_metadata(lab, part.round, found.report)))


def versions_metadata(lab: Lab) -> Metadata:
    """World, verifier and harness versions of an experiment, and one digest over the versions that the gates depend on."""
    rows = [["world", name, world.version] for name, world in lab.worlds.items()]
    rows += [["verifier", j.verifier.ref.name, j.verifier.ref.method_id] for name in lab.worlds for j in lab.judgings[name]]
    return {
        "versions": dg.MetadataValue.md(
            markdown_table(["kind", "name", "version"], [*rows, ["harness", lab.harness.name, lab.harness.harness_id]])
        ),
        "versions digest": dg.MetadataValue.text(digest(rows)),
    }
