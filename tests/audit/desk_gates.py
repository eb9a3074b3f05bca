"""A desk task, its subject, and the gates around it, as the tests of checks use them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from audit.bundle_batch import BundleBatch
from audit.bundle_checks import bundle_checks
from audit.bundle_gate import Decision, Gates
from audit.bundle_subject import BundleSubject
from audit.results import CheckResult
from audit.severity import Policy, load_policy
from audit.world_gate import WorldGate, check_world
from ledger.bundle import Bundle, BundleDraft
from training.rollout.harness import tool_loop
from training.verifiers import Judge, verifiers
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

HARNESS = tool_loop()
DESK = TicketDesk()
POLICY = load_policy()


@lru_cache(maxsize=1)
def drafts() -> tuple[BundleDraft, ...]:
    """Eight tasks of the desk."""
    return tuple(generate(8, seed=3))


def draft(**changes: Any) -> BundleDraft:
    """The first task, changed."""
    return replace(drafts()[0], **changes)


def sealed(made: BundleDraft, world: Any = DESK, verifier: str = "desk_conditions") -> Bundle:
    """The bundle of a draft."""
    return Bundle(made, world.version, verifiers.bind(verifier).ref.method_id, HARNESS.harness_id)


def subject(
    made: BundleDraft | None = None, *, world: Any = DESK, verifier: str = "desk_conditions", among: Sequence[BundleDraft] = (), **more: Any
) -> BundleSubject:
    """What the checks see of a draft, among others."""
    bundle = sealed(drafts()[0] if made is None else made, world, verifier)
    batch = BundleBatch((bundle, *(sealed(other, world, verifier) for other in among)))
    return BundleSubject(bundle, world, verifiers[verifier], batch, HARNESS.limits, **more)


def ran(check: str, seen: BundleSubject, **thresholds: Any) -> dict[str, CheckResult]:
    """The results of one check by id."""
    return {result.check_id: result for result in bundle_checks[check](seen, {**POLICY.thresholds, **thresholds})}


@lru_cache(maxsize=8)
def world_gate(make: Callable[[], Any] = TicketDesk, policy: Policy | None = None) -> WorldGate:
    """The environment gate of a kind of desk."""
    return check_world(make(), drafts(), POLICY if policy is None else policy)


def decided(
    made: BundleDraft | None = None,
    *,
    world: Any = DESK,
    verifier: str = "desk_conditions",
    judge: Judge | None = None,
    among: Sequence[BundleDraft] = (),
) -> Decision:
    """What the two gates make of a draft, with the environment gate of its kind of desk; `judge` acts under the verifier's name."""
    bundle = sealed(drafts()[0] if made is None else made, world, verifier)
    bound = verifiers.bind(verifier)
    gates = Gates(world, bound if judge is None else replace(bound, call=judge), HARNESS, POLICY)
    batch = BundleBatch((bundle, *(sealed(other, world, verifier) for other in among)))
    return gates.decide(bundle, world_gate(type(world)), batch=batch)
