"""An MCP server written by hand that is defective on purpose, one tool a defect. Speaks stdio; `reply` is used over HTTP too."""

import json
import os
import sys
import time
from base64 import b64encode
from typing import Any

PAGE = 5
ANSWERS: dict[str, Any] = {
    "echo": {"content": [{"type": "text", "text": "hello"}]},
    "refuse": {"content": [{"type": "text", "text": "not today"}], "isError": True},
    "structured": {"content": [], "structuredContent": {"b": 1, "a": [2]}},
    "media": {
        "content": [
            {"type": "text", "text": "look:"},
            {"type": "image", "mimeType": "image/png", "data": b64encode(b"png").decode()},
            {"type": "resource_link", "name": "plan", "uri": "file:///plan.md"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b.bin", "blob": b64encode(b"bin").decode()}},
        ]
    },
    "dotted.name": {"content": [{"type": "text", "text": "dotted"}]},
    "no_content": {"something": "else"},
    "wrong_type": {"content": [{"type": "hologram", "text": "?"}]},
}
FAULTS = {"bad_params": -32602, "internal": -32603}
TOOLS = [*ANSWERS, *FAULTS, "hang", "die", "clock", "garbage"]


def reply(message: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a message, or None for notifications and for what is never answered."""
    if "id" not in message:
        return None
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        info = {"name": "defective", "version": "1"}
        result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        start = int(params.get("cursor") or 0)
        shown = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS[start : start + PAGE]]
        result = {"tools": shown, **({"nextCursor": str(start + PAGE)} if start + PAGE < len(TOOLS) or "--endless" in sys.argv else {})}
    elif method != "tools/call":
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": f"no method {method}"}}
    elif params["name"] in FAULTS:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": FAULTS[params["name"]], "message": "as planned"}}
    elif params["name"] == "hang":
        return None
    else:
        result = ANSWERS.get(params["name"]) or {"content": [{"type": "text", "text": str(time.time_ns())}]}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def main() -> None:
    """Answer lines until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        name = (message.get("params") or {}).get("name")
        if name == "die":
            os._exit(3)
        if name == "garbage":
            print("this is no JSON", flush=True)
            continue
        answer = reply(message)
        if answer is not None:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
