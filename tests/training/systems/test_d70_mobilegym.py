"""Digest 70 MobileGym: a judge of the state against a judge of the final text, on labelled runs, with side effects by their paths."""

import json
import time
from typing import Any

from scipy.stats import binomtest

from ledger.bundle import BundleDraft
from training.verifiers import JudgeTask, Verdict, verifiers
from training.worlds import ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.scripts import SCRIPTS

DESK = TicketDesk()
LABELS = {
    "oracle": "pass", "other_path": "pass", "gives_up": "fail", "wrong_recipient": "fail", "forgets_reminder_time": "near_miss",
    "duplicate_sender": "near_miss", "ignores_cooldown": "near_miss", "over_writer": "side_effect", "mails_on_the_limit": "side_effect",
    "malformed_call": "fail",
}  # fmt: skip
DRAFTS = generate(10, seed=5)


def run(script: str, draft: BundleDraft) -> tuple[Any, Any, str]:
    state = DESK.reset(draft, seed=0)
    start, text = DESK.view(state), ""
    for turn in SCRIPTS[script](draft):
        text = turn.content or text
        for name, raw in turn.tool_calls:
            try:
                call = ToolCall(name, json.loads(raw))
            except ValueError:
                continue
            state, _ = DESK.call(state, call)
    return start, DESK.view(state), text


def judged(script: str, draft: BundleDraft) -> tuple[Verdict, bool, bool]:
    """The state judge's verdict, whether the end is the replayed reference's, and what a judge of the final text says."""
    start, end, text = run(script, draft)
    _, expected, _ = run("oracle", draft)
    verdict = verifiers["end_state"](start, end, (), JudgeTask(draft, DESK.material))
    return verdict, DESK.material(end) == DESK.material(expected), "DONE" in text


def test_on_a_hundred_labelled_runs_the_state_judge_errs_never_and_the_text_judge_does() -> None:
    runs = [(label, judged(script, draft)) for script, label in LABELS.items() for draft in DRAFTS]
    assert len(runs) == 100
    right = [(label == "pass", verdict.passed, same, said) for label, (verdict, same, said) in runs]
    assert all(truth == passed == same for truth, passed, same, _ in right)
    wrong_accepts = sum(said and not truth for truth, _, _, said in right)
    failing = sum(not truth for truth, _, _, _ in right)
    interval = binomtest(wrong_accepts, failing).proportion_ci(0.95, method="exact")
    assert (wrong_accepts, failing) == (70, 80)
    assert interval.low > 0.0


def test_side_effects_are_named_by_their_paths_and_right_runs_have_none() -> None:
    for draft in DRAFTS[:3]:
        clean, _, _ = judged("oracle", draft)
        stray, _, _ = judged("over_writer", draft)
        assert clean.side_effects == ()
        noted = {
            f"/tickets/{call['arguments']['ticket_id']}/note"
            for call in (draft.reference or {})["turns"][0]
            if call["name"] == "send_email"
        }
        assert {effect["path"] for effect in stray.side_effects} == noted
        assert all(effect["after"] == "owner was reminded" for effect in stray.side_effects)


def test_fork_and_compare_takes_less_than_fifty_milliseconds() -> None:
    state = DESK.reset(DRAFTS[0], seed=0)
    snapshot = DESK.snapshot(state)
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        first, second = DESK.fork(snapshot, 2)
        assert DESK.diff(first, second).changes == ()
        rounds.append(time.perf_counter() - began)
    assert min(rounds) < 0.05
