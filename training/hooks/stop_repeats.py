"""Refuses a call that was just made several times. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ledger.errors import MethodError
from training.hooks import AskModel, Hooked, Payload, Point
from training.hooks._declared import rewrites

REFUSAL = '{"error": "this call was just made several times and was not made again; do something else"}'


@rewrites(False)
async def stop_repeats(point: Point, payload: Payload, memory: Mapping[str, Any], ask: AskModel, *, times: int = 3) -> Hooked:
    """The call before a tool, refused with the error class `repeated_call` when it came `times` in a row already.

    The same is the same name and the same argument text. The world never sees a refused call.

    Args:
        times: how often the same call may be made in a row, from 1.
    Raises:
        MethodError: `times` is below 1.
    """
    if times < 1:
        raise MethodError(f"times is {times}; allowed: 1 or more")
    if point != "before_tool" or payload.tool is None:
        return Hooked(payload, memory)
    call = [payload.tool["name"], payload.tool["arguments"]]
    seen = int(memory["seen"]) + 1 if memory.get("call") == call else 1
    tool = payload.tool if seen <= times else {**payload.tool, "result": REFUSAL, "error_class": "repeated_call"}
    return Hooked(replace(payload, tool=tool), {"call": call, "seen": seen})
