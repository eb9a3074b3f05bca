"""Where the state at the end differs from the state at the start, as a table."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from ui.components.markup import as_json, chip, details, escape
from ui.data import StateChange

SHOWN = 60
"""Places that are shown before the table is clipped."""
_TONES = {"added": "good", "removed": "bad", "changed": "warn"}


def diff_table(changes: Sequence[StateChange]) -> str:
    """HTML table of changes: kind, place, before, after."""
    rows = [
        f"<tr><td>{chip(change.kind, _TONES[change.kind])}</td><td><code>{escape(change.path or '(everything)')}</code></td>"
        f"<td>{_value(change.before, change.kind == 'added')}</td><td>{_value(change.after, change.kind == 'removed')}</td></tr>"
        for change in changes
    ]
    head = '<tr><th style="width:5.2rem">change</th><th style="width:32%">place</th><th>before</th><th>after</th></tr>'
    return f'<div class="tl"><table class="tl-table">{head}{"".join(rows)}</table></div>'


def _value(value: Any, absent: bool) -> str:
    if absent:
        return "–"
    text = (
        as_json(value, limit=8000)
        if isinstance(value, dict | list)
        else as_json(value)
        if isinstance(value, str)
        else as_json([value])[1:-1].strip()
    )
    return escape(text) if len(text) <= 90 else details(f"{text[:60].splitlines()[0]} …", text)


def show_diff(changes: Sequence[StateChange] | None, key: str) -> None:
    """The table with its counts, or why there is none."""
    if changes is None:
        st.caption("Fewer than two readable states were recorded.")
        return
    if not changes:
        st.caption("The end state equals the start state.")
        return
    counts = {kind: sum(change.kind == kind for change in changes) for kind in _TONES}
    st.html(f'<div class="tl">{"".join(chip(f"{number} {kind}", _TONES[kind]) for kind, number in counts.items() if number)}</div>')
    whole = len(changes) <= SHOWN or st.session_state.get(key, False)
    st.html(diff_table(changes if whole else changes[:SHOWN]))
    if len(changes) > SHOWN:
        st.toggle(f"Show all {len(changes):,} changes", key=key)
