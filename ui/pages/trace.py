"""One reward or rollout, traced back to the sampled tokens: `?reward=<id>` or `?rollout=<id>`, shortened ids included."""

from collections.abc import Mapping
from typing import Literal

import streamlit as st

from ui import data
from ui.components.conversation import show_conversation
from ui.components.markup import Markup, chip, details, escape, facts, outcome_tone, plain
from ui.components.row_table import show_rows
from ui.components.state_diff import show_diff
from ui.components.token_strip import SIGNALS, show_tokens
from ui.components.verdict_cards import check_table, show_reviews, show_verdict
from ui.opening import run_page


def show() -> None:
    """The page."""
    asked = _asked()
    if asked is None:
        _ask()
        return
    trace = data.trace(*asked)
    _header(trace)
    failed = sum(not check.passed for check in trace.checks)
    checks = f"{len(trace.checks)} checks" + (f", {failed} fail" if failed else "")
    names = ["Conversation and verdicts", "Tokens", "Training rows", f"Integrity: {checks}", "Ids and neighbours"]
    story, tokens, rows, integrity, place = st.tabs(names)
    with story:
        left, right = st.columns([1.15, 1], gap="large")
        with left:
            show_conversation(trace, "said")
        with right:
            _judged(trace)
    with tokens:
        _tokens(trace)
    with rows:
        _rows(trace)
    with integrity:
        st.html(check_table(trace.checks))
    with place:
        _place(trace)


def _asked() -> tuple[Literal["reward", "rollout"], str] | None:
    nouns: tuple[Literal["reward", "rollout"], ...] = ("reward", "rollout")
    for noun in nouns:
        if st.query_params.get(noun, "").strip():
            return noun, st.query_params[noun]
    return None


def _ask() -> None:
    st.title("Trace", anchor=False)
    st.markdown("From a reward back to the tokens that were sampled. Open one from the table of rewards, or give its id.")
    with st.form("open", width=640):
        noun = st.radio("What", ("reward", "rollout"), horizontal=True)
        ident = st.text_input("Id", placeholder="the whole id or its beginning")
        if st.form_submit_button("Open", type="primary") and ident.strip():
            st.switch_page("pages/trace.py", query_params={str(noun): ident.strip()})
    st.page_link("pages/rewards.py", label="All rewards", icon=":material/trophy:")


def _header(trace: data.Trace) -> None:
    rollout, bundle, group = trace.rollout, trace.bundle, trace.group
    title, download = st.columns([4, 1], vertical_alignment="center")
    title.title(plain(bundle.name if bundle else f"rollout {rollout.rollout_id[:12]}"), anchor=False)
    download.download_button(
        "Raw JSON", lambda: data.trace_json(trace), file_name=f"{trace.node}.json", mime="application/json",
        icon=":material/download:", on_click="ignore", width="stretch",
    )  # fmt: skip
    reward = trace.reward or (trace.rewards[-1] if trace.rewards else None)
    value = "not derived" if reward is None else "missing" if reward.value is None else f"{reward.value:g}"
    tone = "quiet" if reward is None or reward.value is None else "good" if reward.value > 0 else "bad"
    marks = chip(f"reward {value}", tone) + chip(rollout.outcome.replace("_", " "), outcome_tone(rollout.outcome))
    marks += chip("every check holds", "good") if trace.intact else chip("a check fails: see below", "bad")
    marks += chip("superseded: not counted", "warn") if rollout.superseded else ""
    marks += chip("not ordered yet" if rollout.position is None else f"ordered at {rollout.position:,}, not sealed")
    why = "" if reward is None else f"{escape(reward.reason)} · rule <b>{escape(reward.rule)}</b>"
    st.html(f'<div class="tl">{marks}<span>{why}</span></div>')
    agents = ", ".join(str(item.get("model_version") or item.get("name")) for item in rollout.participants)
    st.html(facts({
        "ended by": rollout.ended_by or "running", "why it ended": rollout.reason or "–", "boundary": rollout.boundary or "–",
        "policy": group.policy if group else "–", "model version": agents or "–", "world": bundle.world if bundle else "–",
        "split": bundle.split if bundle else "–", "slot": f"{rollout.slot}" + (f" of {group.size}" if group else ""),
        "attempt": rollout.attempt, "kind": rollout.rollout_kind, "seed": rollout.seed,
        "sampling": "–" if rollout.sampling_s is None else f"{rollout.sampling_s:.2f} s",
        "tools": "–" if rollout.tool_s is None else f"{rollout.tool_s:.2f} s",
        "terms": Markup(_terms(reward.terms)) if reward and reward.terms else "–",
    }))  # fmt: skip
    if rollout.detail:
        st.html(f'<div class="tl">{details("detail of the end", str(rollout.detail))}</div>')


def _terms(terms: Mapping[str, float | None]) -> str:
    return " ".join(chip(f"{name} = {'missing' if value is None else f'{value:.4g}'}") for name, value in terms.items())


def _place(trace: data.Trace) -> None:
    rollout = trace.rollout
    named = {
        "reward": trace.rewards[-1].reward_id if trace.rewards else None,
        "rollout": rollout.rollout_id,
        "group": rollout.group_id,
        "bundle": rollout.bundle_id,
    }
    if trace.group is not None:
        named |= {"run": trace.group.run_id, "experiment": trace.group.experiment_id}
    st.code("\n".join(f"{name:11}{value}" for name, value in named.items() if value), language=None, wrap_lines=True)
    others = [line for line in data.group_rollouts(rollout.group_id) if line.rollout_id != rollout.rollout_id]
    st.markdown(f"**{len(others)} other rollouts of this group**" if others else "The only rollout of its group.")
    for line in others:
        reward = "no reward" if line.reward is None else f"reward {line.reward:g}"
        label = f"slot {line.slot}, attempt {line.attempt}: {line.outcome.replace('_', ' ')}, {reward}"
        st.page_link("pages/trace.py", label=plain(label), icon=":material/timeline:", query_params={"rollout": line.rollout_id})


def _judged(trace: data.Trace) -> None:
    st.subheader("Verdicts", anchor=False)
    if not trace.verdicts:
        st.caption("Nobody has judged this rollout.")
    said = {verdict.passed for verdict in trace.verdicts if verdict.passed is not None}
    if len(said) == 2:
        st.page_link(
            "pages/disagreements.py", label="The verifiers disagree: review", icon=":material/balance:",
            query_params={"rollout": trace.rollout.rollout_id},
        )  # fmt: skip
    if trace.reviews:
        show_reviews(trace.reviews, trace.verdicts, data.people())
    ordered = sorted(trace.verdicts, key=lambda verdict: (verdict.role != "bundle", verdict.planted))
    for n, verdict in enumerate(verdict for verdict in ordered if not verdict.planted):
        show_verdict(verdict, f"verdict-{n}")
    planted = [verdict for verdict in ordered if verdict.planted]
    if planted:
        wrong = sum(verdict.passed is not ordered[0].passed for verdict in planted)
        with st.expander(f"{len(planted)} planted verifiers, each with a gap on purpose: {wrong} of them contradict the first"):
            for n, verdict in enumerate(planted):
                show_verdict(verdict, f"planted-{n}")
    st.subheader("State: start to end", anchor=False)
    show_diff(data.state_changes(trace), f"diff-{trace.rollout.rollout_id}")


def _tokens(trace: data.Trace) -> None:
    if not trace.calls:
        st.caption("No model call was recorded.")
        return
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    labels = [f"{call.index} · {call.role}" for call in trace.calls]
    chosen = left.selectbox("Model call", range(len(labels)), format_func=lambda n: f"{labels[n]} · {_size(trace.calls[n])}", key="call")
    signal = right.selectbox("Colour by", SIGNALS, key="signal")
    call = trace.calls[chosen or 0]
    versions = call.model_versions or tuple(model.model_version for model in trace.models[:1])
    show_tokens(call, data.decoder(versions[0]) if versions and call.sampled_ids is not None else None, str(signal))


def _rows(trace: data.Trace) -> None:
    try:
        show_rows(data.rows(trace.rollout.rollout_id))
    except data.TallyError as fault:
        st.html(f'<div class="tl">{chip("rows cannot be built", "bad")}{escape(fault)}</div>')


def _size(call: data.CallTrace) -> str:
    return "no tokens" if call.sampled_ids is None else f"{len(call.sampled_ids)} tokens"


if __name__ == "__main__":
    run_page(show)
