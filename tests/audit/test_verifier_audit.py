"""The audit of verifiers on the desk, against a truth that is worked out here by itself."""

from collections import Counter
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import pytest

from audit.verifier_audit import VerifierAudit, drawn
from audit.verifier_trials import Artefact, artefact_of, run_of
from tests.audit.verifier_cases import DESK, PLANTED, audited, says, sound, trials
from training.verifiers import verifiers

POPULATION, SAMPLE = 6, 3
GAPS = {
    "desk_without_cooldown": "duplicate send_email",
    "desk_without_side_effects": "stray update_ticket",
    "desk_any_mail": "change send_email.to",
}


def solved(at: Artefact) -> bool:
    """Whether the reminder rule was followed: one mail to the owner and a new time for each due ticket, and nothing else."""
    rule, start, end = at.draft.spec, at.s0, at.s_end
    now = datetime.fromisoformat(start["clock"]["now"])
    due = {
        name
        for name, row in start["tickets"].items()
        if (row["priority"], row["status"]) == (rule["priority"], rule["status"])
        and now - datetime.fromisoformat(row["opened_at"]) > timedelta(days=rule["older_than_days"])
        and (
            row["last_reminded_at"] is None
            or now - datetime.fromisoformat(row["last_reminded_at"]) >= timedelta(hours=rule["cooldown_hours"])
        )
    }
    mails = Counter(
        (mail["ticket_id"], mail["to"].strip().casefold()) for name, mail in end["outbox"].items() if name not in start["outbox"]
    )
    wanted = Counter((name, start["owners"][start["tickets"][name]["owner_id"]]["email"].casefold()) for name in due)
    kept = all(end["outbox"].get(name) == mail for name, mail in start["outbox"].items())
    if mails != wanted or end["owners"] != start["owners"] or end["tickets"].keys() != start["tickets"].keys() or not kept:
        return False
    for name, row in end["tickets"].items():
        changed = {column for column in row.keys() | start["tickets"][name].keys() if row.get(column) != start["tickets"][name].get(column)}
        if changed != ({"last_reminded_at"} if name in due else set()):
            return False
        if name in due and not start["clock"]["now"] <= row["last_reminded_at"] <= end["clock"]["now"]:
            return False
    return True


@lru_cache(maxsize=8)
def audit(verifier: str) -> VerifierAudit:
    return audited(verifier, count=SAMPLE)


def test_every_label_is_the_truth() -> None:
    told = [trial for trial in trials(POPULATION) if trial.sort in ("reference", "equivalent", "mutant", "no_op")]
    wrong = [(trial.kind, trial.right) for trial in told if solved(trial.artefact) is not trial.right]
    assert wrong == [] and len(told) > 50 * POPULATION
    kinds = {trial.kind.partition(" ")[0] for trial in told}
    assert {"drop", "duplicate", "change", "stray", "stale", "partial", "overreach", "revert", "alter", "reversed", "reads"} <= kinds


@pytest.mark.parametrize("verifier", PLANTED)
def test_a_planted_gap_is_found_and_named_without_being_told(verifier: str) -> None:
    found = audit(verifier)
    assert GAPS[verifier] in {gap.kind for gap in found.gaps if gap.wrongly == "accepted"}
    result = found.results["verifier_kill_score"]
    assert (result.status, result.fault) == ("fail", "false_accept") and found.kill_score is not None and found.kill_score < 1
    assert found.results["oracle_max"].status == "pass" and found.results["verifier_equivalent_paths"].status == "pass"


@pytest.mark.parametrize("verifier", PLANTED)
def test_the_exhaustive_false_positive_rate_lies_in_the_stated_interval(verifier: str) -> None:
    run = run_of(verifiers[verifier], DESK.material)
    wrong = [trial for trial in trials(POPULATION) if trial.sort == "mutant" and not solved(trial.artefact)]
    truth = sum(run(trial.artefact).passed is True for trial in wrong) / len(wrong)
    stated = audit(verifier).false_positive_rate
    assert stated.low is not None and stated.high is not None and stated.level == 0.95
    assert truth > 0 and stated.low <= truth <= stated.high


@pytest.mark.parametrize("verifier", ["desk_conditions", "end_state"])
def test_nothing_survives_a_sound_verifier(verifier: str) -> None:
    found = audit(verifier)
    assert found.gaps == () and found.kill_score == 1.0
    assert {name: r.status for name, r in found.results.items() if r.status in ("fail", "error")} == {}
    assert found.false_positive_rate.value == 0.0 and found.false_negative_rate.value == 0.0
    assert found.false_positive_rate.high is not None and found.false_positive_rate.high > 0


def test_nothing_survives_the_verifier_of_families() -> None:
    found = audited("desk_tickets", count=2, level=0)
    assert found.gaps == () and found.kill_score == 1.0


def test_a_verifier_that_refuses_other_ways_is_found_with_its_false_negatives() -> None:
    first: dict[str, Any] = {}

    def one_way(s0: Any, s_end: Any, trace: Any, task: Any) -> bool:
        calls = [step.call.name for step in trace]
        return bool(sound(s0, s_end, trace, task).passed) and first.setdefault(task.draft.name, calls) == calls

    found = audited(says(one_way), count=1)
    assert found.results["verifier_equivalent_paths"].status == "fail"
    assert found.results["verifier_equivalent_paths"].fault == "false_reject"
    assert found.false_negative_rate.value is not None and found.false_negative_rate.value > 0
    assert {gap.wrongly for gap in found.gaps} == {"rejected"}


def test_a_verifier_that_breaks_kills_nothing_and_lets_nothing_in() -> None:
    def breaks(s0: Any, s_end: Any, trace: Any, task: Any) -> bool:
        raise KeyError("tickets")

    found = audited(says(breaks), count=1)
    assert (found.kill_score, found.false_positive_rate.value) == (0.0, 0.0)
    assert {gap.wrongly for gap in found.gaps} == {"undecided"}
    assert found.results["gold_unparseable"].status == "fail" and found.results["oracle_max"].status == "fail"


def test_an_artefact_comes_back_from_its_json() -> None:
    trial = trials(2)[0]
    assert artefact_of(trial.artefact.as_json()) == trial.artefact


def test_tasks_are_drawn_by_the_seed_in_their_own_order() -> None:
    assert drawn([1, 2, 3, 4], None, seed=0) == [1, 2, 3, 4]
    some = drawn(list(range(100)), 10, seed=1)
    assert len(some) == 10 and some == sorted(some) == drawn(list(range(100)), 10, seed=1) != drawn(list(range(100)), 10, seed=2)
