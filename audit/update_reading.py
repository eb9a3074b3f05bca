"""Updates read as subjects of audits: nothing is taken from the trainer that the ledger says by itself. Reads the database."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from pydantic import ValidationError

from audit.update_columns import Recorded, joined_rows, recorded_columns
from audit.update_declared import declared
from audit.update_known import known_rollouts, lines_of, rewards_of
from audit.update_subject import Slots, UpdateSubject
from ledger import queries
from ledger.attempts import Attempt, attempts
from ledger.canonical import parse
from ledger.errors import BlobError, CanonicalError, TokenError, UnknownId
from ledger.evaluated import of_kind, runs
from ledger.events import (
    BatchAssembled,
    BundleSealed,
    DatasetSealed,
    EngineRefreshed,
    EventBody,
    GroupDispatched,
    RunConfigured,
    UpdateApplied,
)
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.order import Recorded as Event
from ledger.queries_rows import RolloutLine
from training.optimise.update_read import update_detail
from training.train_config import TrainTable
from training.view_read import RoundRead, read_round

_PAGE = 400
_PAST = 20
"""Earlier rounds that an alarm compares with."""
Body = TypeVar("Body", bound=EventBody)


def update_ids(ledger: LedgerHandle, ident: str) -> tuple[str, ...]:
    """Ids of the updates that are named, oldest first: all of a run or of an experiment's runs, one update, or that of a model version.

    Raises:
        UnknownId: nothing is named, or more than one thing.
    """
    named = [run.run_id for run in runs(ledger) if ident in (run.name, run.experiment_id)]
    if not named:
        noun, full = queries.resolve_any(ledger, ident, ("update", "model", "run"))
        if noun != "run":
            return (update_detail(ledger, full).line.update_id,)
        named = [full]
    bodies = [body for event in of_kind(ledger, "UpdateApplied") if isinstance(body := event.body, UpdateApplied)]
    found = tuple(dict.fromkeys(body.update_id for body in bodies if body.run_id in named))
    if not found:
        raise UnknownId(f"{ident!r} has no update; allowed: a run or an experiment that trained")
    return found


def read_updates(ledger: LedgerHandle, ids: Sequence[str]) -> Iterator[UpdateSubject]:
    """The updates in the order of the ids, one at a time.

    Raises:
        UnknownId: an update is not there.
    """
    queries.fresh(ledger)
    project, runs = _Project(ledger), dict[str, _Run]()
    for update_id in ids:
        applied = sorted(_parts(ledger, f"update-{update_id}", UpdateApplied), key=lambda item: item[1].part)
        if not applied:
            raise UnknownId(f"no update {update_id!r} in project {ledger.project!r}")
        run_id = applied[0][1].run_id
        yield _subject(runs.setdefault(run_id, _Run(project, run_id)), update_id, tuple(applied))


@dataclass(eq=False)
class _Project:
    """What is read once however many updates are looked at."""

    ledger: LedgerHandle
    lines: dict[str, RolloutLine] = field(default_factory=dict)

    @cached_property
    def batches(self) -> dict[str, list[tuple[str, int, BatchAssembled]]]:
        """Batch id to event id, position and body of its parts, by part."""
        found: dict[str, list[tuple[str, int, BatchAssembled]]] = {}
        for event in of_kind(self.ledger, "BatchAssembled"):
            if isinstance(body := event.body, BatchAssembled):
                found.setdefault(body.batch_id, []).append((event.event_id, event.position or 0, body))
        return {name: sorted(parts, key=lambda item: item[2].part) for name, parts in found.items()}

    @cached_property
    def updates(self) -> list[UpdateApplied]:
        """First parts, in the order in which they were applied."""
        bodies = [event.body for event in of_kind(self.ledger, "UpdateApplied")]
        return [body for body in bodies if isinstance(body, UpdateApplied) and body.part == 0]

    @cached_property
    def groups(self) -> list[tuple[str, GroupDispatched]]:
        """Event id and body of every group, in the order of dispatch."""
        return _of(of_kind(self.ledger, "GroupDispatched"), GroupDispatched)

    @cached_property
    def refreshes(self) -> list[tuple[str, EngineRefreshed]]:
        """Event id and body of every refresh of an engine."""
        return _of(of_kind(self.ledger, "EngineRefreshed"), EngineRefreshed)

    def known_lines(self, rollout_ids: Iterable[str]) -> dict[str, RolloutLine]:
        """Lines of those rollouts that are here."""
        wanted = list(dict.fromkeys(rollout_ids))
        for at in range(0, len(unread := [one for one in wanted if one not in self.lines]), _PAGE):
            self.lines |= lines_of(self.ledger, unread[at : at + _PAGE])
        return {one: self.lines[one] for one in wanted if one in self.lines}


@dataclass(eq=False)
class _Run:
    project: _Project
    run_id: str

    @property
    def ledger(self) -> LedgerHandle:
        return self.project.ledger

    @cached_property
    def updates(self) -> list[UpdateApplied]:
        return [body for body in self.project.updates if body.run_id == self.run_id]

    @cached_property
    def table(self) -> TrainTable | str | None:
        """The `[train]` table, why it cannot be read, or None where the run was not configured here. The rest of the file, which names
        the faults to plant, is not looked at."""
        body = next((body for _, body in _parts(self.ledger, f"run-{self.run_id}", RunConfigured)), None)
        if body is None:
            return None
        return _train_table(self.ledger, body)

    @cached_property
    def dispatched(self) -> list[tuple[str, GroupDispatched]]:
        return [item for item in self.project.groups if item[1].run_id == self.run_id]

    @cached_property
    def attempts(self) -> dict[str, list[Attempt]]:
        found: dict[str, list[Attempt]] = {}
        for attempt in attempts(self.ledger, [body.group_id for _, body in self.dispatched]):
            found.setdefault(attempt.group_id, []).append(attempt)
        return found

    @cached_property
    def harnesses(self) -> dict[str, dict[str, frozenset[str]]]:
        names = list(dict.fromkeys(f"bundle-{body.bundle_id}" for _, body in self.dispatched))
        found: dict[str, dict[str, set[str]]] = {}
        for event in self.ledger.read_streams(names, kinds=["BundleSealed"]):
            if isinstance(body := event.body, BundleSealed):
                found.setdefault(body.split, {}).setdefault(body.world, set()).add(body.harness_id)
        return {split: {world: frozenset(ids) for world, ids in worlds.items()} for split, worlds in found.items()}

    @cached_property
    def consumers(self) -> dict[str, list[str]]:
        """Rollout id to the updates whose batch votes or trains on it, or leaves it out with a reason; supervised ones are not counted."""
        found: dict[str, list[str]] = {}
        for update in self.updates:
            parts = [part for _, _, part in self.project.batches.get(update.batch_id, ())]
            if any(row.reward_id is not None for part in parts for row in part.rows) or any(part.exclusions for part in parts):
                for rollout_id in _named(parts):
                    found.setdefault(rollout_id, []).append(update.update_id)
        return found

    def failed_share(self, update: UpdateApplied) -> float | None:
        """Share of an update's rollouts that something else than the policy failed; None where its batch names none that is here."""
        lines = self.project.known_lines(_named(part for _, _, part in self.project.batches.get(update.batch_id, ())))
        broken = [line.outcome in ("env_failed", "harness_failed", "verifier_failed", "aborted") for line in lines.values()]
        return sum(broken) / len(broken) if broken else None


def _subject(run: _Run, update_id: str, applied: tuple[tuple[str, UpdateApplied], ...]) -> UpdateSubject:
    first, ledger = applied[0][1], run.ledger
    held = run.project.batches.get(first.batch_id, [])
    assembled = tuple((event_id, body) for event_id, _, body in held)
    told = [body for _, body in assembled]
    when = min((position for _, position, _ in held), default=None)
    judged = any(row.votes or row.reward_id is not None for body in told for row in body.rows) or any(body.exclusions for body in told)
    slots = _slots(run, first, told) if judged else ()
    named = list(dict.fromkeys(_named(told)))
    lines = run.project.known_lines([*(one for group in slots for one in group.rollout_ids if one is not None), *named])
    known = known_rollouts(ledger, lines, when, rewarded=judged)
    members = [one for one in lines if one in set(named)]
    read, unread = _round(ledger, _readable(run, first, members, judged), first.model_version_before)
    found, fault = recorded_columns(ledger, told)
    rows, misfit = joined_rows(assembled, read, Recorded(found, (tuple(members), tuple(named))))
    past = tuple(body for body in run.updates[: _place(run.updates, update_id)] if body.stage == first.stage)
    return UpdateSubject(
        update_id,
        applied,
        assembled,
        declared=declared(run.table, first.stage, told),
        known=known,
        missing=tuple(one for one in named if one not in lines),
        rewards=rewards_of(ledger, told, known),
        view=read.view if read is not None and judged else None,
        rows=rows,
        unread="; ".join(why for why in (unread, fault, misfit) if why),
        slots=slots,
        consumed={one: [name for name in run.consumers.get(one, ()) if name != update_id] for one in known},
        refreshes=_newest([item for item in run.project.refreshes if item[1].model_version == first.model_version_before]),
        past=past,
        past_failed=tuple(share for body in past[-_PAST:] if judged and (share := run.failed_share(body)) is not None),
        harnesses=run.harnesses,
    )


def _newest(refreshes: Sequence[tuple[str, EngineRefreshed]]) -> tuple[tuple[str, EngineRefreshed], ...]:
    """The last one of each engine: a probe that failed before it was mended sampled nothing."""
    return tuple({body.engine_id: (event_id, body) for event_id, body in refreshes}.values())


def _place(updates: Sequence[UpdateApplied], update_id: str) -> int:
    return next(n for n, body in enumerate(updates) if body.update_id == update_id)


def _named(parts: Iterable[BatchAssembled]) -> Iterator[str]:
    for part in parts:
        yield from (row.rollout_id for row in part.rows)
        yield from (one for ids in part.exclusions.values() for one in ids)


def _slots(run: _Run, update: UpdateApplied, told: Sequence[BatchAssembled]) -> tuple[Slots, ...]:
    """Groups of the policies that the batch trains on, of the rounds after the last judged update's up to this one's."""
    numbers = [body.round for body in told]
    round = numbers[0] if numbers else update.round
    if round is None:
        return ()
    before = [body.round for other in run.updates for _, _, body in run.project.batches.get(other.batch_id, ()) if body.round < round]
    since = max(before, default=round - 1)
    policies = {line.policy for line in run.project.known_lines(_named(told)).values()}
    filled = {
        group.group_id: tuple(
            next((one.rollout_id for one in run.attempts.get(group.group_id, ()) if one.slot == slot and one.counts), None)
            for slot in range(group.size)
        )
        for _, group in run.dispatched
        if since < group.round <= round
    }
    chosen = [item for item in run.dispatched if item[1].group_id in filled and item[1].policy in policies]
    return tuple(
        Slots(event_id, group, filled[group.group_id]) for event_id, group in sorted(chosen, key=lambda item: _first(run, item[1]))
    )


def _first(run: _Run, group: GroupDispatched) -> int:
    """Where the group stands in the order in which the read model lists groups, which is that of a trainer's columns."""
    order = {name: n for n, name in enumerate(run.attempts)}
    return order.get(group.group_id, len(order))


def _readable(run: _Run, update: UpdateApplied, members: Sequence[str], judged: bool) -> list[str]:
    """Rollouts whose captured tokens the batch is made of: all of a judged one, and those of a dataset that were not made of text."""
    if judged or not members:
        return list(members)
    dataset = derived_id("dataset", run.run_id, update.stage)
    body = next((body for _, body in _parts(run.ledger, f"dataset-{dataset}", DatasetSealed)), None)
    if body is None:
        return []
    sampled = {str(row["rollout"]) for row in parse(run.ledger.blob(body.manifest.blob_id)) if not row["text_only"]}
    return [one for one in members if one in sampled]


def _round(ledger: LedgerHandle, rollout_ids: Sequence[str], trained: str) -> tuple[RoundRead | None, str]:
    if not rollout_ids:
        return None, ""
    try:
        return read_round(ledger, rollout_ids, trained=trained), ""
    except TokenError as error:
        return None, f"captured tokens: {error}"


def _train_table(ledger: LedgerHandle, body: RunConfigured) -> TrainTable | str | None:
    try:
        train = parse(ledger.blob(body.config.blob_id)).get("train")
        return None if train is None else TrainTable.model_validate(train)
    except (BlobError, CanonicalError, ValidationError) as error:
        return f"the [train] table of run {body.run_id[:12]} cannot be read: {str(error).splitlines()[0]}"


def _of(events: Iterable[Event], kind: type[Body]) -> list[tuple[str, Body]]:
    return [(event.event_id, body) for event in events if isinstance(body := event.body, kind)]


def _parts(ledger: LedgerHandle, stream: str, kind: type[Body]) -> list[tuple[str, Body]]:
    return _of(ledger.read_stream(stream), kind)
