"""The recorded rollouts that a supervised stage learns from: collected from scripts, or found in the ledger. Writes the ledger."""

import inspect
from collections.abc import Sequence

from ledger import queries
from ledger.attempts import attempts
from ledger.bundle import Bundle
from ledger.errors import SettingsError
from ledger.queries import Filter
from training import stages
from training.admission import admitted, require_admitted
from training.lab import Lab
from training.optimise.opened import Training
from training.optimise.schedule import Place
from training.rollout import policies
from training.rollout.collect import Group
from training.rollout.policies import Policy
from training.stages import Progress, silent
from training.train_config import SupervisedStage, TraceSource
from training.worlds.source import with_params

_TRIES = "tries"
"""Parameter of a script that says the how manieth rollout of a task this is, for scripts that draw."""


def collect_traces(training: Training, place: Place, *, progress: Progress = silent) -> list[tuple[TraceSource, list[str]]]:
    """Each source of a supervised stage with its counted rollouts, judged and rewarded.

    Args:
        place: the first update of the stage; its round is that of the rollouts that are collected for it.
    Raises:
        SettingsError: a source names no policy, or there are no admitted training bundles.
    """
    stage = place.stage
    assert isinstance(stage, SupervisedStage)
    if stage.name in training.traces:
        return training.traces[stage.name]
    lab = training.lab
    train = lab.training_bundles(stage.name)
    bundles = [train[bundle_id] for bundle_id in admitted(training.ledger, of=list(train))]
    if not bundles:
        raise SettingsError(f"stage {stage.name!r} has no admitted training bundle to take traces of; run the gates first")
    found: list[tuple[TraceSource, list[str]]] = []
    for source in stage.traces:
        if any(source.policy in lab.sources[world].scripts for world in lab.worlds):
            found.append((source, _collected(training, place, source, bundles, progress)))
        else:
            found.append((source, _recorded(training, source, bundles)))
    stages.verdicts(lab, round=place.round, progress=progress)
    stages.rewards(lab, round=place.round, progress=progress)
    return training.traces.setdefault(stage.name, found)


def _collected(training: Training, place: Place, source: TraceSource, bundles: Sequence[Bundle], progress: Progress) -> list[str]:
    lab, run = training.lab, training.lab.run(place.round)
    groups = trace_groups(lab, source, bundles)
    ids = [run.group_id(group) for group in groups]
    known = attempts(training.ledger, ids)
    if sum(attempt.counts for attempt in known) < sum(group.size for group in groups):
        stages.collect_scripts(lab, run, groups, what=f"traces of {source.policy}", progress=progress)
        known = attempts(training.ledger, ids)
    filled = {(attempt.group_id, attempt.slot): attempt.rollout_id for attempt in known if attempt.counts}
    return [filled[group_id, slot] for group_id, group in zip(ids, groups, strict=True) for slot in range(group.size)]


def trace_groups(lab: Lab, source: TraceSource, bundles: Sequence[Bundle]) -> list[Group]:
    """Groups with as many rollouts as a source asks for, over the bundles in turn.

    A script with a parameter `tries` gets the number of the turn, so that what it draws differs between the rollouts of a task.
    """
    found: list[Group] = []
    acting: dict[tuple[str, int], Policy] = {}

    def policy(world: str, turn: int) -> Policy:
        # A version is published once for all of its groups.
        if (world, turn) not in acting:
            params = {**source.params, _TRIES: turn} if turn else source.params
            acting[world, turn] = policies.scripted(lab.ledger, source.policy, with_params(scripts[world], params))
        return acting[world, turn]

    worlds = {bundle.draft.world for bundle in bundles}
    scripts = {world: script for world in worlds if (script := lab.sources[world].scripts.get(source.policy)) is not None}
    for place, bundle in enumerate(bundles):
        world, turns = bundle.draft.world, len(range(place, source.rollouts, len(bundles)))
        if world not in scripts:
            raise SettingsError(f"no policy {source.policy!r} for world {world!r}")
        if _TRIES in inspect.signature(scripts[world]).parameters:
            found += [Group(bundle, policy(world, turn), 1) for turn in range(1, turns + 1)]
        elif turns:
            found.append(Group(bundle, policy(world, 0), turns))
    return found


def _recorded(training: Training, source: TraceSource, bundles: Sequence[Bundle]) -> list[str]:
    """Counted rollouts of a policy at the experiment's training bundles, oldest first."""
    queries.fresh(training.ledger)
    mine = {bundle.bundle_id for bundle in bundles}
    page = queries.rollouts(training.ledger, Filter(policy=source.policy, split="train", counted=True), limit=100_000, newest=False)
    found = [line for line in page.lines if line.bundle_id in mine and line.ended_by is not None and not line.superseded][: source.rollouts]
    if len(found) < source.rollouts:
        raise SettingsError(
            f"{len(found)} recorded rollouts of {source.policy!r} at training bundles; allowed: {source.rollouts} or more of them"
        )
    require_admitted(training.ledger, sorted({line.bundle_id for line in found}), use="batch")
    return [line.rollout_id for line in found]
