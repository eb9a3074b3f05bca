"""S48 WorkRover: every criterion cites the artefact that decides it."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from audit.bundle_checks import bundle_checks
from audit.bundle_subject import BundleSubject
from audit.severity import DEFAULT, load_policy
from ledger.bundle import Bundle
from ledger.errors import VerifierFailed
from training.proposers import Document, ProposalContext, proposers
from training.proposing.acting import act, calls_of
from training.verifiers import Condition, JudgeTask, Verdict, verifiers
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

POLICY = load_policy(DEFAULT)
DESK = TicketDesk()
BASE = generate(1, seed=3)[0]
TICKET = sorted(BASE.initial_state["tickets"])[0]
TASK = {
    "request": "Please note on the first ticket that the handover was done, as the runbook asks.",
    "calls": [{"name": "query_tickets", "arguments": {}}, {"name": "update_ticket", "arguments": {"id": TICKET, "fields": {"note": "handed over"}}}],
    "conditions": [{"name": "handover", "says": "the note tells of the handover", "place": f"/tickets/{TICKET}/note", "value": "handed over"}],
}  # fmt: skip
CONTEXT = ProposalContext(DESK, drafts=(BASE,), documents=(Document("runbook.md", "After a shift, note the handover.", "CC-BY-4.0"),))


def answers(*values: Any) -> Any:
    rest = [json.dumps(value) for value in values]
    return lambda messages, fields: rest.pop(0)


def test_every_criterion_cites_a_place_and_the_verdict_shows_what_stands_there() -> None:
    draft = proposers["asked"](CONTEXT, 1, rng=Random(1), ask=answers(TASK))[0]
    assert all(condition["place"].startswith("/tickets/") for condition in draft.spec["conditions"])
    start = DESK.view(DESK.reset(draft, seed=0))
    end = DESK.view(act(DESK, draft, calls_of((draft.reference or {})["turns"])).state)
    verdict = verifiers["pointed_conditions"](start, end, (), JudgeTask(draft, DESK.material))
    assert verdict.passed is True
    assert verdict.conditions[0].evidence == {"place": f"/tickets/{TICKET}/note", "expected": "handed over", "seen": "handed over"}


def test_a_criterion_without_a_pointer_is_refused_when_it_is_proposed_and_by_the_verifier() -> None:
    bare = {**TASK, "conditions": [{"name": "handover", "says": "the handover is noted", "place": "", "value": "handed over"}]}
    got = proposers["asked"](CONTEXT, 1, rng=Random(1), ask=answers(bare), retries=0)
    assert (len(got), got.rejected) == (0, {"answer, wrong form": 1, "task, wrong form": 1})
    draft = replace(BASE, spec={"conditions": [{"name": "handover", "value": "handed over"}]})
    with pytest.raises(VerifierFailed, match="needs name, place and value"):
        verifiers["pointed_conditions"]({}, {}, (), JudgeTask(draft, lambda view: view))


def test_a_criterion_without_evidence_fails_the_gate() -> None:
    draft = proposers["asked"](CONTEXT, 1, rng=Random(1), ask=answers(TASK))[0]
    judge = verifiers["pointed_conditions"]

    def mute(s0: Any, s_end: Any, trace: Any, task: JudgeTask, *, ask: Any = None) -> Verdict:
        verdict = judge(s0, s_end, trace, task)
        return Verdict(tuple(Condition(item.name, item.status, None, item.in_basis) for item in verdict.conditions))

    for chosen, status in ((judge, "pass"), (mute, "fail")):
        subject = BundleSubject(Bundle(draft, DESK.version, "verifier", "harness"), DESK, chosen)
        results = {item.check_id: item.status for item in bundle_checks["verifier_evidence_present"](subject, POLICY.thresholds)}
        assert results["verifier.evidence_present"] == status


def test_the_desk_s_own_criteria_name_rows_or_mails() -> None:
    judge = verifiers["desk_conditions"]
    start = DESK.view(DESK.reset(BASE, seed=0))
    end = DESK.view(act(DESK, BASE, calls_of((BASE.reference or {})["turns"])).state)
    named = {key for table in ("tickets", "outbox", "owners") for key in (*start[table], *end[table])} | {"tickets", "outbox", "owners"}
    for condition in judge(start, end, (), JudgeTask(BASE, DESK.material)).conditions:
        assert set(map(str, condition.evidence["checked"])) & named or condition.evidence.get("vacuous")
