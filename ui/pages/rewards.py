"""The table of rewards, with the counts that it must be read against."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from ui import data
from ui.components.clicks import CLICKS, clicked
from ui.components.markup import chip, outcome_tone, plain
from ui.opening import run_page

_FILTERS = ("world", "policy", "outcome", "ended_by", "experiment_id", "run_id")
_LABELS = {"ended_by": "Ended by", "experiment_id": "Experiment", "run_id": "Run"}


def show() -> None:
    """The page."""
    st.title("Rewards", anchor=False)
    where, text = _filters(data.choices())
    found = data.summary(where)
    if found is None:
        _nothing(where != data.Filter())
        return
    _counts(found, data.missing(where))
    total = data.rewards(where, text).total
    pages = max(1, -(-total // data.PAGE_SIZE))
    head, pager = st.columns([3, 2], vertical_alignment="bottom")
    with pager:
        page = st.pagination(pages, key="rewards-page") if pages > 1 else 1
    lines = data.rewards(where, text, page=min(page, pages)).lines
    searched = f", searched in the newest {data.SEARCHED:,}" if text.strip() else ""
    head.markdown(f"**{total:,} rewards**, newest first{searched} · click a row to open its trace")
    if lines:
        _table(lines)
    else:
        st.info("No reward fits.", icon=":material/filter_alt_off:")


def _filters(choices: data.Choices) -> tuple[data.Filter, str]:
    asked: dict[str, str | None] = {}
    columns = st.columns([1, 1, 1, 1, 1, 1, 1.4])
    for column, name in zip(columns, _FILTERS, strict=False):
        label = _LABELS.get(name, name.capitalize())
        options = list(getattr(choices, name))
        short = (lambda value: f"{value[:13]}…") if name.endswith("_id") else str
        asked[name] = column.selectbox(label, options, index=None, placeholder="all", key=f"filter-{name}", format_func=short)
    text = columns[-1].text_input("Text", placeholder="id, task, reason…", key="filter-text") or ""
    return data.Filter(**asked), text  # type: ignore[arg-type]


def _nothing(filtered: bool) -> None:
    if filtered:
        st.info("No rollout fits these filters.", icon=":material/filter_alt_off:")
        return
    st.info("The ledger is empty: no rollout has been collected yet.", icon=":material/inbox:")
    st.markdown("`make demo` collects, judges and rewards a first set of rollouts; this page fills while it runs.")


def _counts(found: data.OutcomeSummary, missing: Sequence[data.MissingRewards]) -> None:
    counts, ended = found.counts, found.rollouts - found.counts["running"]
    share = "–" if found.success_rate is None else f"{100 * found.success_rate:.1f} %"
    mean = "–" if found.mean_reward is None else f"{found.mean_reward:.3f}"
    boxes = st.columns(5)
    boxes[0].metric("Succeeded of judged", f"{counts['succeeded']} / {found.judged}", help="Rollouts that are evidence about the policy.")
    of_all = f"{counts['succeeded']} / {found.rollouts}"
    boxes[1].metric("Success rate", share, help=f"Succeeded / judged; of all, faults and undecided rollouts included, {of_all}.")
    boxes[2].metric("Mean reward", mean, help=f"Over the {found.rewards} rollouts whose reward has a value; missing is not zero.")
    boxes[3].metric("Rewards with a value", f"{found.rewards} / {ended}", help="Of all ended rollouts that count.")
    boxes[4].metric("Faults", f"{found.faults} / {found.rollouts}", help="Something other than the policy broke.")
    chips = [chip(f"{outcome.replace('_', ' ')} {number}", outcome_tone(outcome)) for outcome, number in counts.items() if number]
    chips += [chip(f"superseded, not counted {found.superseded}")] if found.superseded else []
    st.html(f'<div class="tl"><b>Outcomes</b> of {found.rollouts} counted rollouts: {"".join(chips)}</div>')
    without = sum(item.count for item in missing)
    if without:
        reasons = [chip(f"{item.count} × {item.reason} ({item.outcome.replace('_', ' ')})", "warn") for item in missing]
        st.html(f'<div class="tl"><b>{without} without a number</b>: {"".join(reasons)}</div>')


def _table(lines: Sequence[data.RewardLine]) -> None:
    frame = pd.DataFrame({
        "reward": pd.array([line.value for line in lines], dtype="Float64"),
        "outcome": [line.rollout.outcome.replace("_", " ") for line in lines],
        "why": [line.reason for line in lines],
        "task": [line.rollout.bundle or line.rollout.bundle_id[:12] for line in lines],
        "world": [line.rollout.world or "unknown" for line in lines],
        "policy": [line.rollout.policy or "unknown" for line in lines],
        "ended by": [line.rollout.ended_by or "running" for line in lines],
        "calls": [line.rollout.model_calls for line in lines],
        "tools": [line.rollout.tool_calls for line in lines],
        "tokens": pd.array([line.rollout.sampled_tokens or None for line in lines], dtype="Int64"),
        "attempt": [line.rollout.attempt for line in lines],
        "position": [line.position for line in lines],
        "reward id": [line.reward_id for line in lines],
    })  # fmt: skip
    chosen = st.dataframe(
        frame, hide_index=True, on_select="rerun", selection_mode=CLICKS, key="rewards-table", placeholder="missing",
        height=min(38 + 35 * len(lines), 1800),
        column_config={
            "reward": st.column_config.NumberColumn(format="%.2f", width="small"),
            "calls": st.column_config.NumberColumn(help="model calls", width="small"),
            "tools": st.column_config.NumberColumn(help="tool calls", width="small"),
            "tokens": st.column_config.NumberColumn(help="sampled tokens", width="small"),
            "attempt": st.column_config.NumberColumn(width="small"),
            "position": st.column_config.NumberColumn(help="ordered, not sealed", width="small"),
        },
    )  # fmt: skip
    row = clicked(chosen.selection, len(lines))
    if row is not None:
        st.switch_page("pages/trace.py", query_params={"reward": lines[row].reward_id})
    newest = lines[0]
    st.page_link(
        "pages/trace.py", label=f"Open the newest: {plain(newest.rollout.bundle or newest.reward_id[:12])}", icon=":material/timeline:",
        query_params={"reward": newest.reward_id},
    )  # fmt: skip


if __name__ == "__main__":
    run_page(show)
