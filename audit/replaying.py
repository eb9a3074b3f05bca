"""Replays rollouts: opens worlds, follows records through them, asks verifiers again. Runs worlds, reads the database."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from audit.counting_verdict import counting_verdict
from audit.harness_replay import HarnessFacts, reread
from audit.healthy_chain import HealthyChain
from audit.replays import Cause, Replays
from audit.results import CheckResult
from audit.rollout_subject import RolloutSubject
from audit.run import Broken, guarded
from audit.taxonomy import CAUSAL
from audit.verifier_replay import RecordedEnd, asked_again, is_reference_end, judge_of, method_of, other_opinions, recorded_end
from audit.world_replay import Followed, RecordedCall, followed, recorded_calls
from ledger.attribution_view import AttributionView
from ledger.bundle import Bundle
from ledger.canonical import parse
from ledger.errors import CanonicalError, SettingsError, TallyError
from ledger.events import HarnessRegistered, VerifierRegistered
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from training.rollout.harness_table import HarnessTable
from training.rollout.model_client import call_seed
from training.verifiers import Judge
from training.worlds import World
from training.worlds.faults import declared_world
from training.worlds.source import source_of


@dataclass(frozen=True)
class Judging:
    """The verifier whose verdict counts, or why it cannot be asked, and its name."""

    judge: Judge | str
    name: str


def replayed(
    subject: RolloutSubject, world: World[Any], own: Judging, harness: HarnessFacts, *, seeds: Sequence[int],
    results: Sequence[CheckResult] = (),
) -> Replays:  # fmt: skip
    """What replays in an open world show of a rollout whose task is known.

    Args:
        world: of the task's version, healthy and without the faults that the task declares.
        own: the task's verifier.
        harness: what is known of the harness; its tools are taken from the world.
        seeds: that the reset may have had, the likeliest first.
        results: of checks; where one of them names a cause, it is also found out when the policy had spoilt its task by itself.
    """
    assert subject.bundle is not None
    draft = subject.bundle.draft
    offered = guarded(lambda: {turn: world.tools(draft, turn=turn) for turn in range(len(draft.request["turns"]))})
    if isinstance(offered, Broken):
        return Replays(unreplayable=f"its world has no tools: {offered.error}", unjudgeable="its world has no tools")
    calls = recorded_calls(subject, {turn: [str(tool["function"]["name"]) for tool in tools] for turn, tools in offered.items()})
    # A tool that some turn does not offer may there be plain words.
    tools = [tool for tool in offered[0] if all(tool in listed for listed in offered.values())]
    read = reread(subject, calls, replace(harness, tools=tools))
    found = _judged(subject.bundle, recorded_end(subject, calls), world, own, Replays(causes=read.causes))
    if world.fidelity != "exact":
        return replace(found, unreplayable=f"its world is {world.fidelity}; a replay needs one that is exact")
    healthy = guarded(lambda: declared_world(world, draft, seed=seeds[0]))
    if isinstance(healthy, Broken):
        return replace(found, unreplayable=healthy.error)
    path = followed(subject, healthy, calls, seeds)
    if isinstance(path, str):
        return replace(found, unreplayable=path)
    path = replace(path, causes=(*path.causes, *_slow(subject, calls, path, harness)))
    chain = HealthyChain(healthy, draft, None if isinstance(own.judge, str) else own.judge, path, calls, read.dropped)
    return _judged_causes(found, path, chain, named=any(one.fault in CAUSAL for one in results if one.status == "fail"))


class Replayer:
    """Replays of many rollouts; worlds that it opened are closed when the block is left.

    Args:
        ledger: read through the view of attribution alone.
        root_seeds: run id to the root of its seeds, as far as it is known; a run's file is not read, since it names planted faults.
        worlds: open worlds by their versions; others are opened as they are by default.
        settings: of the deployment, for opening worlds; None reads the environment.
    """

    def __init__(
        self, ledger: LedgerHandle, *, root_seeds: Mapping[str, int], worlds: Mapping[str, World[Any]] | None = None,
        settings: Settings | None = None,
    ) -> None:  # fmt: skip
        self._view, self._root_seeds = AttributionView(ledger), root_seeds
        self._worlds: dict[str, World[Any] | str] = dict(worlds or {})
        self._settings, self._open = settings, ExitStack()
        self._judges: dict[str, Judge | str] = {}
        self._names: dict[str, str] = {}
        self._harnesses: dict[str, HarnessRegistered | None] = {}
        self._tables: dict[str, HarnessTable | None] = {}

    def __enter__(self) -> "Replayer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def replays(self, subject: RolloutSubject, results: Sequence[CheckResult] = ()) -> Replays:
        """What replays show of a rollout.

        Args:
            results: of checks; where one of them names a cause, it is also found out when the policy had spoilt its task by itself.
        """
        if subject.bundle is None:
            return Replays(unreplayable="its task was never sealed here", unjudgeable="its task was never sealed here")
        world = self._world(subject.bundle)
        if isinstance(world, str):
            return Replays(unreplayable=world, unjudgeable=world)
        verdict = counting_verdict(subject)
        # Whoever gave the verdict that counts is asked again: after a recall that is another than the task's own.
        verifier_id = subject.bundle.verifier_id if verdict is None or verdict.verifier_id is None else verdict.verifier_id
        own = Judging(self._judge(verifier_id), self._names.get(verifier_id, ""))
        harness = self._harness(subject)
        return replayed(subject, world, own, harness, seeds=self._seeds(subject), results=results)

    def _world(self, bundle: Bundle) -> World[Any] | str:
        if bundle.world_id not in self._worlds:
            self._worlds[bundle.world_id] = self._opened(bundle)
        return self._worlds[bundle.world_id]

    def _opened(self, bundle: Bundle) -> World[Any] | str:
        try:
            world = source_of(bundle.draft.world).open(self._settings or Settings(), {})
        except (SettingsError, TallyError) as error:
            return f"world {bundle.draft.world!r} cannot be opened: {error}"
        self._open.callback(getattr(world, "close", lambda: None))
        if world.version != bundle.world_id:
            return f"world {world.name!r} of this release is version {world.version[:12]}; the task was sealed with {bundle.world_id[:12]}"
        return world

    def _judge(self, verifier_id: str) -> Judge | str:
        if verifier_id not in self._judges:
            self._judges[verifier_id] = judge_of(verifier_id, self._registered)
        return self._judges[verifier_id]

    def _registered(self, verifier_id: str) -> tuple[VerifierRegistered, Mapping[str, Any]] | None:
        body = next((event.body for event in self._view.stream(f"verifier-{verifier_id}") if event.kind == "VerifierRegistered"), None)
        if not isinstance(body, VerifierRegistered):
            return None
        self._names[verifier_id] = body.name
        return body, method_of(self._view.blob(body.method.blob_id))

    def _harness(self, subject: RolloutSubject) -> HarnessFacts:
        harness_id = "" if subject.bundle is None else subject.bundle.harness_id
        if harness_id not in self._harnesses:
            body = next((event.body for event in self._view.stream(f"harness-{harness_id}") if event.kind == "HarnessRegistered"), None)
            self._harnesses[harness_id] = body if isinstance(body, HarnessRegistered) else None
            self._tables[harness_id] = self._table(self._harnesses[harness_id])
        body = self._harnesses[harness_id]
        # Roots are given of runs that were collected; a session's agent brings a harness of its own.
        foreign = subject.dispatched is not None and subject.dispatched.run_id not in self._root_seeds
        if body is None:
            return HarnessFacts(None, {}, False, foreign=True)
        return HarnessFacts(self._tables[harness_id], body.limits, body.context_policy != "whole history", foreign=foreign)

    def _table(self, body: HarnessRegistered | None) -> HarnessTable | None:
        if body is None or body.choices is None:
            return None
        try:
            choices = parse(self._view.blob(body.choices.blob_id))
            hooks = [{"name": hook["name"], "params": hook.get("params", {})} for hook in choices.get("hooks", ())]
            return HarnessTable.model_validate({**choices, "hooks": hooks})
        except (CanonicalError, ValidationError, KeyError, AttributeError):
            return None

    def _seeds(self, subject: RolloutSubject) -> tuple[int, ...]:
        """Seeds that the reset may have had: that of its run, then what the rollout says, which a session resets by."""
        group, own = subject.dispatched, subject.started.seed
        root = None if group is None else self._root_seeds.get(group.run_id)
        derived = () if root is None or subject.bundle is None else (call_seed(root, subject.bundle.bundle_id),)
        return tuple(dict.fromkeys((*derived, own, 0)))


def _judged(bundle: Bundle, end: RecordedEnd | None, world: World[Any], own: Judging, found: Replays) -> Replays:
    if end is None:
        return replace(found, unjudgeable="no end was recorded")
    known = guarded(lambda: is_reference_end(bundle, end, world))
    found = replace(
        found,
        is_reference_end=None if isinstance(known, Broken) else known,
        opinions=other_opinions(bundle, end, world, own.name),
    )
    if isinstance(own.judge, str):
        return replace(found, unjudgeable=own.judge)
    return replace(found, rejudged=asked_again(own.judge, end, bundle, world))


def _slow(subject: RolloutSubject, calls: Sequence[RecordedCall], path: Followed, harness: HarnessFacts) -> tuple[Cause, ...]:
    """Answers that took so much longer than the world's own time that a rollout which the clock ended would not have been ended."""
    limit = harness.limits.get("wall_s")
    if subject.ended is None or subject.ended[1].ended_by != "wall_clock" or limit is None:
        return ()
    ended = subject.ended[1]
    used = (ended.sampling_s or 0.0) + (ended.tool_s or 0.0)
    late = {n: calls[n].body.latency_s - own for n, own in path.healthy_s.items() if calls[n].body.latency_s > 1.0 + 10 * own}
    if not late or used - sum(late.values()) > limit:
        return ()
    first = min(late)
    told = (
        f"{len(late)} answers took {sum(late.values()):.1f} s more than in a healthy world, of {used:.1f} s in all; the limit is {limit:g}"
    )
    return (Cause("tool_timeout", told, tuple(calls[n].event_id for n in sorted(late)), first),)


def _judged_causes(found: Replays, path: Followed, chain: HealthyChain, *, named: bool) -> Replays:
    """The replays with the world's causes among the harness's, and what the policy's own actions come to without them."""
    open_causes = [cause for cause in (*path.causes, *found.causes) if not cause.recovered]
    if not open_causes and not named:
        return replace(found, causes=tuple(sorted((*path.causes, *found.causes), key=lambda cause: cause.call)))
    repaired = guarded(lambda: chain.repaired)
    doomed = guarded(lambda: chain.doomed)
    causes = [_related(cause, chain) if cause in path.causes else cause for cause in (*path.causes, *found.causes)]
    return replace(
        found,
        causes=tuple(sorted(causes, key=lambda cause: cause.call)),
        repaired=None if isinstance(repaired, Broken) else repaired,
        doomed=None if isinstance(doomed, Broken) else doomed,
    )


def _related(cause: Cause, chain: HealthyChain) -> Cause:
    if cause.fault == "state_corrupted":
        return cause
    reset = cause.fault in ("wrong_reset", "seed_ignored", "reset_failed")
    known = guarded(lambda: chain.related(-1 if reset else cause.call))
    return replace(cause, related=None if isinstance(known, Broken) else known)
