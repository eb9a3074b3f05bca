"""Registers worlds, verifiers and harnesses, seals drafts into bundles, and reads bundles back. Writes the ledger."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.blobs import PUBLIC, Pending, read_many
from ledger.bundle import Bundle, BundleDraft
from ledger.canonical import digest, parse
from ledger.errors import BundleError, UnknownId
from ledger.events import BundleSealed, HarnessRegistered, VerifierRegistered, WorldRegistered
from ledger.ledger import LedgerHandle
from ledger.methods import Bound
from ledger.store import New
from training.hooks import Hook, rewriting
from training.rollout.harness_table import HarnessTable
from training.verifiers import Judge
from training.worlds import World
from training.worlds.source import VerifierKind

_BATCH = 100


@dataclass(frozen=True)
class Harness:
    """A harness version: what drives a policy through a world.

    Attributes:
        source: source text of its loop.
        table: all its choices.
        hooks: the table's hooks, bound, in their order.
    """

    source: str
    table: HarnessTable
    hooks: tuple[Bound[Hook], ...] = ()

    @property
    def name(self) -> str:
        """Readable name."""
        return self.table.name

    @property
    def limits(self) -> Mapping[str, int | float]:
        """Declared limits by name: counts, tokens, seconds."""
        return self.table.limits

    @property
    def context_policy(self) -> str:
        """What happens to a long history: the names of the hooks that rewrite it, in their order."""
        return ", ".join(rewriting(self.hooks)) or "whole history"

    @property
    def choices(self) -> dict[str, Any]:
        """Every choice as a JSON object: the table, and its hooks with the digests of their sources."""
        table = self.table.model_dump(mode="json")
        return {**table, "stop": self.table.stops.model_dump(mode="json"), "hooks": [bound.ref.as_json() for bound in self.hooks]}

    @property
    def harness_id(self) -> str:
        """Hex SHA-256 over its source and all its choices."""
        return digest({"source": self.source, "choices": self.choices})


def register(
    ledger: LedgerHandle,
    world: World[Any],
    verifiers: Sequence[tuple[Bound[Judge], VerifierKind]],
    harness: Harness,
    *,
    planted: Iterable[str] = (),
) -> int:
    """How many registrations of a world, its verifiers and a harness were new; those that are there already stay.

    Args:
        planted: names of verifiers that have a gap on purpose.
    """
    events = [_world_event(ledger, world), _harness_event(ledger, harness)]
    gaps = set(planted)
    for bound, kind in verifiers:
        source = ledger.pending(bound.source, media="text/x-python", subject_id=PUBLIC)
        method = ledger.pending_json(bound.ref.as_json(), subject_id=PUBLIC)
        body = VerifierRegistered(
            verifier_id=bound.ref.method_id, name=bound.ref.name, verifier_kind=kind, source=source.ref, method=method.ref,
            planted=bound.ref.name in gaps,
        )  # fmt: skip
        events.append(ledger.new(body, source, method))
    return sum(item.created for item in ledger.append(events).events)


def seal(ledger: LedgerHandle, bundles: Sequence[Bundle], *, correlation_id: str | None = None) -> int:
    """How many of the bundles were new; sealing one again changes nothing."""
    created = 0
    for start in range(0, len(bundles), _BATCH):
        events = [_sealed(ledger, bundle, correlation_id) for bundle in bundles[start : start + _BATCH]]
        created += sum(item.created for item in ledger.append(events).events)
    return created


def load(ledger: LedgerHandle, bundle_id: str) -> Bundle:
    """A sealed bundle with its reference, checked against its five digests.

    Raises:
        UnknownId: no such bundle.
        BundleError: what is stored does not have the digests that were sealed.
    """
    events = ledger.read_stream(f"bundle-{bundle_id}")
    if not events or not isinstance(events[0].body, BundleSealed):
        raise UnknownId(f"no bundle {bundle_id!r} in project {ledger.project!r}")
    body = events[0].body
    with ledger.connection() as conn:
        return _loaded(body, read_many(conn, _blobs_of(body)))


def load_many(ledger: LedgerHandle, bundle_ids: Iterable[str]) -> dict[str, Bundle]:
    """Bundle id to the sealed bundle, as `load` gives each; two statements, however many bundles.

    Raises:
        UnknownId, BundleError: as for `load`.
    """
    wanted = list(dict.fromkeys(bundle_ids))
    if not wanted:
        return {}
    ledger.barrier()
    sealed: dict[str, BundleSealed] = {}
    for event in ledger.read_streams([f"bundle-{bundle_id}" for bundle_id in wanted], kinds=["BundleSealed"]):
        if isinstance(body := event.body, BundleSealed):
            sealed.setdefault(body.bundle_id, body)
    if missing := [bundle_id for bundle_id in wanted if bundle_id not in sealed]:
        raise UnknownId(f"no bundle {missing[0]!r} in project {ledger.project!r}")
    with ledger.connection() as conn:
        blobs = read_many(conn, [blob_id for body in sealed.values() for blob_id in _blobs_of(body)])
    return {bundle_id: _loaded(sealed[bundle_id], blobs) for bundle_id in wanted}


def _blobs_of(body: BundleSealed) -> list[str]:
    return [ref.blob_id for ref in (body.draft, body.reference, body.provenance) if ref is not None]


def _loaded(body: BundleSealed, blobs: Mapping[str, bytes]) -> Bundle:
    """The bundle that an event seals, from its blobs."""
    fields, provenance = parse(blobs[body.draft.blob_id]), parse(blobs[body.provenance.blob_id])
    reference = None if body.reference is None else parse(blobs[body.reference.blob_id])
    bundle = Bundle(BundleDraft(**fields, reference=reference, provenance=provenance), body.world_id, body.verifier_id, body.harness_id)
    if bundle.bundle_id != body.bundle_id or bundle.part_digests != body.parts:
        raise BundleError(f"bundle {body.bundle_id}: its stored parts have digests {bundle.part_digests}, sealed were {body.parts}")
    return bundle


def _world_event(ledger: LedgerHandle, world: World[Any]) -> New:
    source = ledger.pending(world.source, media="text/x-python", subject_id=PUBLIC)
    return ledger.new(WorldRegistered(world_id=world.version, name=world.name, source=source.ref, fidelity=world.fidelity), source)


def _harness_event(ledger: LedgerHandle, harness: Harness) -> New:
    source = ledger.pending(harness.source, media="text/x-python", subject_id=PUBLIC)
    choices = ledger.pending_json(harness.choices, subject_id=PUBLIC)
    body = HarnessRegistered(
        harness_id=harness.harness_id, name=harness.name, source=source.ref, limits=dict(harness.limits),
        context_policy=harness.context_policy, style=harness.table.style, tool_format=harness.table.tool_format, choices=choices.ref,
    )  # fmt: skip
    return ledger.new(body, source, choices)


def _sealed(ledger: LedgerHandle, bundle: Bundle, correlation_id: str | None) -> New:
    draft = bundle.draft
    shown = {
        "name": draft.name, "world": draft.world, "request": dict(draft.request), "initial_state": draft.initial_state,
        "spec": dict(draft.spec), "hint": draft.hint, "split": draft.split,
    }  # fmt: skip
    parts: list[Pending] = [ledger.pending_json(shown, subject_id=PUBLIC), ledger.pending_json(dict(draft.provenance), subject_id=PUBLIC)]
    if draft.reference is not None:
        parts.append(ledger.pending_json(dict(draft.reference), subject_id=PUBLIC))
    reference = parts[2].ref if draft.reference is not None else None
    body = BundleSealed(
        bundle_id=bundle.bundle_id, name=draft.name, world=draft.world, parts=bundle.part_digests, world_id=bundle.world_id,
        verifier_id=bundle.verifier_id, harness_id=bundle.harness_id, split=draft.split, draft=parts[0].ref, reference=reference,
        provenance=parts[1].ref, proposer=str(draft.provenance.get("proposer", "unknown")),
    )  # fmt: skip
    return ledger.new(body, *parts, correlation_id=correlation_id)
