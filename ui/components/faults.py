"""What went wrong, in words that say what to do next."""

import streamlit as st

from ui import data
from ui.components.markup import shown

_REMEDIES: tuple[tuple[type[data.TallyError], str, str], ...] = (
    (
        data.UnknownId,
        "Nothing has this id",
        "Check the address, or begin from the table of rewards: ids may be shortened as long as they stay unique.",
    ),
    (
        data.SchemaMismatch,
        "The database does not fit this release",
        "Bring it to this release with `tally migrate`, or install the release that fits it.",
    ),
    (
        data.LedgerUnavailable,
        "The database cannot be reached",
        "Start it with `make db`, or check `TALLY_DATABASE_URL`, and try again. Nothing that was acknowledged is lost.",
    ),
    (data.SettingsError, "A setting is wrong", "Correct the environment variable and start the pages again."),
)


def show_fault(fault: data.TallyError) -> None:
    """The fault as a title, its own message and what to do; a button that opens the ledger again."""
    title, remedy = next(
        ((title, remedy) for kind, title, remedy in _REMEDIES if isinstance(fault, kind)),
        ("This did not work", "The message below says what was seen and what is allowed."),
    )
    st.error(f"**{title}**", icon=":material/error:")
    st.code(shown(str(fault)), language=None, wrap_lines=True)
    st.markdown(remedy)
    left, right, _ = st.columns([1, 1, 4])
    if left.button("Try again", key="try-again"):
        data.forget()
        st.rerun()
    right.page_link("pages/rewards.py", label="All rewards", icon=":material/trophy:")
