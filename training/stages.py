"""The stages of an experiment, each one function: reads the ledger up to a barrier, appends, and says what it did."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledger.attempts import attempts, counted
from training.bundles import register, seal
from training.crew import crew_of
from training.lab import Lab
from training.rollout.collect import Collected, Group, Run, Slot, collect
from training.rollout.derive import Judged, derive
from training.rollout.judge import Judging, judge
from training.rollout.lockstep import Filled, collect_scripted, fill_scripted, joined
from training.verifiers import verifiers

Progress = Callable[[str, int, int], None]
"""(what, done since the last call, total)"""


def silent(what: str, done: int, total: int) -> None:
    """A progress that shows nothing."""


@dataclass(frozen=True)
class StageReport:
    """What a stage did.

    Attributes:
        since, until: the positions between which its events lie, so (since, until] is what it added, with what others added meanwhile.
        counts: named counts; `new` is what this call added.
    """

    since: int
    until: int
    counts: dict[str, int]


def worlds(lab: Lab) -> StageReport:
    """The run recorded, and its worlds, verifiers and harness registered."""
    since = lab.ledger.barrier()
    created = lab.record_run()
    for name, world in lab.worlds.items():
        judgings = lab.judgings[name]
        planted = [j.verifier.ref.name for j in judgings if hasattr(verifiers[j.verifier.ref.name], "planted_gap")]
        created += register(lab.ledger, world, [(j.verifier, j.kind) for j in judgings], lab.harness, planted=planted)
    used = {judging.verifier.ref.method_id for found in lab.judgings.values() for judging in found}
    return StageReport(since, lab.ledger.barrier(), {"worlds": len(lab.worlds), "verifiers": len(used), "new": created})


def task_bundles(lab: Lab, *, progress: Progress = silent) -> StageReport:
    """All bundles sealed."""
    since = lab.ledger.barrier()
    total = len(lab.bundles)
    created = 0
    for start in range(0, total, 50):
        page = lab.bundles[start : start + 50]
        created += seal(lab.ledger, page, correlation_id=lab.run().run_id)
        progress("sealing bundles", len(page), total)
    counts = {"bundles": total, "new": created}
    for name in lab.worlds:
        counts[name] = sum(bundle.draft.world == name for bundle in lab.bundles)
    return StageReport(since, lab.ledger.barrier(), counts)


def rollouts(lab: Lab, *, round: int = 0, policies: Sequence[str] | None = None, progress: Progress = silent) -> StageReport:
    """Every slot of the experiment's collections filled with one counted attempt.

    Args:
        policies: only the collections of these policies; all when None.
    """
    since = lab.ledger.barrier()
    chosen = [c for c in lab.config.collect if policies is None or c.policy in policies]
    groups = [group for c in chosen for group in lab.groups(c)]
    unfilled = _unfilled(lab, round, groups)
    counts = {"expected": sum(group.size for group in groups), "already": 0, "new": 0, "superseded": 0}
    if left_out := sum(len(lab.left_out(collection)) for collection in chosen):
        counts["rejected bundles left out"] = left_out
    if unfilled:
        # Only now are servers started: a stage that is done already needs none.
        done = asyncio.run(_collect(lab, round, unfilled, progress))
        counts |= {"new": done.ran, "superseded": done.superseded} | ({"unpacked": done.unpacked} if done.unpacked else {})
    counts["already"] = counts["expected"] - counts["new"]
    return StageReport(since, lab.ledger.barrier(), counts)


def _unfilled(lab: Lab, round: int, groups: Sequence[Group]) -> list[Group]:
    run = lab.run(round)
    known = attempts(lab.ledger, [run.group_id(group) for group in groups])
    filled = Counter(attempt.group_id for attempt in known if attempt.counts)
    return [group for group in groups if filled[run.group_id(group)] < group.size]


def collect_scripts(
    lab: Lab, run: Run, groups: Sequence[Group], *, what: str = "scripted rollouts", progress: Progress = silent
) -> Collected:
    """What was done so that every slot of every group of scripted policies has one counted attempt, without servers.

    Args:
        what: the name of this work for `progress`.
    Raises:
        SettingsError: a policy that is not scripted.
    """
    total = sum(group.size for group in groups)
    # A world that has to be closed works in other processes, which can work at the same time.
    threaded = any(hasattr(lab.worlds[group.bundle.draft.world], "close") for group in groups)
    crew = None if threaded else crew_of(lab, total)

    async def shared(run: Run, slots: Sequence[Slot]) -> Filled:
        assert crew is not None
        return joined(await asyncio.to_thread(crew.each, _fill_scripted, slots, run))

    return asyncio.run(
        collect_scripted(
            lab.bare_site(), run, groups, threaded=threaded, progress=lambda count: progress(what, count, total),
            shared=None if crew is None else shared,
        )
    )  # fmt: skip


def _fill_scripted(lab: Lab, slots: Sequence[Slot], run: Run) -> Filled:
    """In a process that shares a collection."""
    return asyncio.run(fill_scripted(lab.bare_site(), run, slots))


async def _collect(lab: Lab, round: int, groups: Sequence[Group], progress: Progress) -> Collected:
    policies = list(dict.fromkeys(group.policy.name for group in groups))
    what = "rollouts of " + (policies[0] if len(policies) == 1 else f"{len(policies)} policies")
    total = sum(group.size for group in groups)
    async with lab.site(groups) as site:
        return await collect(
            site, lab.run(round), groups, concurrency=lab.config.concurrency, progress=lambda count: progress(what, count, total)
        )


def verdicts(lab: Lab, *, round: int = 0, progress: Progress = silent) -> StageReport:
    """Every counted rollout judged by its bundle's verifier and, where the experiment's file wants them, by its world's second opinions."""
    opinions = lab.config.wants_opinions(round)
    since = lab.ledger.barrier()
    known = counted(lab.ledger, lab.run().run_id, round)
    given = {verdict_id for rollout in known for verdict_id in rollout.verdict_ids}
    work: list[tuple[str, Judging, list[tuple[str, str]]]] = []
    for world, judgings in lab.judgings.items():
        for judging in judgings if opinions else judgings[:1]:
            todo = [(r.rollout_id, r.bundle_id) for r in known if r.world == world and judging.verdict_id(r.rollout_id) not in given]
            work.append((world, judging, todo))
    total = sum(len(todo) for _, _, todo in work)
    created = 0
    for world, judging, todo in work:
        crew = None if hasattr(lab.worlds[world], "close") else crew_of(lab, len(todo))
        if crew is None:
            created += judge(lab.ledger, todo, judging, lab.worlds[world], progress=lambda n: progress("verdicts", n, total))
        else:
            created += sum(crew.each(_judge, todo, world, judging.verifier.ref.method_id))
            progress("verdicts", len(todo), total)
    return StageReport(since, lab.ledger.barrier(), {"rollouts": len(known), "already": len(given), "new": created})


def _judge(lab: Lab, todo: Sequence[tuple[str, str]], world: str, verifier_id: str) -> int:
    """In a process that shares the judging."""
    judging = next(judging for judging in lab.judgings[world] if judging.verifier.ref.method_id == verifier_id)
    return judge(lab.ledger, todo, judging, lab.worlds[world])


def rewards(lab: Lab, *, round: int = 0, progress: Progress = silent) -> StageReport:
    """Every counted rollout rewarded from the verdict that counts, or given a null with the reason."""
    since = lab.ledger.barrier()
    known = counted(lab.ledger, lab.run().run_id, round)
    judged = [Judged(r.rollout_id, r.ended_by, r.verdict_id, r.verdict_status, r.passed, r.conditions) for r in known]
    created = derive(lab.ledger, judged, lab.rule, progress=lambda n: progress("rewards", n, len(judged)))
    return StageReport(since, lab.ledger.barrier(), {"rollouts": len(known), "new": created})
