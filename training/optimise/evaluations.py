"""Rollouts that measure: model versions and fixed rules at tasks that nobody trains on. Writes the ledger."""

from collections.abc import Sequence

from ledger.attempts import attempts
from ledger.bundle import Bundle
from ledger.errors import SettingsError
from training import stages
from training.lab import Lab
from training.optimise.chain import AppliedUpdate
from training.optimise.opened import Start, Training
from training.optimise.rounds import RoundSampler, record_refresh
from training.optimise.schedule import Place, place_of
from training.optimise.updates import learner_at
from training.rollout import policies
from training.rollout.collect import Group, Run
from training.rollout.policies import Policy
from training.stages import Progress, StageReport, silent

FIXED_RULES = 0
"""The round of the fixed rules, which no update changes."""


def evaluation_tasks(training: Training) -> list[Bundle]:
    """The bundles that the experiment is evaluated on: those of its file that the gates did not reject.

    Raises:
        SettingsError: a slice has fewer bundles than the file asks for, or the gates rejected all of them.
    """
    chosen, rejected = _chosen(training), training.lab.rejected
    for name, found in chosen.items():
        if all(bundle.bundle_id in rejected for bundle in found):
            raise SettingsError(f"the gates rejected all {len(found)} tasks of slice {name!r}; allowed: one or more that they did not")
    return [bundle for found in chosen.values() for bundle in found if bundle.bundle_id not in rejected]


def _chosen(training: Training) -> dict[str, list[Bundle]]:
    """Slice to its bundles: of the split of the file, the first so many; a rejected one among them is replaced by none."""
    table = training.table.evaluation
    there = [bundle for bundle in training.lab.bundles if bundle.draft.split == table.split]
    chosen: dict[str, list[Bundle]] = {}
    for name in table.slices:
        found = [bundle for bundle in there if bundle.draft.provenance.get("slice") == name]
        wanted = table.tasks if name == "instances" else table.apart_tasks or table.tasks
        if len(found) < wanted:
            raise SettingsError(
                f"slice {name!r} of split {table.split!r} has {len(found)} tasks; allowed: {wanted} or more, from [[tasks]] with"
                f' options split = "{table.split}" and slice = "{name}"'
            )
        chosen[name] = found[:wanted]
    return chosen


def evaluated_places(training: Training) -> tuple[Place, ...]:
    """The places whose versions are evaluated: the last one of each stage and, with `every`, each so manieth round."""
    every = training.table.evaluation.every
    return tuple(
        place
        for place in training.places
        if place.index + 1 == place.of or (every and place.stage.stage == "reinforce" and (place.index + 1) % every == 0)
    )


def evaluate_version(lab: Lab, label: str, sampler: RoundSampler, *, progress: Progress = silent) -> StageReport:
    """Every slot of the evaluation of the version that a place made filled, judged and rewarded.

    Args:
        label: `<stage>` or `<stage>/<number>`.
    Raises:
        SettingsError: the update was not applied yet, or there are too few tasks.
        EngineFailed: engine and trainer do not agree on the version.
    """
    training = Training(lab)
    place = place_of(training.places, label)
    update = training.done(place)
    if update is None:
        raise SettingsError(f"{place.label} was not trained yet; allowed: an update that was applied")
    return _measured(training, update, version_groups(training, update.after), sampler, progress)


def evaluate_fixed_rules(lab: Lab, *, progress: Progress = silent) -> StageReport:
    """Every task of the evaluation attempted once by each fixed rule of the experiment's file, judged and rewarded."""
    training = Training(lab)
    since = lab.ledger.barrier()
    groups = fixed_rule_groups(training)
    run = lab.run(FIXED_RULES)
    expected, open_slots = _slots(lab, run, groups)
    if open_slots:
        stages.collect_scripts(lab, run, groups, what="fixed rules", progress=progress)
    return _judged(training, FIXED_RULES, since, (expected, open_slots), progress)


def sample_through_server(lab: Lab, sampler: RoundSampler, tasks: int, *, progress: Progress = silent) -> StageReport:
    """The newest version of the run at the first tasks of its evaluation, sampled by another engine than its rounds were.

    Raises:
        EngineFailed: that engine does not agree with the trainer on the version.
    """
    training = Training(lab)
    update = training.chain()[-1]
    return _measured(training, update, _served_groups(training, update.after, tasks), sampler, progress)


def is_sampled_through_server(lab: Lab, tasks: int) -> bool:
    """Whether `sample_through_server` has nothing left to do."""
    training = Training(lab)
    update = training.chain()[-1]
    return _slots(lab, lab.run(update.place.round), _served_groups(training, update.after, tasks))[1] == 0


def _served_groups(training: Training, version: str, tasks: int) -> list[Group]:
    policy = Policy(f"{training.lab.config.name}-served", version, version, sampling={"temperature": 1.0})
    return [Group(bundle, policy, 1, "probe") for bundle in evaluation_tasks(training)[:tasks]]


def version_groups(training: Training, version: str) -> list[Group]:
    """One group a task and temperature; greedy sampling needs one rollout, however many samples the file asks for."""
    table, tasks = training.table.evaluation, evaluation_tasks(training)
    groups: list[Group] = []
    for temperature in table.temperatures:
        name = f"{training.lab.config.name}-evaluated"
        policy = Policy(name, version, version, sampling={"temperature": temperature})
        groups += [Group(bundle, policy, table.samples if temperature > 0 else 1, "probe") for bundle in tasks]
    return groups


def fixed_rule_groups(training: Training) -> list[Group]:
    """One rollout a task and rule."""
    lab, tasks = training.lab, evaluation_tasks(training)
    groups: list[Group] = []
    for name in training.table.evaluation.scripts:
        for world, source in lab.sources.items():
            if name not in source.scripts:
                raise SettingsError(f"no policy {name!r} for world {world!r}; there is {', '.join(source.scripts)}")
            acting = policies.scripted(lab.ledger, name, source.scripts[name])
            groups += [Group(bundle, acting, 1, "probe") for bundle in tasks if bundle.draft.world == world]
    return groups


def serve_version(training: Training, place: Place, version: str, sampler: RoundSampler) -> None:
    """Have an engine serve a version, with a probe against the trainer before anything is sampled, and record both."""
    folder = training.folder(version)
    score = learner_at(training, place, Start(version, folder, None)).score
    refreshed = sampler.engine.serve(folder, version, score=score, tolerance_nats=training.table.engine.probe_tolerance_nats)
    record_refresh(training.ledger, sampler.engine.engine_id, refreshed)


def _measured(training: Training, update: AppliedUpdate, groups: Sequence[Group], sampler: RoundSampler, progress: Progress) -> StageReport:
    """The groups of an update's version filled, which is served only where something is open, judged and rewarded."""
    lab, place = training.lab, update.place
    since, run = lab.ledger.barrier(), lab.run(place.round)
    expected, open_slots = _slots(lab, run, groups)
    if open_slots:
        serve_version(training, place, update.after, sampler)
        sampler.collect(lab, run, groups, progress=progress)
    return _judged(training, place.round, since, (expected, open_slots), progress)


def _slots(lab: Lab, run: Run, groups: Sequence[Group]) -> tuple[int, int]:
    """Expected slots, and how many of them no counted attempt fills yet."""
    expected = sum(group.size for group in groups)
    known = attempts(lab.ledger, [run.group_id(group) for group in groups])
    return expected, expected - sum(attempt.counts for attempt in known)


def _judged(training: Training, round: int, since: int, slots: tuple[int, int], progress: Progress) -> StageReport:
    lab, (expected, new) = training.lab, slots
    stages.verdicts(lab, round=round, progress=progress)
    stages.rewards(lab, round=round, progress=progress)
    counts = {"expected": expected, "already": expected - new, "new": new}
    if left_out := sum(bundle.bundle_id in lab.rejected for found in _chosen(training).values() for bundle in found):
        counts["rejected bundles left out"] = left_out
    return StageReport(since, lab.ledger.barrier(), counts)
