"""Differences of JSON values: exact paths, and nothing for equal values."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.worlds import Change
from training.worlds.difference import differences, is_within, pointer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_rows_added_removed_and_changed_are_one_change_each_sorted_by_path() -> None:
    before = {"rows": {"b": {"x": 1, "y": 2}, "c": {"x": 1}}}
    after = {"rows": {"a": {"x": 0}, "b": {"x": 1, "y": 3}}}
    assert differences(before, after).changes == (
        Change("/rows/a", None, {"x": 0}), Change("/rows/b/y", 2, 3), Change("/rows/c", {"x": 1}, None),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [(1, 1.0, 0), (True, 1, 1), (False, 0, 1), ("1", 1, 1), (None, 0, 1), ([1, 2], [1, 2, 3], 1), ([], {}, 1), ({"a": None}, {}, 1)],
)
def test_numbers_compare_by_value_and_kinds_stay_apart(before: object, after: object, count: int) -> None:
    assert len(differences(before, after).changes) == count


def test_a_key_with_a_slash_or_tilde_keeps_its_own_path() -> None:
    assert differences({"a/b": {"~": 1}}, {"a/b": {"~": 2}}).changes[0].path == pointer("a/b", "~") == "/a~1b/~0"


def test_a_place_does_not_contain_its_longer_namesake() -> None:
    assert is_within("/outbox/M1/to", "/outbox/M1")
    assert not is_within("/outbox/M10", "/outbox/M1")


@settings(max_examples=60, deadline=None)
@given(JSON, JSON)
def test_a_value_equals_itself_and_swapping_sides_swaps_every_change(left: object, right: object) -> None:
    assert differences(left, left).changes == ()
    forward, backward = differences(left, right).changes, differences(right, left).changes
    assert [(change.path, change.before, change.after) for change in forward] == [(back.path, back.after, back.before) for back in backward]
