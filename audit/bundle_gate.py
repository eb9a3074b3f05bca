"""The two gates of a task bundle: its world version's checks and its own, and the decision that follows. Writes the ledger."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from audit.bundle_batch import ALONE, BundleBatch
from audit.bundle_checks import BundleCheck, bundle_checks
from audit.bundle_subject import BundleSubject
from audit.bundle_workers import ONE, Workers, apart
from audit.results import CheckResult, result_of
from audit.run import check_ids, run_checks
from audit.severity import Policy
from audit.world_gate import WorldGate, gate_world
from ledger.bundle import Bundle
from ledger.canonical import digest, parse
from ledger.events import BundleAdmitted, BundleRejected, BundleSealed
from ledger.ledger import LedgerHandle
from ledger.methods import Bound
from ledger.queries import Filter, bundle_ids, fresh, rollouts
from ledger.queries_rows import RolloutLine
from ledger.store import New
from training.bundles import Harness, load_many
from training.verifiers import Judge
from training.worlds import World

Progress = Callable[[int], None]
_PAGE = 50
_ROLLOUTS = 10_000


@dataclass(frozen=True)
class Decision:
    """What the gates made of one bundle.

    Attributes:
        bundle: it.
        results: check id to result, of every id of the policy: those not run say why.
        policy: with which severities.
        gate_id: digest over all that it depended on: the same evidence decides once.
        known: the ledger had the decision already.
    """

    bundle: Bundle
    results: Mapping[str, CheckResult]
    policy: Policy
    gate_id: str
    known: bool = False

    @cached_property
    def blocking(self) -> tuple[str, ...]:
        """Ids of the checks because of which it is rejected, sorted."""
        return tuple(
            sorted(
                name
                for name, result in self.results.items()
                if self.policy.blocks(name, result.status, dependent=result.depends_on is not None)
            )
        )

    @property
    def admitted(self) -> bool:
        """Whether nothing stands in the way."""
        return not self.blocking

    def as_json(self) -> dict[str, Any]:
        """The decision as a JSON object with every result."""
        return {
            "bundle_id": self.bundle.bundle_id, "name": self.bundle.draft.name, "split": self.bundle.draft.split, "admitted": self.admitted,
            "blocking": list(self.blocking), "policy": self.policy.name, "gate_id": self.gate_id,
            "results": [self.results[name].as_json() for name in sorted(self.results)],
        }  # fmt: skip


@dataclass(frozen=True)
class Gated:
    """What became of a batch.

    Attributes:
        world: the environment gate.
        decisions: one a bundle, in their order.
        new: decisions that the ledger did not have yet.
    """

    world: WorldGate
    decisions: tuple[Decision, ...]
    new: int

    @cached_property
    def reasons(self) -> dict[str, int]:
        """Check id to the number of bundles that it rejects, most first."""
        counted = Counter(name for decision in self.decisions for name in decision.blocking)
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True)
class Gates:
    """All that the gates of one kind of bundle need.

    Attributes:
        world: the world of the bundles, open.
        verifier: the bundles' own verifier.
        harness: with which they are sealed.
        policy: severities and thresholds.
    """

    world: World[Any]
    verifier: Bound[Judge]
    harness: Harness
    policy: Policy

    @cached_property
    def checks(self) -> tuple[Bound[BundleCheck], ...]:
        """The bundle checks of which the policy knows every id."""
        bound = [bundle_checks.bind(name) for name in bundle_checks.names()]
        return tuple(item for item in bound if set(check_ids(item)) <= self.policy.severity.keys())

    def decide(self, bundle: Bundle, world: WorldGate, *, batch: BundleBatch = ALONE, attempts: Sequence[RolloutLine] = ()) -> Decision:
        """What the two gates make of a bundle; nothing is recorded.

        Args:
            world: the environment gate of the bundle's world version.
            batch: bundles among which leaks and double meanings are looked for.
            attempts: policies' rollouts of it.
        """
        subject = BundleSubject(
            bundle, self.world, self.verifier.call, batch, self.harness.limits, attempts,
            mutants_per_kind=int(self.policy.thresholds["mutants_per_kind"]),
        )  # fmt: skip
        found = run_checks(self.checks, subject, self.policy.thresholds)
        results = {name: world.results.get(name) or found.get(name) or self._not_run(name) for name in self.policy.severity}
        return Decision(bundle, results, self.policy, self.gate_id(bundle, world, batch=batch, attempts=attempts))

    def gate_id(self, bundle: Bundle, world: WorldGate, *, batch: BundleBatch = ALONE, attempts: Sequence[RolloutLine] = ()) -> str:
        """Hex SHA-256 over all that the decision on a bundle depends on: policy, checks, world checks, bundle, batch and rollouts."""
        draft = bundle.draft
        told = {"reference": draft.reference, "hint": draft.hint, "provenance": dict(draft.provenance), "split": draft.split}
        tried = [[line.rollout_id, line.outcome, line.reward] for line in attempts]
        inputs = {
            "policy_id": self.policy.policy_id, "methods": sorted(bound.ref.method_id for bound in self.checks),
            "world": world.gate_digest, "bundle_id": bundle.bundle_id, "draft": told, "batch": batch.batch_digest, "rollouts": tried,
        }  # fmt: skip
        return digest(inputs, allow_nul=True)

    def _not_run(self, check_id: str) -> CheckResult:
        return CheckResult(check_id, "skip", self.policy.not_run.get(check_id, "nothing here implements it"))


def gate(
    ledger: LedgerHandle,
    gates: Gates,
    bundles: Sequence[Bundle],
    *,
    tried: bool = True,
    workers: Workers = ONE,
    progress: Progress = lambda _: None,
) -> Gated:
    """The decisions on sealed bundles of one world, each in the ledger; one that is there already with the same evidence adds nothing.

    Args:
        bundles: proposed for the world of `gates`; leaks and double meanings are looked for among them and all that are sealed for it.
        tried: whether what policies did with the bundles so far is looked at too; without it the statistical checks are skipped, and
            rollouts that come later change no decision.
        workers: how many bundles are worked on at once; processes only for worlds and verifiers that can be pickled.
        progress: called with the number of bundles done since the last call.
    """
    batch = BundleBatch((*bundles, *_others(ledger, gates.world, bundles)))
    world = gate_world(ledger, gates.world, [bundle.draft for bundle in bundles], gates.policy)
    rolled_out = _attempts(ledger, gates.world.name) if tried else {}
    decisions: list[Decision] = []
    created = 0

    def decide(bundle: Bundle) -> Decision:
        attempts = rolled_out.get(bundle.bundle_id, ())
        found = _known(ledger, gates, bundle, gates.gate_id(bundle, world, batch=batch, attempts=attempts))
        decision = decide_new(bundle, attempts=attempts) if found is None else found
        progress(1)
        return decision

    decides = partial(gates.decide, world=world, batch=batch)
    with apart(decides, workers.processes) as decide_new, ThreadPoolExecutor(workers.threads) as pool:
        for start in range(0, len(bundles), _PAGE):
            page = list(pool.map(decide, bundles[start : start + _PAGE]))
            if events := [_event(ledger, decision) for decision in page if not decision.known]:
                created += sum(item.created for item in ledger.append(events).events)
            decisions += page
    return Gated(world, tuple(decisions), created)


def _attempts(ledger: LedgerHandle, world: str) -> dict[str, list[RolloutLine]]:
    fresh(ledger)
    found: dict[str, list[RolloutLine]] = defaultdict(list)
    read = 0
    while lines := rollouts(ledger, Filter(world=world, counted=True), limit=_ROLLOUTS, offset=read, newest=False).lines:
        read += len(lines)
        for line in lines:
            found[line.bundle_id].append(line)
    return found


def _others(ledger: LedgerHandle, world: World[Any], bundles: Sequence[Bundle]) -> list[Bundle]:
    """The further bundles that are sealed for the world version, in the order of sealing."""
    fresh(ledger)
    given = {bundle.bundle_id for bundle in bundles}
    known = [bundle_id for bundle_id in bundle_ids(ledger, world=world.name) if bundle_id not in given]
    sealed = (event.body for event in ledger.read_streams([f"bundle-{bundle_id}" for bundle_id in known], kinds=["BundleSealed"]))
    of_version = {body.bundle_id: None for body in sealed if isinstance(body, BundleSealed) and body.world_id == world.version}
    return list(load_many(ledger, of_version).values())


def _known(ledger: LedgerHandle, gates: Gates, bundle: Bundle, gate_id: str) -> Decision | None:
    """The decision that the ledger has already on the same evidence."""
    for event in reversed(ledger.read_stream(f"bundle-{bundle.bundle_id}")):
        if isinstance(event.body, BundleAdmitted | BundleRejected) and event.body.gate_id == gate_id:
            made = parse(ledger.blob(event.body.results.blob_id))
            return Decision(bundle, {item["check_id"]: result_of(item) for item in made["results"]}, gates.policy, gate_id, known=True)
    return None


def _event(ledger: LedgerHandle, decision: Decision) -> New:
    results = ledger.pending_json(decision.as_json())
    body = (BundleAdmitted if decision.admitted else BundleRejected)(
        bundle_id=decision.bundle.bundle_id, statuses={name: result.status for name, result in decision.results.items()},
        blocking=list(decision.blocking), policy=decision.policy.name, policy_id=decision.policy.policy_id, gate_id=decision.gate_id,
        results=results.ref,
    )  # fmt: skip
    return ledger.new(body, results)
