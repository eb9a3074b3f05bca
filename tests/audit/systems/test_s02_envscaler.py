"""S02 EnvScaler: the check loop over a class world, a planted bug, and the gate that the check loop is not."""

import json
from random import Random
from typing import Any

import pytest

from audit.bundle_checks import bundle_checks
from audit.bundle_subject import BundleSubject
from audit.severity import DEFAULT, load_policy
from audit.world_gate import WorldGate, check_world
from ledger.bundle import Bundle, BundleDraft
from tests.tiny_world import Library
from training.proposers import ProposalContext, proposers
from training.verifiers import verifiers
from training.worlds.python_class import PythonClasses
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

POLICY = load_policy(DEFAULT)
DESK = '''
class Desk:
    """Tickets and mails of a small desk."""

    def __init__(self, state=None):
        self.tickets = {}
        self.mails = []

    def list_tickets(self) -> list:
        """List the tickets."""
        return [{"ticket_id": key, **row} for key, row in sorted(self.tickets.items())]

    def update_ticket(self, ticket_id: str, status: str) -> dict:
        """Change a ticket's status.

        Args:
            ticket_id: such as T1.
            status: open or closed.
        """
        if ticket_id not in self.tickets or status not in ("open", "closed"):
            return {"success": False, "error": "no such ticket or status"}
        self.tickets[ticket_id]["status"] = status
        return {"success": True}

    def send_mail(self, ticket_id: str, to: str) -> dict:
        """Send a mail about a ticket."""
        if ticket_id not in self.tickets or "@" not in to:
            return {"success": False, "error": "no such ticket or address"}
        self.mails.append({"ticket_id": ticket_id, "to": to})
        return {"success": True}
'''
STATE = {
    "tickets": {"T1": {"status": "open", "owner": "ann@desk.example"}, "T2": {"status": "closed", "owner": "bo@desk.example"}},
    "mails": [],
}
TASK = {
    "request": "Ticket T1 is done, please close it.",
    "calls": [{"name": "list_tickets", "arguments": {}}, {"name": "update_ticket", "arguments": {"ticket_id": "T1", "status": "closed"}}],
    "conditions": [{"name": "C1", "says": "T1 is closed", "place": "/tickets/T1/status", "value": "closed"}],
}


def answers(*values: Any) -> Any:
    rest = [json.dumps(value) for value in values]
    return lambda messages, fields: rest.pop(0)


def checked(source: str) -> tuple[WorldGate, BundleDraft]:
    """The environment gate of a class world that a model wrote, and its task."""
    told = answers({"name": "desk", "source": source, "state": STATE}, TASK)
    got = proposers["asked_worlds"](ProposalContext(Library()), 1, rng=Random(1), ask=told, tasks=1)
    world = PythonClasses({"desk": got.artifacts["class/desk"]})
    try:
        return check_world(world, list(got), POLICY), got[0]
    finally:
        world.close()


@pytest.fixture(scope="module")
def desk() -> WorldGate:
    return checked(DESK)[0]


def test_a_class_world_passes_the_gate_with_legal_and_illegal_calls_of_every_tool(desk: WorldGate) -> None:
    measured = desk.results["world.exercise"].measured
    assert desk.results["world.exercise"].status == "pass"
    assert measured["rounds"] >= 100
    assert measured["pass_rate"] >= 0.85
    assert measured["not_failed"] >= 0.85
    for tool in ("list_tickets", "update_ticket", "send_mail"):
        row = measured["per_tool"][tool]
        assert {"pass", "warning", "fail", "legal", "accepted"} <= row.keys()
    for tool in ("update_ticket", "send_mail"):
        row = measured["per_tool"][tool]
        legal, all_rounds = row["legal"], row["pass"] + row["warning"] + row["fail"]
        assert legal >= 20 and all_rounds - legal >= 20


def test_a_tool_that_ignores_the_type_of_its_id_is_caught(desk: WorldGate) -> None:
    bug = DESK.replace('if ticket_id not in self.tickets or status not in ("open", "closed"):', "if False:").replace(
        'self.tickets[ticket_id]["status"] = status', 'self.tickets.setdefault(str(ticket_id), {})["status"] = status'
    )
    assert bug != DESK
    found = checked(bug)[0].results["world.illegal_calls_refused"]
    assert desk.results["world.illegal_calls_refused"].status == "pass"
    assert found.status == "fail"
    assert {item["tool"] for item in found.evidence} == {"update_ticket"}


@pytest.mark.parametrize(("verifier", "status"), [("desk_conditions", "pass"), ("desk_any_mail", "fail")])
def test_a_verifier_that_does_not_look_at_the_owner_is_seen_by_the_kill_score_and_by_nothing_that_looks_at_the_world(
    verifier: str, status: str
) -> None:
    world, draft = TicketDesk(), generate(1, seed=3)[0]
    bound = verifiers.bind(verifier)
    subject = BundleSubject(Bundle(draft, world.version, bound.ref.method_id, "harness"), world, bound.call)
    (score,) = [r for r in bundle_checks["verifier_kill_score"](subject, POLICY.thresholds) if r.check_id == "verifier.kill_score"]
    assert score.status == status


def test_the_environment_gate_does_not_know_the_verifier() -> None:
    gate = check_world(TicketDesk(), generate(2, seed=3), POLICY)
    assert gate.results["world.exercise"].status == "pass"
    assert gate.blocking == ()


def test_pass_rate_and_share_not_failed_are_two_numbers() -> None:
    """70 passed, 20 warned, 10 failed: 0.70 of all pass, 0.90 did not fail; the released filter keeps it, a pass rate over all would not."""
    passed, warned, failed = 70, 20, 10
    assert passed / 100 == 0.70 < 0.85 <= 1 - failed / 100 == 0.90
    assert round(passed / (passed + failed), 4) == 0.875
    assert passed + warned + failed == 100
