"""Rollouts whose verifiers disagree, and the form on which a person settles one: `?rollout=<id>` opens it."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from ui import data
from ui.components.clicks import CLICKS, clicked
from ui.components.conversation import show_conversation
from ui.components.markup import chip, outcome_tone, plain
from ui.components.state_diff import show_diff
from ui.components.verdict_cards import show_reviews, show_verdict, verdict_name
from ui.opening import run_page

_STATES = {"open": False, "reviewed": True, "all": None}
_MEANING = {"passed": "passed: the task was done", "failed": "failed: it was not", "unclear": "unclear: it stays open"}


def show() -> None:
    """The page."""
    asked = st.query_params.get("rollout", "").strip()
    if asked:
        _one(data.trace("rollout", asked))
    else:
        _all()


def _all() -> None:
    st.title("Verifier disagreements", anchor=False)
    state_box, world_box, policy_box, _ = st.columns([2, 1, 1, 2], vertical_alignment="bottom")
    state = state_box.segmented_control("State", list(_STATES), default="open", required=True, key="disagreement-state")
    choices = data.choices()
    world = world_box.selectbox("World", list(choices.world), index=None, placeholder="all", key="disagreement-world")
    policy = policy_box.selectbox("Policy", list(choices.policy), index=None, placeholder="all", key="disagreement-policy")
    where, reviewed = data.Filter(world=world, policy=policy), _STATES[state or "open"]
    counts = {name: data.disagreements(where, reviewed=flag).total for name, flag in _STATES.items()}
    pages = max(1, -(-counts[state or "open"] // data.PAGE_SIZE))
    page = st.pagination(pages, key="disagreements-page") if pages > 1 else 1
    found = data.disagreements(where, reviewed=reviewed, page=min(page, pages))
    st.markdown(f"**{counts['open']} open** and {counts['reviewed']} reviewed of {counts['all']} disagreements · click a row to decide it")
    if found.lines:
        _table(found.lines)
    else:
        st.info("No disagreement here. They appear when two verifiers judge one rollout differently.", icon=":material/balance:")


def _table(lines: Sequence[data.Disagreement]) -> None:
    frame = pd.DataFrame({
        "task": [line.rollout.bundle or line.rollout.bundle_id[:12] for line in lines],
        "policy": [line.rollout.policy or "unknown" for line in lines],
        "say passed": [_names(line, True) for line in lines],
        "say failed": [_names(line, False) for line in lines],
        "counts": [next((v.verifier or "a person" for v in (*line.verdicts, *line.reviews) if v.counts), "none") for line in lines],
        "outcome": [line.rollout.outcome.replace("_", " ") for line in lines],
        "reward": pd.array([line.rollout.reward for line in lines], dtype="Float64"),
        "reviews": [len(line.reviews) for line in lines],
        "state": ["reviewed" if line.reviewed else "open" for line in lines],
        "rollout id": [line.rollout.rollout_id for line in lines],
    })  # fmt: skip
    chosen = st.dataframe(
        frame, hide_index=True, on_select="rerun", selection_mode=CLICKS, key="disagreements-table", placeholder="missing",
        height=min(38 + 35 * len(lines), 1800), column_config={"reward": st.column_config.NumberColumn(format="%.2f", width="small")},
    )  # fmt: skip
    st.caption("* planted: a verifier with a gap on purpose")
    row = clicked(chosen.selection, len(lines))
    if row is not None:
        st.switch_page("pages/disagreements.py", query_params={"rollout": lines[row].rollout.rollout_id})


def _names(line: data.Disagreement, passed: bool) -> str:
    return ", ".join(f"{v.verifier or 'unnamed'}{'*' if v.planted else ''}" for v in line.verdicts if v.passed is passed)


def _one(trace: data.Trace) -> None:
    rollout = trace.rollout
    st.page_link("pages/disagreements.py", label="All disagreements", icon=":material/arrow_back:")
    st.title(plain(trace.bundle.name if trace.bundle else rollout.rollout_id), anchor=False)
    outcome = chip(rollout.outcome.replace("_", " "), outcome_tone(rollout.outcome))
    st.html(f'<div class="tl">{outcome}{chip(f"ended by {rollout.ended_by}")}</div>')
    st.page_link("pages/trace.py", label="The whole trace", icon=":material/timeline:", query_params={"rollout": rollout.rollout_id})
    said = [verdict for verdict in trace.verdicts if verdict.status == "completed" and verdict.passed is not None]
    if len({verdict.passed for verdict in said}) < 2:
        st.info("The verdicts on this rollout agree: there is nothing to settle.", icon=":material/balance:")
        return
    compared = _side_by_side(said)
    st.subheader("Decide", anchor=False)
    _form(rollout.rollout_id, compared)
    if trace.reviews:
        st.subheader("Decisions so far", anchor=False)
        show_reviews(trace.reviews, trace.verdicts, data.people())
    left, right = st.columns([1.15, 1], gap="large")
    with left:
        st.subheader("Conversation", anchor=False)
        show_conversation(trace, "review")
    with right:
        st.subheader("State: start to end", anchor=False)
        show_diff(data.state_changes(trace), f"review-diff-{rollout.rollout_id}")


def _side_by_side(said: Sequence[data.VerdictTrace]) -> tuple[data.VerdictTrace, data.VerdictTrace]:
    first = next((verdict for verdict in said if verdict.role == "bundle"), said[0])
    others = sorted((v for v in said if v.passed is not first.passed), key=lambda v: (v.planted, v.verifier_kind != "state_diff"))
    left, right = st.columns(2, gap="medium")
    with right:
        n = (
            st.selectbox("Compared with", range(len(others)), format_func=lambda n: verdict_name(others[n]), key="compared")
            if len(others) > 1
            else 0
        )
        show_verdict(others[n or 0], "verdict-right")
    with left:
        if len(others) > 1:
            st.caption("The bundle's own verifier" if first.role == "bundle" else "The first verdict")
        show_verdict(first, "verdict-left")
    return first, others[n or 0]


def _form(rollout_id: str, compared: tuple[data.VerdictTrace, data.VerdictTrace]) -> None:
    notice = st.session_state.pop("decided", None)
    if notice is not None:
        st.success(notice, icon=":material/task_alt:")
    rights = [*compared, None]
    with st.form("decide"):
        left, right = st.columns(2)
        decision = left.radio("What happened", data.DECISIONS, index=None, format_func=lambda value: _MEANING[value], key="decision")
        chosen = right.radio(
            "Which verdict is right", range(len(rights)), index=None, key="right-verdict",
            format_func=lambda n: _said(rights[n]),
        )  # fmt: skip
        reason = st.text_area("Reason", placeholder="what in the evidence shows it", key="reason", max_chars=8000)
        reviewer = st.text_input("Your name", value=st.session_state.get("reviewer-name", ""), key="reviewer", max_chars=120)
        st.caption("The decision is an event and stays; your name is kept apart from it and can be erased.")
        reason, reviewer = reason or "", reviewer or ""
        if not st.form_submit_button("Save the decision", type="primary", icon=":material/gavel:"):
            return
    given = {
        "what happened": decision, "which verdict is right": chosen is not None, "a reason": reason.strip(), "your name": reviewer.strip(),
    }  # fmt: skip
    if decision is None or chosen is None or not all(given.values()):
        st.warning(f"Still needed: {', '.join(name for name, there in given.items() if not there)}.", icon=":material/edit:")
        return
    right_verdict = rights[chosen]
    data.decide(data.Decision(
        rollout_id=rollout_id, verdict_ids=tuple(verdict.verdict_id for verdict in compared), decision=decision,
        right_verdict_id=None if right_verdict is None else right_verdict.verdict_id, reason=reason, reviewer=reviewer,
    ))  # fmt: skip
    st.session_state["reviewer-name"] = reviewer
    st.session_state["decided"] = "The decision is recorded; the trace shows it."
    st.rerun()


def _said(verdict: data.VerdictTrace | None) -> str:
    return "neither" if verdict is None else f"{plain(verdict_name(verdict))}: {'passed' if verdict.passed else 'failed'}"


if __name__ == "__main__":
    run_page(show)
