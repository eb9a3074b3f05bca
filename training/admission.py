"""Which bundles may be trained on, by the gates' newest decisions, and the record of who reads a split. Writes the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ledger.bundle import Bundle, Split
from ledger.canonical import digest
from ledger.errors import BundleRefused
from ledger.events import BundleAdmitted, BundleRejected, BundleSealed, CheckRan, SplitRead
from ledger.ledger import LedgerHandle
from ledger.queries import bundle_ids as sealed_ids
from ledger.queries import fresh
from training.bundles import load

Use = Literal["batch", "curriculum"]
_READER_CHARS = 8


@dataclass(frozen=True)
class Admission:
    """Whether one sealed bundle may be used.

    Attributes:
        admitted: it passed both gates, and its world version passes still.
        reason: why not; empty when it is admitted.
        gate_id: the decision that counts; None when there is none.
    """

    bundle_id: str
    name: str
    world: str
    split: Split
    admitted: bool
    reason: str
    gate_id: str | None


def admissions(ledger: LedgerHandle, of: Sequence[str] | None = None) -> dict[str, Admission]:
    """Bundle id to its admission: of those that are asked for and sealed, or of every sealed bundle of the project in the order of sealing.

    A bundle needs both gates: a task gate (its newest decision admits it) and an environment gate (its world version has checks by the
    decision's policy, and the newest result of each one whose failure blocks is neither a failure nor an error). A world check that fails
    later takes the admission of all bundles of that world version away.

    Args:
        of: ids of bundles; only their streams and those of their worlds are read.
    """
    if of is None:
        fresh(ledger)
        of = sealed_ids(ledger)
    else:
        ledger.barrier()
    sealed: dict[str, BundleSealed] = {}
    decided: dict[str, BundleAdmitted | BundleRejected] = {}
    for event in ledger.read_streams([f"bundle-{bundle_id}" for bundle_id in of]):
        body = event.body
        if isinstance(body, BundleSealed):
            sealed.setdefault(body.bundle_id, body)
        elif isinstance(body, BundleAdmitted | BundleRejected):
            decided[body.bundle_id] = body
    checked: dict[tuple[str, str], dict[str, CheckRan]] = {}
    for event in ledger.read_streams(sorted({f"world-{body.world_id}" for body in sealed.values()})):
        if isinstance(event.body, CheckRan):
            checked.setdefault((event.body.subject, event.body.policy_id), {})[event.body.check_id] = event.body
    return {name: _admission(sealed[name], decided.get(name), checked) for name in of if name in sealed}


def admitted(ledger: LedgerHandle, *, split: Split | None = None, of: Sequence[str] | None = None) -> tuple[str, ...]:
    """Ids of the admitted bundles, in the order of sealing, or of `of` when that is given; of one split when it is given."""
    return tuple(item.bundle_id for item in admissions(ledger, of).values() if item.admitted and split in (None, item.split))


def require_admitted(ledger: LedgerHandle, bundle_ids: Sequence[str], *, use: Use) -> None:
    """Nothing, when every bundle may be used for training.

    Args:
        bundle_ids: those that a batch or a curriculum asks for.
        use: what asks, for the message.
    Raises:
        BundleRefused: one was never sealed or not admitted, or is in the test split.
    """
    known = admissions(ledger, bundle_ids)
    for bundle_id in bundle_ids:
        found = known.get(bundle_id)
        if found is None:
            raise BundleRefused(f"a {use} asks for bundle {bundle_id!r}, which was never sealed in project {ledger.project!r}")
        if found.split == "test":
            raise BundleRefused(f"a {use} asks for bundle {found.name!r} ({bundle_id[:12]}) of split test; allowed: train, validation")
        if not found.admitted:
            raise BundleRefused(f"a {use} asks for bundle {found.name!r} ({bundle_id[:12]}), which is not admitted: {found.reason}")


def read_split(
    ledger: LedgerHandle, split: Split, *, purpose: Literal["selection", "report"], reader: str, run_id: str
) -> tuple[Bundle, ...]:
    """The admitted bundles of a split; that they were read is an event before the first of them is.

    Args:
        split: train, validation or test.
        purpose: selection (something is chosen by them) or report.
        reader: short name of what reads.
        run_id: the run that it belongs to.
    """
    ids = admitted(ledger, split=split)
    # Reading other bundles is another read, so the reader's name carries which they were.
    name = f"{reader}:{digest(list(ids))[:_READER_CHARS]}"
    ledger.append([ledger.new(SplitRead(split=split, purpose=purpose, reader=name, run_id=run_id, bundles=len(ids)))])
    return tuple(load(ledger, bundle_id) for bundle_id in ids)


def _admission(
    body: BundleSealed, decision: BundleAdmitted | BundleRejected | None, checked: Mapping[tuple[str, str], Mapping[str, CheckRan]]
) -> Admission:
    reason = "no task gate: nothing has decided on it" if decision is None else _refusal(body, decision, checked)
    gate_id = None if decision is None else decision.gate_id
    return Admission(body.bundle_id, body.name, body.world, body.split, not reason, reason, gate_id)


def _refusal(
    body: BundleSealed, decision: BundleAdmitted | BundleRejected, checked: Mapping[tuple[str, str], Mapping[str, CheckRan]]
) -> str:
    """Why a bundle that was decided on is not admitted; empty when it is."""
    checks = checked.get((f"world-{body.world_id}", decision.policy_id), {})
    blocking = {name: check for name, check in checks.items() if check.severity == "fail"}
    failing = sorted(name for name, check in blocking.items() if check.status in ("fail", "error"))
    if failing:
        return f"the environment gate fails: {', '.join(failing)}"
    if not any(check.status == "pass" for check in blocking.values()):
        return f"no environment gate: its world version has no checks by policy {decision.policy}"
    return f"the gates rejected it: {', '.join(decision.blocking)}" if isinstance(decision, BundleRejected) else ""
