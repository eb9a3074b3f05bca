"""A small MCP server of the official package: notes with a lock, kept in memory of one session. Serves stdio."""

from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("notes")
NOTES: dict[str, dict[str, Any]] = {}


@server.tool()
def add_note(title: str, text: str) -> str:
    """Add a note; the title must be new."""
    if title in NOTES:
        raise ToolError(f"there is a note {title!r} already")
    NOTES[title] = {"text": text, "locked": False}
    return f"added {title!r}"


@server.tool()
def lock_note(title: str) -> str:
    """Lock a note, which then can be neither changed nor deleted."""
    _note(title)["locked"] = True
    return f"locked {title!r}"


@server.tool()
def delete_note(title: str) -> str:
    """Delete a note that is not locked."""
    if _note(title)["locked"]:
        raise ToolError(f"note {title!r} is locked")
    del NOTES[title]
    return f"deleted {title!r}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_notes() -> dict[str, dict[str, Any]]:
    """All notes by title."""
    return dict(sorted(NOTES.items()))


def _note(title: str) -> dict[str, Any]:
    if title not in NOTES:
        raise ToolError(f"no note {title!r}; there are {', '.join(sorted(NOTES)) or 'none'}")
    return NOTES[title]


if __name__ == "__main__":
    server.run("stdio")
