"""Verifier versions with what their audits found; `?verifier=<id>` opens the datasheet of one."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from ui import data
from ui.components.clicks import CLICKS, clicked
from ui.components.markup import plain
from ui.opening import run_page


def show() -> None:
    """The page."""
    asked = st.query_params.get("verifier", "").strip()
    if asked:
        _one(asked)
    else:
        _all()


def _all() -> None:
    st.title("Verifiers", anchor=False)
    lines = data.verifiers()
    if not lines:
        st.info("No verifier is registered. They are when tasks are sealed or audited.", icon=":material/fact_check:")
        return
    st.caption("click a row for its datasheet; a version without numbers was never audited: `tally audit verifier NAME`")
    chosen = st.dataframe(
        pd.DataFrame({
            "verifier": [line.name for line in lines], "kind": [line.kind for line in lines],
            "kill score": pd.array([line.kill_score for line in lines], dtype="Float64"),
            "false positives": [_rate(line.false_positive_rate) for line in lines],
            "false negatives": [_rate(line.false_negative_rate) for line in lines],
            "gaps": pd.array([line.gaps for line in lines], dtype="Int64"),
            "counterexamples to decide": [line.open_counterexamples for line in lines],
            "version": [line.verifier_id for line in lines],
        }),
        hide_index=True, on_select="rerun", selection_mode=CLICKS, key="verifiers-table", placeholder="not audited",
    )  # fmt: skip
    row = clicked(chosen.selection, len(lines))
    if row is not None:
        st.switch_page("pages/verifiers.py", query_params={"verifier": lines[row].verifier_id})


def _one(verifier_id: str) -> None:
    st.page_link("pages/verifiers.py", label="All verifiers", icon=":material/arrow_back:")
    name, sheet = data.verifier_datasheet(verifier_id)
    st.title(plain(name), anchor=False)
    if sheet is None:
        st.info(f"This version was never audited. Try: tally audit verifier {plain(name)}", icon=":material/fact_check:")
        return
    st.caption(f"version {plain(sheet['verifier_id'])} · {sheet['tasks']} tasks, seed {sheet['seed']}, read up to {sheet['position']}")
    left, middle, right = st.columns(3)
    left.metric("Kill score", "–" if sheet["kill_score"] is None else f"{sheet['kill_score']:.4f}", help="share of mutants rejected")
    middle.metric("False positives", _rate(sheet["false_positive_rate"]))
    right.metric("False negatives", _rate(sheet["false_negative_rate"]))
    _table("Checks", sheet["checks"], ("check_id", "status", "reason", "remedy"))
    _table("Known gaps", sheet["gaps"], ("kind", "wrongly", "count", "of", "task"))
    _table("Counterexamples", sheet["counterexamples"], ("id", "state", "kind", "task", "label", "found_in"))
    lineage = sheet["label_lineage"]
    _table("Label lineage", lineage["trials"], ("labelled_by", "sort", "ends"))
    st.caption(
        f"recorded rollouts that people judged too: {lineage['people']}; pairs with programs: {lineage['programs']},"
        f" with judges: {lineage['judges']}"
    )
    _table("Agreement", sheet["agreement"], ("other", "other_kind", "rollouts", "share", "kappa", "only_this", "only_other"))
    _table("Calibration: where it says this, people pass", sheet["calibration"], ("said", "value", "low", "high", "n", "method"))
    st.caption(plain(sheet["calibration_note"]))
    st.subheader("Again", anchor=False)
    st.code(sheet["command"], language="bash")


def _table(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    if rows:
        st.subheader(title, anchor=False)
        names = [column.replace("_", " ") for column in columns]
        st.dataframe(pd.DataFrame([[row[column] for column in columns] for row in rows], columns=names), hide_index=True, placeholder="–")


def _rate(estimate: Mapping[str, Any] | None) -> str | None:
    if estimate is None or estimate["value"] is None:
        return None
    interval = "" if estimate["low"] is None else f" [{estimate['low']:.3f}, {estimate['high']:.3f}]"
    return f"{estimate['value']:.3f}{interval}"


if __name__ == "__main__":
    run_page(show)
