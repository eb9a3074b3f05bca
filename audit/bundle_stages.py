"""The gates as stages of an experiment: its worlds checked, its bundles checked, and which of them are admitted. Writes the ledger."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from audit.bundle_gate import Gated, Gates, gate
from audit.bundle_workers import workers_for
from audit.severity import Policy, load_policy
from audit.world_gate import WorldGate, gate_world
from ledger.bundle import Bundle
from ledger.canonical import digest
from ledger.events.task import CheckStatus
from training.admission import Admission, admissions
from training.lab import Lab
from training.stages import Progress, StageReport, silent


@dataclass(frozen=True)
class WorldsChecked:
    """World name to its environment gate."""

    report: StageReport
    gates: Mapping[str, WorldGate]


@dataclass(frozen=True)
class BundlesChecked:
    """World name to the decisions on its bundles."""

    report: StageReport
    gated: Mapping[str, Gated]


@dataclass(frozen=True)
class BundlesAdmitted:
    """Every sealed bundle of the experiment that the gates look at, with what counts for it now.

    Attributes:
        manifest_digest: hex SHA-256 over the ids of the admitted bundles of each split.
        rows: the bundles with their admissions, in the experiment's order.
    """

    report: StageReport
    manifest_digest: str
    rows: tuple[tuple[Bundle, Admission], ...]


def world_checks(lab: Lab, *, policy: Policy | None = None, progress: Progress = silent) -> WorldsChecked:
    """The environment gate of every world of the experiment; a world version that was checked for these tools is not run again."""
    policy, since = policy or load_policy(), lab.ledger.barrier()
    found: dict[str, WorldGate] = {}
    names = sorted({bundle.draft.world for bundle in lab.gated_bundles})
    for name in names:
        found[name] = gate_world(lab.ledger, lab.worlds[name], [bundle.draft for bundle in _of(lab, name)], policy)
        progress("worlds checked", 1, len(names))
    statuses = Counter(result.status for gate in found.values() for result in gate.results.values())
    blocked = sum(bool(gate.blocking) for gate in found.values())
    counts = {"worlds": len(found), "blocked": blocked, "new": sum(gate.new for gate in found.values()), **_named(statuses)}
    return WorldsChecked(StageReport(since, lab.ledger.barrier(), counts), found)


def bundle_checks(lab: Lab, *, policy: Policy | None = None, progress: Progress = silent) -> BundlesChecked:
    """Both gates of every bundle of the experiment, each decision an event; the same evidence decides once."""
    policy, since = policy or load_policy(), lab.ledger.barrier()
    total = len(lab.gated_bundles)
    # Before the experiment's own rollouts there are none to look at; a second run decides as the first did.
    gated: dict[str, Gated] = {}
    for name in sorted({bundle.draft.world for bundle in lab.gated_bundles}):
        world = lab.worlds[name]
        gates = Gates(world, lab.judgings[name][0].verifier, lab.harness, policy)
        bundles, tell = _of(lab, name), partial(_tell, progress, total)
        gated[name] = gate(lab.ledger, gates, bundles, tried=False, workers=workers_for(world, len(bundles)), progress=tell)
    decided = [decision for found in gated.values() for decision in found.decisions]
    counts = {
        "bundles": len(decided), "admitted": sum(decision.admitted for decision in decided),
        "rejected": sum(not decision.admitted for decision in decided), "new": sum(found.new for found in gated.values()),
    }  # fmt: skip
    return BundlesChecked(StageReport(since, lab.ledger.barrier(), counts), gated)


def admitted_bundles(lab: Lab) -> BundlesAdmitted:
    """Which bundles the newest decisions admit, by split. Adds nothing."""
    at = lab.ledger.barrier()
    found = admissions(lab.ledger, [bundle.bundle_id for bundle in lab.gated_bundles])
    rows = tuple((bundle, found[bundle.bundle_id]) for bundle in lab.gated_bundles if bundle.bundle_id in found)
    splits = Counter(bundle.draft.split for bundle, admission in rows if admission.admitted)
    undecided = sum(admission.gate_id is None for _, admission in rows)
    counts = {
        "bundles": len(lab.gated_bundles), "admitted": splits.total(), "rejected": len(rows) - splits.total() - undecided,
        "undecided": undecided + len(lab.gated_bundles) - len(rows), "not gated": len(lab.bundles) - len(lab.gated_bundles),
        **{split: splits[split] for split in ("train", "validation", "test")},
    }  # fmt: skip
    manifest = {split: sorted(b.bundle_id for b, a in rows if a.admitted and b.draft.split == split) for split in sorted(splits)}
    return BundlesAdmitted(StageReport(at, at, counts), digest(manifest), rows)


def _tell(progress: Progress, total: int, done: int) -> None:
    progress("bundles checked", done, total)


def _of(lab: Lab, world: str) -> list[Bundle]:
    return [bundle for bundle in lab.gated_bundles if bundle.draft.world == world]


def _named(statuses: Mapping[CheckStatus, int]) -> dict[str, int]:
    return {f"checks: {status}": count for status, count in sorted(statuses.items())}
