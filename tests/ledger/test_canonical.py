"""Canonical form c1."""

import hashlib
import json
from collections import UserList
from datetime import UTC, datetime
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.canonical import canonical_bytes, digest, parse
from ledger.errors import CanonicalError

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


def test_keys_are_sorted_and_spaces_left_out() -> None:
    assert canonical_bytes({"b": [1, 2.5, None], "a": "é"}) == '{"a":"é","b":[1,2.5,null]}'.encode()
    assert digest({}) == hashlib.sha256(b"{}").hexdigest()


def test_negative_zero_is_zero_before_hashing() -> None:
    assert canonical_bytes([-0.0]) == canonical_bytes([0.0]) == b"[0.0]"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"x": float("nan")}, "nan"), ([float("inf")], "inf"), ({"x": {"y": 2**53 + 1}}, "9007199254740993"), ("a\x00b", "u0000"),
        ({"\x00": 1}, "u0000"), ("\ud800", "surrogate"), ({1: 2}, "int"), (b"x", "bytes"), ({1, 2}, "set"), (10**400, "integer"),
    ],
)  # fmt: skip
def test_what_has_no_canonical_form_is_refused_with_its_value(value: object, told: str) -> None:
    with pytest.raises(CanonicalError, match=told):
        canonical_bytes(value)


def test_nul_is_allowed_only_for_blobs() -> None:
    assert canonical_bytes("a\x00b", allow_nul=True) == b'"a\\u0000b"'


class Name(str):
    """Text of a type of its own."""


@pytest.mark.parametrize(
    "value",
    [
        {Name("b"): Name("x"), "a": (1, [True, 1.5e300])}, [{"a": -0.0, "b": [0.0]}], "\\u0000", [2**53, -(2**53)], "\U0001f600\u2028",
        MappingProxyType({"b": range(3), "a": UserList(["x", None])}),
    ],
)  # fmt: skip
def test_values_of_other_types_are_written_as_those_of_json(value: object) -> None:
    assert canonical_bytes(value) == canonical_bytes(json.loads(canonical_bytes(value)))


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, {"a": [UUID(int=1)]}, {"a": datetime(2026, 1, 1, tzinfo=UTC)}])
def test_what_the_encoder_would_write_by_itself_is_refused_where_text_may_be_foreign_too(value: object) -> None:
    for allow_nul in (False, True):
        with pytest.raises(CanonicalError, match="surrogate|UUID|datetime"):
            canonical_bytes(value, allow_nul=allow_nul)


def test_nesting_without_end_is_refused_and_not_a_crash() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(CanonicalError, match="nested"):
        canonical_bytes(deep)
    with pytest.raises(CanonicalError):
        parse("[" * 100_000)


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"a":NaN}', "[Infinity]", "[-Infinity]", "{", b"\xff"])
def test_parse_refuses_what_the_standard_parser_lets_pass(text: str | bytes) -> None:
    with pytest.raises(CanonicalError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"b":1,"a":[1.5,null]}', {"b": 1, "a": [1.5, None]}), (' { "b" : 1 } ', {"b": 1}), ("123456789012345678901", 123456789012345678901),
        ("-0", 0), ("-0.0", -0.0), ("1E2", 100.0), ('"\\ud800"', "\ud800"), (b'"\xc3\xa9"', "é"), ('"\\u0000"', "\x00"),
    ],
)  # fmt: skip
def test_text_is_read_as_the_standard_parser_reads_it_in_whatever_form(text: str | bytes, value: object) -> None:
    assert repr(parse(text)) == repr(value)
    assert type(parse(text)) is type(value)


@given(values)
def test_parsing_and_writing_again_gives_the_same_bytes(value: object) -> None:
    data = canonical_bytes(value)
    assert canonical_bytes(parse(data)) == data


@given(st.dictionaries(texts, values))
def test_the_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    assert canonical_bytes(dict(reversed(value.items()))) == canonical_bytes(value)
    assert json.loads(canonical_bytes(value)) is not None
