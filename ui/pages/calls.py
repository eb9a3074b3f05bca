"""Coverage of what was expected, and model calls that belong to no rollout or have no answer."""

from collections.abc import Sequence
from typing import Literal

import pandas as pd
import streamlit as st

from ui import data
from ui.components.clicks import CLICKS, clicked
from ui.opening import run_page


def show() -> None:
    """The page."""
    st.title("Coverage and calls", anchor=False)
    _coverage()
    _calls(
        "unattributed",
        "Unattributed calls",
        "Answered through the gateway without saying which rollout they belong to; kept, never counted.",
    )
    _calls("dangling", "Dangling calls", "The intent is recorded and no answer is: in flight now, or cut off by a crash.")


def _coverage() -> None:
    st.subheader("Coverage", anchor=False)
    choices = data.choices()
    left, right, _ = st.columns([1, 1, 3])
    world = left.selectbox("World", list(choices.world), index=None, placeholder="all", key="coverage-world")
    policy = right.selectbox("Policy", list(choices.policy), index=None, placeholder="all", key="coverage-policy")
    lines = data.coverage(data.Filter(world=world, policy=policy))
    if not lines:
        st.info("No group has been dispatched.", icon=":material/inbox:")
        return
    st.caption("expected = measured + masked + failed + omitted + unknown; extra rollouts are in none of them; success over both counts")
    st.dataframe(
        pd.DataFrame({
            "experiment": [(line.experiment_id or "")[:13] for line in lines], "round": [line.round for line in lines],
            "policy": [line.policy for line in lines], "world": [line.world or "unknown" for line in lines],
            "groups": [line.groups for line in lines], "expected": [line.expected for line in lines],
            "measured": [line.measured for line in lines], "masked": [line.masked for line in lines],
            "failed": [line.failed for line in lines],
            "omitted": [line.omitted for line in lines], "unknown": [line.unknown for line in lines],
            "extra": [line.extra for line in lines], "of measured": [f"{line.succeeded}/{line.measured}" for line in lines],
            "of expected": [f"{line.succeeded}/{line.expected}" for line in lines],
        }),
        hide_index=True, key="coverage-table",
    )  # fmt: skip


def _calls(kind: Literal["unattributed", "dangling"], title: str, meaning: str) -> None:
    total = data.calls(kind).total
    st.subheader(f"{title}: {total:,}", anchor=False)
    st.caption(meaning)
    if not total:
        return
    pages = max(1, -(-total // data.PAGE_SIZE))
    page = st.pagination(pages, key=f"{kind}-page") if pages > 1 else 1
    lines = data.calls(kind, page=min(page, pages)).lines
    chosen = st.dataframe(_frame(lines), hide_index=True, on_select="rerun", selection_mode=CLICKS, key=f"{kind}-table", placeholder="–")
    row = clicked(chosen.selection, len(lines))
    rollout_id = None if row is None else lines[row].rollout_id
    if rollout_id is not None:
        st.switch_page("pages/trace.py", query_params={"rollout": rollout_id})


def _frame(lines: Sequence[data.CallLine]) -> pd.DataFrame:
    return pd.DataFrame({
        "call id": [line.call_id for line in lines], "rollout id": [line.rollout_id or "none" for line in lines],
        "index": [line.index for line in lines], "participant": [line.participant for line in lines], "role": [line.role for line in lines],
        "model": [line.model or "unknown" for line in lines], "status": [line.status or "no answer" for line in lines],
        "error source": [line.error_source for line in lines], "finish reason": [line.finish_reason for line in lines],
        "sampled tokens": pd.array([line.sampled_tokens for line in lines], dtype="Int64"),
        "intent at": pd.array([line.dispatched_position for line in lines], dtype="Int64"),
    })  # fmt: skip


if __name__ == "__main__":
    run_page(show)
