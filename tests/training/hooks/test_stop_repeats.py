"""The same call in a row is made so many times and no more."""

from collections.abc import Sequence
from typing import Any

import pytest

from ledger.errors import MethodError
from tests.training.hooks.passing import CONVERSATION, passed


async def refused(calls: Sequence[tuple[str, str]], **params: Any) -> list[bool]:
    memory: Any = {}
    said = []
    for name, arguments in calls:
        hooked = await passed("stop_repeats", "before_tool", tool={"name": name, "arguments": arguments}, memory=memory, **params)
        memory = hooked.memory
        assert hooked.payload.messages == CONVERSATION and hooked.rewrites == () and hooked.payload.tool is not None
        said.append(hooked.payload.tool.get("error_class") == "repeated_call")
    return said


async def test_the_third_of_the_same_calls_is_refused_and_so_are_those_after_it() -> None:
    assert await refused([("get", "1")] * 4, times=2) == [False, False, True, True]


async def test_another_call_in_between_starts_afresh() -> None:
    assert await refused([("get", "1"), ("get", "2"), ("get", "1"), ("put", "1")] * 2, times=1) == [False] * 8


async def test_other_points_pass_and_no_calls_at_all_are_refused() -> None:
    hooked = await passed("stop_repeats", "after_tool", tool={"name": "get", "arguments": ""}, memory={"call": ["get", ""], "seen": 9})
    assert hooked.payload.tool == {"name": "get", "arguments": ""}
    with pytest.raises(MethodError, match="times is 0; allowed: 1 or more"):
        await refused([("get", "1")], times=0)
