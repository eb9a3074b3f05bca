"""The rule language: its JSON form, and what makes a family."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.canonical import canonical_bytes, parse
from ledger.errors import BundleError
from training.worlds.ticket_desk.constants import TAGS, drawn
from training.worlds.ticket_desk.rules import (
    BOUNDS,
    CLOCKS,
    CONTACTS,
    ORDERS,
    UNITS,
    ZONES,
    AddTag,
    Age,
    All,
    AnyOf,
    Away,
    Cap,
    Cooldown,
    HandTo,
    Load,
    Mail,
    MonthEnd,
    Not,
    Priority,
    Reminded,
    Rule,
    SetNote,
    SetPriority,
    SetReminded,
    SetStatus,
    Status,
    Tagged,
    Team,
    Tier,
    family_id,
    rule_json,
    rule_of,
)  # fmt: skip
from training.worlds.ticket_desk.state import PRIORITIES, STATUSES

SEVERAL_PRIORITIES = st.lists(st.sampled_from(PRIORITIES), min_size=1, max_size=3, unique=True).map(lambda values: tuple(sorted(values)))
LEAVES = st.one_of(
    st.builds(Priority, SEVERAL_PRIORITIES), st.builds(Status, st.sampled_from(STATUSES).map(lambda value: (value,))),
    st.builds(Tagged, st.sampled_from(TAGS)), st.builds(Team, st.just("Billing")), st.just(Away()), st.just(Reminded()),
    st.builds(Age, st.sampled_from(CLOCKS), st.sampled_from(UNITS), st.sampled_from(ZONES), st.sampled_from(BOUNDS), st.sampled_from((2, 7, 14))),
    st.builds(MonthEnd, st.sampled_from(("earlier_month", "last_day")), st.sampled_from(ZONES)),
    st.builds(Load, st.sampled_from(("over", "at_least")), st.integers(1, 9)),
)  # fmt: skip
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(lambda kind, of: kind(tuple(of)), st.sampled_from((All, AnyOf)), st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)
STEPS = st.lists(
    st.one_of(
        st.builds(Mail, st.sampled_from(CONTACTS)), st.just(SetReminded()), st.builds(SetStatus, st.sampled_from(STATUSES)),
        st.builds(SetPriority, st.sampled_from(PRIORITIES)), st.builds(HandTo, st.sampled_from(CONTACTS[1:])),
        st.builds(AddTag, st.sampled_from(TAGS)), st.builds(SetNote, st.just("handed on")),
    ), min_size=1, max_size=3,
).map(tuple)  # fmt: skip
RULES = st.builds(
    Rule, CONDITIONS, st.none() | CONDITIONS, st.none() | st.builds(Cooldown, st.sampled_from(("under", "at_most")), st.integers(1, 99)),
    STEPS, st.lists(st.builds(Tier, CONDITIONS, STEPS), max_size=2).map(tuple),
    st.none() | st.builds(Cap, st.sampled_from(ORDERS), st.integers(1, 3)), st.booleans(),
)  # fmt: skip
PLAIN = Rule(
    All((Priority(("P1",)), Age("opened", "elapsed", "desk", "over", 7))), Tagged("hold"), Cooldown("under", 24), (Mail("owner"),), (), None, False
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(RULES)
def test_a_rule_comes_back_from_its_json_as_it_was(rule: Rule) -> None:
    assert rule_of(parse(canonical_bytes(rule_json(rule)))) == rule


@settings(max_examples=60, deadline=None)
@given(RULES, st.integers(0, 999))
def test_other_constants_and_another_order_of_conditions_make_no_other_family(rule: Rule, seed: int) -> None:
    assert family_id(drawn(rule, Random(seed))) == family_id(rule)
    if isinstance(rule.when, All | AnyOf):
        assert family_id(replace(rule, when=type(rule.when)(rule.when.of[::-1]))) == family_id(rule)


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAIN, unless=None),
        replace(PLAIN, digest=True),
        replace(PLAIN, cooldown=Cooldown("at_most", 24)),
        replace(PLAIN, steps=(Mail("manager"),)),
        replace(PLAIN, when=All((Priority(("P1",)), Age("opened", "calendar", "desk", "over", 7)))),
        replace(PLAIN, when=AnyOf((Priority(("P1",)), Age("opened", "elapsed", "desk", "over", 7)))),
    ],
)
def test_another_tree_is_another_family(other: Rule) -> None:
    assert family_id(other) != family_id(PLAIN)


def changed(path: tuple[Any, ...], value: Any) -> Any:
    written = rule_json(PLAIN)
    place: Any = written
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return written


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "rule is None"),
        (changed(("kind",), "Law"), "rule.kind is 'Law'; allowed: Priority"),
        (changed(("when", "of", 1, "bound"), "about"), r"rule.when.of\[1\].bound is 'about'; allowed: over, at_least, under, at_most"),
        (changed(("when", "of", 1, "limit"), 0), "limit is 0; allowed: a whole number from 1"),
        (changed(("when", "of", 1, "limit"), True), "limit is True"),
        (changed(("when", "of", 0, "values"), ["P9"]), "P9"),
        (changed(("when", "of"), []), "a list that is not empty"),
        (changed(("unless", "tag"), ""), "tag is ''"),
        (changed(("steps",), [{"kind": "Away"}]), r"rule.steps\[0\] is Away; allowed: Mail"),
        (changed(("digest",), None), "digest is NoneType; allowed: bool"),
        (changed(("surplus",), 1), "surplus"),
        ({"kind": "Away"}, "rule is of kind Away"),
    ],
)
def test_a_value_that_is_no_rule_is_refused_by_name(value: Any, told: str) -> None:
    with pytest.raises(BundleError, match=told):
        rule_of(value)


def test_drawn_constants_stay_apart_and_in_order() -> None:
    rule = replace(
        PLAIN, when=All((Priority(("P1",)), Tagged("parts"), Age("opened", "elapsed", "desk", "over", 7))),
        tiers=(Tier(Age("opened", "elapsed", "desk", "over", 14), (SetPriority("P2"), AddTag("chased"))),),
    )  # fmt: skip
    for seed in range(40):
        other = drawn(rule, Random(seed))
        first, tag, age = other.when.of  # type: ignore[union-attr]
        (tier,) = other.tiers
        assert tier.when.limit > age.limit  # type: ignore[union-attr]
        assert tier.steps[0].value not in first.values  # type: ignore[union-attr]
        assert len({tag.tag, other.unless.tag, tier.steps[1].tag}) == 3  # type: ignore[union-attr]
