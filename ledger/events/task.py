"""Tasks: worlds, verifiers and harnesses as registered, bundles as sealed, groups as dispatched."""

from typing import ClassVar, Literal

from pydantic import Field

from ledger.events.base import BlobRef, Digest, Edge, EventBody, Grown, Identifier, Name, ShortText


class WorldRegistered(EventBody):
    """A world version."""

    world_id: Digest
    name: Name
    source: BlobRef
    fidelity: Name
    limits: dict[str, int] = Field(default_factory=dict)

    def stream(self) -> str:
        """`world-<digest>`."""
        return f"world-{self.world_id}"

    def key(self) -> str:
        """One a version."""
        return "registered"


class VerifierRegistered(EventBody):
    """A verifier version: its method, its source, its conditions."""

    verifier_id: Digest
    name: Name
    verifier_kind: Literal["program", "state_diff", "judge", "human"]
    source: BlobRef
    method: BlobRef
    planted: bool = False

    def stream(self) -> str:
        """`verifier-<digest>`."""
        return f"verifier-{self.verifier_id}"

    def key(self) -> str:
        """One a version."""
        return "registered"


class HarnessRegistered(Grown, EventBody):
    """A harness version with its declared limits and context policy; `choices` is a blob of everything that its digest covers."""

    later: ClassVar[frozenset[str]] = frozenset({"style", "tool_format", "choices"})

    harness_id: Digest
    name: Name
    source: BlobRef
    limits: dict[str, int | float]
    context_policy: Name
    style: Name = "chat"
    tool_format: Name = "native"
    choices: BlobRef | None = None

    def stream(self) -> str:
        """`harness-<digest>`."""
        return f"harness-{self.harness_id}"

    def key(self) -> str:
        """One a version."""
        return "registered"


class BundleSealed(EventBody):
    """A task bundle z = (q, e, s0, v, H); the reference is a blob of its own that no policy is shown."""

    bundle_id: Digest
    name: Name
    world: Name
    parts: dict[str, Digest]
    world_id: Digest
    verifier_id: Digest
    harness_id: Digest
    split: Literal["train", "validation", "test"]
    draft: BlobRef
    reference: BlobRef | None
    provenance: BlobRef
    proposer: Name

    def stream(self) -> str:
        """`bundle-<digest>`."""
        return f"bundle-{self.bundle_id}"

    def key(self) -> str:
        """One a bundle."""
        return "sealed"

    def edges(self) -> list[Edge]:
        """Bundle to its world, verifier and harness."""
        me = self.stream()
        return [
            Edge(me, f"world-{self.world_id}", "acts_in"),
            Edge(me, f"verifier-{self.verifier_id}", "judged_by"),
            Edge(me, f"harness-{self.harness_id}", "driven_by"),
        ]


CheckStatus = Literal["pass", "fail", "skip", "error"]
Severity = Literal["fail", "warn", "advisory"]


class CheckRan(EventBody):
    """A check looked at one thing: a world version, a verifier version, an update.

    Attributes:
        subject: stream of what was looked at, such as `world-<digest>`.
        check_id: the name that the check has in the field, such as `runtime.seed_control`.
        method_id: digest of the check's source and parameters.
        status: `skip` and `error` are no pass: nothing is known.
        severity: what the policy makes of a failure.
        policy_id: digest of the severity policy.
        inputs_digest: over all that the check depended on beside the subject.
        measured: JSON of what was measured and the evidence.
        evidence_event_ids: events that show it.
    """

    subject: Name
    check_id: Identifier
    method_id: Digest
    status: CheckStatus
    severity: Severity
    policy_id: Digest
    inputs_digest: Digest
    measured: BlobRef | None = None
    evidence_event_ids: list[Identifier] = Field(default_factory=list)

    def stream(self) -> str:
        """The stream of the subject."""
        return self.subject

    def key(self) -> str:
        """One a check, policy and inputs."""
        return f"check:{self.check_id}:{self.method_id[:16]}:{self.policy_id[:16]}:{self.inputs_digest[:16]}"


class _Gated(EventBody):
    """What the gates made of a bundle.

    Attributes:
        statuses: check id to status, of every check of the policy, those not run included.
        blocking: ids of the checks because of which it is rejected, sorted; empty when it is admitted.
        policy_id: digest of the severity policy.
        gate_id: digest over policy, checks, world checks and whatever else the decision depended on.
        results: JSON of all results with measured values, evidence and remedies.
    """

    bundle_id: Digest
    statuses: dict[str, CheckStatus]
    blocking: list[Identifier]
    policy: Name
    policy_id: Digest
    gate_id: Digest
    results: BlobRef

    def stream(self) -> str:
        """`bundle-<digest>`."""
        return f"bundle-{self.bundle_id}"

    def key(self) -> str:
        """One a gate: checks, policy or world checks that changed decide anew, and the newest decision counts."""
        return f"gated:{self.gate_id}"


class BundleAdmitted(_Gated):
    """A bundle passed the environment gate and the task gate and may be trained on."""


class BundleRejected(_Gated):
    """A bundle did not pass, with the checks that say why."""


class SplitRead(EventBody):
    """Somebody read bundles of a split, for selection or for a report."""

    split: Literal["train", "validation", "test"]
    purpose: Literal["selection", "report"]
    reader: Identifier
    run_id: Identifier
    bundles: int = Field(ge=0)

    def stream(self) -> str:
        """`run-<id>`."""
        return f"run-{self.run_id}"

    def key(self) -> str:
        """One a split, purpose and reader in a run."""
        return f"split-read:{self.split}:{self.purpose}:{self.reader}"


class GroupDispatched(EventBody):
    """G rollouts of one policy at one bundle are expected from here on."""

    group_id: Identifier
    bundle_id: Digest
    size: int = Field(ge=1)
    experiment_id: Identifier
    run_id: Identifier
    round: int = Field(ge=0)
    policy: Name
    rollout_kind: Name
    note: ShortText = ""

    def stream(self) -> str:
        """`group-<id>`."""
        return f"group-{self.group_id}"

    def key(self) -> str:
        """One a group."""
        return "dispatched"

    def edges(self) -> list[Edge]:
        """Group to its bundle and its run."""
        return [Edge(self.stream(), f"bundle-{self.bundle_id}", "attempts"), Edge(self.stream(), f"run-{self.run_id}", "part_of")]
