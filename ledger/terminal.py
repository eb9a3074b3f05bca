"""Printing foreign text safely: what a model, a tool or a task wrote cannot move the cursor, recolour or link. Writes to the terminal."""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

# Direction overrides and isolates reorder what is read, line separators break lines, the others are not seen at all.
_HIDDEN = {*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF, 0x061C, *range(0xE0000, 0xE0080)}
_WIDTH_WITHOUT_TERMINAL = 160


def plain(value: Any, *, limit: int | None = None) -> str:
    """`value` as one line of text in which every control, direction or invisible character is written out as an escape.

    Args:
        value: text; anything else is written as JSON, None as `-`.
        limit: characters to keep; more end in `…`.
    """
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    if limit is not None and len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if character == "\\":
        return character
    if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or code in _HIDDEN:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
    return character


def cell(value: Any, style: str = "", *, limit: int | None = None) -> Text:
    """Foreign text for a table or a line: escaped, and never read as markup."""
    return Text(plain(value, limit=limit), style=style)


def console(*, error: bool = False) -> Console:
    """A console on the present standard output or error; wide when that is no terminal, so that ids stay whole."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> Table:
    """A table of foreign values; long ones fold, numbers stand right."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = any(isinstance(row[index], int | float) and not isinstance(row[index], bool) for row in rows)
        made.add_column(column, overflow="fold", justify="right" if numeric else "left")
    for row in rows:
        made.add_row(*(value if isinstance(value, Text) else cell(value) for value in row))
    return made


def bar() -> Progress:
    """A progress bar on standard error that vanishes at the end; silent when that is no terminal."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console(error=True),
        transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip


def print_json(value: Any) -> None:
    """One JSON value on one line, in ASCII, so that no character of it acts on a terminal."""
    sys.stdout.write(json.dumps(value, default=str, allow_nan=False) + "\n")
