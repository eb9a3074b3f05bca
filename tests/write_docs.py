"""Writes docs/commands.md from the commands themselves: `python -m tests.write_docs`."""

from pathlib import Path

import typer.main
from typer.testing import CliRunner

from ledger import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"


def commands_page() -> str:
    """The page: every command with its help, as `tally … --help` prints it."""
    cli.load_all()
    group = typer.main.get_command(cli.app)
    lines = ["# Commands", "", "Written by `make docs` from the commands themselves; every command takes `--help`.", ""]
    for path in _paths(group, ()):
        shown = CliRunner().invoke(cli.app, [*path, "--help"], env={"COLUMNS": "120", "TERM": "dumb"}, prog_name="tally").output
        lines += [f"## {' '.join(('tally', *path))}", "", "```", *(line.rstrip() for line in shown.strip().splitlines()), "```", ""]
    return "\n".join(lines)


def _paths(command: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = [path]
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        found += _paths(inner, (*path, name))
    return found


if __name__ == "__main__":
    PAGE.write_text(commands_page())
