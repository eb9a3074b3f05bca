"""Which verifier version an audit is of, in which world, and on which tasks. Reads the ledger; opens worlds."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from audit.synthesize_command import SHORT_NAMES
from audit.verifier_audit import Audited, drawn
from ledger.bundle import Bundle
from ledger.errors import SettingsError, UnknownId
from ledger.evaluated import of_kind
from ledger.events import BundleSealed
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from ledger.verdict_pairs import registered_verifiers, verifier_named
from training.bundles import load
from training.rollout.harness import tool_loop
from training.verifiers import verifiers
from training.worlds import World
from training.worlds.source import TaskQuery, VerifierKind, WorldSource, source_names, source_of

MADE = 30
"""Tasks that are made where none is sealed."""


@dataclass(frozen=True)
class Asked:
    """What the caller wants tried.

    Attributes:
        verifier: name, or the id of a version or a beginning of it.
        world: name; None for the only world that fits.
        options: of the world's source.
        bundles: how many tasks at most; None for all that are sealed.
        seed: of everything drawn.
    """

    verifier: str
    world: str | None = None
    options: Mapping[str, Any] | None = None
    bundles: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Prepared:
    """A verifier with its world, open, and the tasks; `sealed` is False where the tasks were made for this audit."""

    audited: Audited
    world: World[Any]
    bundles: tuple[Bundle, ...]
    sealed: bool
    test_left_out: int


def version_of(ledger: LedgerHandle, ident: str) -> tuple[str, str]:
    """Name and id of the version that is meant: the newest of a name is what the code holds now.

    Raises:
        UnknownId: no such verifier, here or in the code.
    """
    if ident in verifiers.names():
        return ident, verifiers.bind(ident).ref.method_id
    body = verifier_named(ledger, ident)
    return body.name, body.verifier_id


@contextmanager
def prepared(ledger: LedgerHandle, asked: Asked, settings: Settings) -> Iterator[Prepared]:
    """What an audit needs; the world is closed afterwards.

    Raises:
        UnknownId: no such verifier.
        SettingsError: the code holds another version, or the world is not clear.
    """
    name, verifier_id = version_of(ledger, asked.verifier)
    bound = verifiers.bind(name)
    if bound.ref.method_id != verifier_id:
        raise SettingsError(
            f"verifier {name} {verifier_id[:12]} is not the version that is installed, {bound.ref.method_id[:12]}; allowed: that one"
        )
    found = _sealed(ledger, name, verifier_id)
    world_name, options = _world_of(found, asked, name)
    source = source_of(world_name)
    world = source.open(settings, {key: options[key] for key in source.opening if key in options})
    try:
        mine = [body for body in found if body.world == world_name]
        kept = [body for body in mine if body.split != "test"]
        if kept:
            bundles = [load(ledger, body.bundle_id) for body in drawn(kept, asked.bundles, seed=asked.seed)]
        else:
            drafts = source.tasks(world, TaskQuery(asked.bundles or MADE, asked.seed, options), settings)
            bundles = [Bundle(draft, world.version, verifier_id, tool_loop().harness_id) for draft in drafts]
        kinds = kinds_of(source)
        others = {other: verifiers[other] for other, _ in source.verifiers if other != name}
        audited = Audited(bound, kinds.get(name, "program"), others)
        yield Prepared(audited, world, tuple(bundles), bool(kept), len(mine) - len(kept))
    finally:
        getattr(world, "close", lambda: None)()


def kinds_of(source: WorldSource) -> dict[str, VerifierKind]:
    """Verifier name to kind, of all that judge a kind of world."""
    return {"end_state": "state_diff", **dict((*source.verifiers, *source.choices))}


def _sealed(ledger: LedgerHandle, name: str, verifier_id: str) -> list[BundleSealed]:
    """The tasks that the verifier judges: those that name a version of it, else those of the worlds that it is a verifier of."""
    bodies = {body.bundle_id: body for event in of_kind(ledger, "BundleSealed") if isinstance(body := event.body, BundleSealed)}
    known = registered_verifiers(ledger)
    versions = {ident for ident, body in known.items() if body.name == name} | {verifier_id}
    own = [body for body in bodies.values() if body.verifier_id in versions]
    fits = {world for world in source_names() if name in kinds_of(source_of(world))} if not own else set()
    return own or [body for body in bodies.values() if body.world in fits]


def _world_of(found: list[BundleSealed], asked: Asked, name: str) -> tuple[str, dict[str, Any]]:
    given = dict(asked.options or {})
    if asked.world is not None:
        world, chosen = SHORT_NAMES.get(asked.world, (asked.world, {}))
        return world, {**chosen, **given}
    worlds = Counter(body.world for body in found)
    if len(worlds) == 1:
        return next(iter(worlds)), given
    if worlds:
        raise SettingsError(f"verifier {name} judges tasks of {', '.join(sorted(worlds))}; say which with --world")
    raise UnknownId(f"no task is sealed that verifier {name} judges; give --world, whose tasks are then made for this audit")
