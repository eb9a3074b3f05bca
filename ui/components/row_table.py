"""The training rows of a rollout as a table, and each place where a prompt left a row, both sides beside each other."""

import streamlit as st

from ui.components.markup import chip, escape
from ui.data import Divergence, Excerpt, RowLine, RowsShown

SHOWN = 40
"""Divergences that are shown before the list is clipped."""
_QUIET = ("start", "participant", "parallel")
"""Reasons that are no loss of a prefix."""


def row_table(rows: tuple[RowLine, ...]) -> str:
    """HTML table of rows."""
    names = ("row", "participant", "calls", "tokens", "trained", "opened because", "left row", "at token")
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row))}</tr>" for row in rows)
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<div class="tl"><table class="tl-table"><tr>{head}</tr>{body}</table></div>'


def _cells(row: RowLine) -> list[str]:
    told = row.divergence
    calls = ", ".join(map(str, row.calls))
    reason = chip(row.open_reason.replace("_", " "), "quiet" if row.open_reason in _QUIET else "warn")
    where = ["–", "–"] if told is None else [str(told.left_row), f"{told.at:,}"]
    return [str(row.index), escape(row.participant), calls, f"{row.tokens:,}", f"{row.trained:,}", reason, *where]


def divergence_table(told: Divergence) -> str:
    """HTML of what the row held and what the next prompt held, from the first token that differs on."""
    sides = "".join(f"<td>{_excerpt(side)}</td>" for side in (told.shared, told.held, told.prompt))
    head = "".join(f"<th>{name}</th>" for name in ("both, just before", f"row {told.left_row} held", "the next prompt held"))
    return f'<div class="tl"><table class="tl-table"><tr>{head}</tr><tr>{sides}</tr></table></div>'


def _excerpt(side: Excerpt) -> str:
    if not side.token_ids:
        return "(ends here)"
    ids = f'<div class="tl-label">{escape(" ".join(map(str, side.token_ids)))}</div>'
    return ids if side.text is None else f'<div class="tl-mono">{escape(side.text)}</div>{ids}'


def show_rows(shown: RowsShown) -> None:
    """The table, the divergences and what was counted."""
    if not shown.rows:
        st.caption("No rows: no call of this rollout has token ids.")
    else:
        trained, tokens = sum(row.trained for row in shown.rows), sum(row.tokens for row in shown.rows)
        st.html(f'<div class="tl">{chip(f"{len(shown.rows)} rows")}{chip(f"{trained:,} of {tokens:,} tokens trained")}</div>')
        st.html(row_table(shown.rows))
    left = [row for row in shown.rows if row.divergence is not None]
    for row in left[:SHOWN]:
        assert row.divergence is not None
        by = row.divergence.sampled_by
        who = "a token that nobody sampled" if by is None else f"a token that call {by} sampled"
        st.caption(f"Row {row.index} left row {row.divergence.left_row} at token {row.divergence.at:,}, {who}.")
        st.html(divergence_table(row.divergence))
    if len(left) > SHOWN:
        st.caption(f"{SHOWN} of {len(left)} divergences; `tally rows` prints all.")
    counted = [f"{name} {count}" for name, count in shown.counters.items() if not name.startswith("rows_opened:")]
    counted += [f"sampling: {text}" for text in shown.processed]
    if counted:
        st.html(f'<div class="tl">{"".join(chip(text, "warn") for text in counted)}</div>')
