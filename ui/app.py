"""Tallystick in the browser: rewards, traces, disagreements, verifiers and calls. Start it with `python -m streamlit run ui/app.py`."""

import streamlit as st

from ui import data
from ui.components.faults import show_fault
from ui.components.markup import STYLE, plain
from ui.opening import inside_app


def main() -> None:
    """Run the page that the address asks for, over a ledger that is read up to now."""
    st.set_page_config(page_title="Tallystick", page_icon="🧾", layout="wide")
    st.html(STYLE)
    page = st.navigation(
        [
            st.Page("pages/rewards.py", title="Rewards", icon=":material/trophy:", url_path="rewards", default=True),
            st.Page("pages/trace.py", title="Trace", icon=":material/timeline:", url_path="trace"),
            st.Page("pages/disagreements.py", title="Disagreements", icon=":material/balance:", url_path="disagreements"),
            st.Page("pages/verifiers.py", title="Verifiers", icon=":material/fact_check:", url_path="verifiers"),
            st.Page("pages/calls.py", title="Calls", icon=":material/call_split:", url_path="calls"),
        ],
        position="top",
    )
    try:
        position = data.refresh()
        st.caption(f"Project **{plain(data.opened().project)}** · everything up to position {position:,} is ordered, not sealed")
        with inside_app():
            page.run()
    except data.TallyError as fault:
        show_fault(fault)


if __name__ == "__main__":
    main()
