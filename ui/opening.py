"""Runs pages inside the app, also the one that a fresh server is asked for before the app itself has run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_INSIDE = ContextVar("inside_the_app", default=False)


@contextmanager
def inside_app() -> Iterator[None]:
    """While this is open, a page script shows its page and nothing around it."""
    token = _INSIDE.set(True)
    try:
        yield
    finally:
        _INSIDE.reset(token)


def run_page(show: Callable[[], None]) -> None:
    """Show a page inside the app.

    Until the app has run once, Streamlit takes every file in `pages` for a page of its own and runs a deep link to it bare; the app is
    then run from the page, and takes over.
    """
    if _INSIDE.get():
        show()
        return
    from ui.app import main

    main()
