"""Which row of a table was clicked, on its box or on any of its cells. Pure."""

from typing import Any, Literal

CLICKS: tuple[Literal["single-row", "single-cell"], ...] = ("single-row", "single-cell")
"""What a table lets the reader select."""


def clicked(selection: Any, lines: int) -> int | None:
    """The 0-based row of a table of `lines` rows that is selected; None when none is, or when the table has shrunk since."""
    rows = [*selection.get("rows", ()), *(cell[0] for cell in selection.get("cells", ()))]
    return rows[0] if rows and 0 <= rows[0] < lines else None
