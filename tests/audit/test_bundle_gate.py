"""Decisions in the ledger, what is read back of them, and what training is refused."""

from dataclasses import replace
from typing import Any

import pytest

from audit.bundle_gate import Gates, gate
from audit.severity import load_policy
from audit.world_gate import WorldGate, gate_world
from ledger.bundle import Bundle
from ledger.canonical import parse
from ledger.errors import BundleRefused
from ledger.events import BundleAdmitted, BundleRejected, CheckRan, SplitRead
from ledger.ledger import LedgerHandle
from tests.audit.defective_worlds import CrashingDesk
from tests.audit.desk_gates import DESK, HARNESS, drafts, sealed
from training.admission import admissions, admitted, read_split, require_admitted
from training.bundles import register, seal
from training.verifiers import verifiers
from training.worlds.ticket_desk import TicketDesk


def gates(world: Any = DESK, policy: str = "v1") -> Gates:
    return Gates(world, verifiers.bind("desk_conditions"), HARNESS, load_policy(policy))


def put(ledger: LedgerHandle, world: Any = DESK, count: int = 2) -> list[Bundle]:
    """Bundles sealed: the first ones of training, the second with a reference that does not solve it, and one of the test split."""
    good, other, held = drafts()[0], drafts()[1], drafts()[7]
    broken = replace(other, reference={**(other.reference or {}), "turns": [(other.reference or {})["turns"][0][:1]]})
    bundles = [sealed(made, world) for made in (good, broken, held)[:count]]
    register(ledger, world, [(verifiers.bind("desk_conditions"), "program")], HARNESS)
    seal(ledger, bundles)
    return bundles


def test_decisions_name_what_blocks_and_keep_every_result(ledger: LedgerHandle) -> None:
    good, broken = put(ledger)
    gated = gate(ledger, gates(), [good, broken])
    assert [decision.admitted for decision in gated.decisions] == [True, False]
    assert gated.new == 2 and gated.reasons == {"semantic.oracle_max": 1, "semantic.replayability": 1}
    event = ledger.read_stream(f"bundle-{broken.bundle_id}")[-1].body
    assert isinstance(event, BundleRejected)
    assert event.blocking == ["semantic.oracle_max", "semantic.replayability"]
    assert event.statuses.keys() == load_policy().severity.keys() and event.statuses["static.sbom"] == "skip"
    kept = {item["check_id"]: item for item in parse(ledger.blob(event.results.blob_id))["results"]}
    assert kept.keys() == event.statuses.keys()
    assert kept["semantic.oracle_max"]["evidence"][0]["path"] == "reference"


def test_gating_again_adds_nothing_and_decides_the_same(ledger: LedgerHandle) -> None:
    bundles = put(ledger)
    first = gate(ledger, gates(), bundles)
    end = ledger.barrier()
    again = gate(ledger, gates(), bundles)
    assert (again.new, again.world.new) == (0, 0)
    assert [item.as_json() for item in again.decisions] == [item.as_json() for item in first.decisions]
    assert all(item.known for item in again.decisions) and ledger.barrier() == end


def test_another_policy_decides_anew_and_the_newest_counts(ledger: LedgerHandle) -> None:
    (good, *_) = bundles = put(ledger, count=1)
    gate(ledger, gates(), bundles)
    second = gate(ledger, gates(policy="v2"), bundles)
    assert second.new == 1
    decided = [event.body for event in ledger.read_stream(f"bundle-{good.bundle_id}")][1:]
    assert [type(body).__name__ for body in decided] == ["BundleAdmitted", "BundleAdmitted"]
    assert isinstance(decided[1], BundleAdmitted) and admissions(ledger)[good.bundle_id].gate_id == decided[1].gate_id


def test_a_bundle_sealed_later_counts_among_the_others(ledger: LedgerHandle) -> None:
    (good,) = put(ledger, count=1)
    assert gate(ledger, gates(), [good]).decisions[0].admitted
    copy = sealed(replace(good.draft, name="copy", split="test", request={**good.draft.request, "system": "Other words."}))
    seal(ledger, [copy])
    again = gate(ledger, gates(), [good])
    assert again.decisions[0].blocking == ("split.digest_leak", "split.ngram_leak")
    assert not admitted(ledger)


def test_the_checks_of_a_world_version_run_once(ledger: LedgerHandle) -> None:
    put(ledger)
    policy = load_policy()
    first = gate_world(ledger, DESK, drafts()[:2], policy)
    again = gate_world(ledger, DESK, drafts()[2:4], policy)
    assert first.new == 4 and again.new == 0
    assert again.gate_digest == first.gate_digest
    assert again.results["world.exercise"].measured["rounds"] == 200
    assert gate_world(ledger, DESK, drafts()[:1], load_policy("v2")).new == 4


def test_tools_that_were_not_exercised_are_exercised(ledger: LedgerHandle) -> None:
    class Few(TicketDesk):
        def tools(self, draft: Any, *, turn: int) -> list[dict[str, Any]]:
            offered = super().tools(draft, turn=turn)
            return offered if draft.name == drafts()[1].name else offered[:4]

    world = Few()
    put(ledger, world)
    first = gate_world(ledger, world, drafts()[:1], load_policy())
    more = gate_world(ledger, world, drafts()[:2], load_policy())
    assert (len(first.scope), len(more.scope), more.new) == (4, 5, 4)
    assert gate_world(ledger, world, drafts()[:1], load_policy()).new == 0


def test_a_world_that_fails_admits_nothing_whatever_the_task(ledger: LedgerHandle) -> None:
    world = CrashingDesk()
    bundles = put(ledger, world, 1)
    gated = gate(ledger, gates(world), bundles)
    assert gated.world.blocking == ("world.legal_calls_hold",)
    assert gated.decisions[0].blocking == ("world.legal_calls_hold",)
    assert admissions(ledger)[bundles[0].bundle_id].reason == "the environment gate fails: world.legal_calls_hold"


def test_without_a_task_gate_or_an_environment_gate_nothing_is_admitted(ledger: LedgerHandle) -> None:
    (good,) = put(ledger, count=1)
    assert admissions(ledger)[good.bundle_id].reason == "no task gate: nothing has decided on it"
    policy = load_policy()
    unchecked = WorldGate(DESK.version, {}, {}, "0" * 64, policy, {})
    decision = gates().decide(good, unchecked)
    assert decision.blocking == ("world.exercise", "world.legal_calls_hold")
    results = ledger.pending_json({})
    body = BundleAdmitted(
        bundle_id=good.bundle_id, statuses={}, blocking=[], policy="v1", policy_id=policy.policy_id, gate_id="0" * 64, results=results.ref
    )
    ledger.append([ledger.new(body, results)])
    assert admissions(ledger)[good.bundle_id].reason == "no environment gate: its world version has no checks by policy v1"


def test_a_world_check_that_fails_later_takes_the_admission_away(ledger: LedgerHandle) -> None:
    bundles = put(ledger, count=1)
    gated = gate(ledger, gates(), bundles)
    assert admitted(ledger) == (bundles[0].bundle_id,)
    body = CheckRan(
        subject=f"world-{DESK.version}", check_id="world.exercise", method_id="1" * 64, status="fail", severity="fail",
        policy_id=gated.decisions[0].policy.policy_id, inputs_digest="2" * 64,
    )  # fmt: skip
    ledger.append([ledger.new(body)])
    assert admitted(ledger) == ()
    assert "world.exercise" in admissions(ledger)[bundles[0].bundle_id].reason


def test_a_batch_gets_admitted_bundles_of_training_and_no_others(ledger: LedgerHandle) -> None:
    good, broken, held = put(ledger, count=3)
    gate(ledger, gates(), [good, broken, held])
    require_admitted(ledger, [good.bundle_id], use="batch")
    for bundle_id, said in (
        (broken.bundle_id, "is not admitted: the gates rejected it: semantic.oracle_max"),
        (held.bundle_id, "of split test; allowed: train, validation"),
        ("0" * 64, "was never sealed in project 'test'"),
    ):
        with pytest.raises(BundleRefused, match=said):
            require_admitted(ledger, [good.bundle_id, bundle_id], use="curriculum")


def test_every_read_of_a_split_is_an_event(ledger: LedgerHandle) -> None:
    _, _, held = bundles = put(ledger, count=3)
    gate(ledger, gates(), bundles)
    read = read_split(ledger, "test", purpose="report", reader="table", run_id="r1")
    assert [bundle.bundle_id for bundle in read] == [held.bundle_id]
    read_split(ledger, "test", purpose="report", reader="table", run_id="r1")
    read_split(ledger, "train", purpose="selection", reader="curriculum", run_id="r1")
    bodies = [event.body for event in ledger.read_stream("run-r1")]
    assert [(body.split, body.purpose, body.bundles) for body in bodies if isinstance(body, SplitRead)] == [
        ("test", "report", 1), ("train", "selection", 1),
    ]  # fmt: skip
