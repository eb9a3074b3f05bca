"""Which bundles may be trained on: the newest decision of the gates on each, and the refusal of all others. Reads the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.errors import NotAdmitted
from ledger.events import BundleAdmitted, BundleRejected, BundleSealed
from ledger.ledger import LedgerHandle


@dataclass(frozen=True)
class Admission:
    """The newest decision on a bundle.

    Attributes:
        bundle_id: the bundle.
        split: train, validation or test.
        admitted: None where no gate has decided yet.
        blocking: ids of the checks that stand in the way.
        gate_id: of the decision.
        policy: name of the severity policy.
    """

    bundle_id: str
    split: str
    admitted: bool | None
    blocking: tuple[str, ...] = ()
    gate_id: str | None = None
    policy: str | None = None


def admissions(ledger: LedgerHandle, bundle_ids: Sequence[str]) -> dict[str, Admission]:
    """Bundle id to the newest decision on it, in the order given.

    Raises:
        NotAdmitted: a bundle was never sealed.
    """
    return {bundle_id: _admission(ledger, bundle_id) for bundle_id in bundle_ids}


def require_trainable(ledger: LedgerHandle, bundle_ids: Sequence[str]) -> None:
    """Return when every bundle was admitted by its newest decision and none is in the test split.

    Raises:
        NotAdmitted: one is not; the message names it and why.
    """
    for bundle_id, found in admissions(ledger, bundle_ids).items():
        if found.split == "test":
            raise NotAdmitted(f"bundle {bundle_id} is in the test split; allowed in batches and curricula: train and validation")
        if found.admitted is None:
            raise NotAdmitted(f"bundle {bundle_id} was not looked at by the gates; allowed in batches and curricula: admitted bundles")
        if not found.admitted:
            raise NotAdmitted(f"bundle {bundle_id} was rejected by policy {found.policy} because of {', '.join(found.blocking)}")


def rejected(ledger: LedgerHandle, bundle_ids: Sequence[str]) -> frozenset[str]:
    """Those of the bundles whose newest decision rejects them; one without a decision is not among them."""
    return frozenset(bundle_id for bundle_id in bundle_ids if isinstance(_newest(ledger, bundle_id)[1], BundleRejected))


def _admission(ledger: LedgerHandle, bundle_id: str) -> Admission:
    split, decided = _newest(ledger, bundle_id)
    if split is None:
        raise NotAdmitted(f"bundle {bundle_id} was never sealed in project {ledger.project!r}")
    if decided is None:
        return Admission(bundle_id, split, None)
    return Admission(bundle_id, split, isinstance(decided, BundleAdmitted), tuple(decided.blocking), decided.gate_id, decided.policy)


def _newest(ledger: LedgerHandle, bundle_id: str) -> tuple[str | None, BundleAdmitted | BundleRejected | None]:
    """The split that a bundle was sealed in, and the newest decision on it; None for what there is not."""
    split: str | None = None
    decided: BundleAdmitted | BundleRejected | None = None
    for event in ledger.read_stream(f"bundle-{bundle_id}"):
        if isinstance(event.body, BundleSealed):
            split = event.body.split
        elif isinstance(event.body, BundleAdmitted | BundleRejected):
            decided = event.body
    return split, decided
