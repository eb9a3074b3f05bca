"""Families: many, stable, and told apart by the end states that their rules lead to."""

from itertools import combinations, islice

from training.worlds.ticket_desk.families import families, families_at, shared_states, signature
from training.worlds.ticket_desk.levels import LEVELS, level_of
from training.worlds.ticket_desk.masks import Rows
from training.worlds.ticket_desk.meaning import facts_of, outcome, plan
from training.worlds.ticket_desk.mutants import broken
from training.worlds.ticket_desk.rules import Rule, family_id


def test_there_are_more_than_three_hundred_families_with_ids_of_their_trees() -> None:
    known = families()
    assert len(known) >= 300
    assert len({family.family_id for family in known}) == len(known)
    assert all(family.family_id == family_id(family.rule) and family.level == level_of(family.rule) for family in known)


def test_any_two_families_end_differently_on_some_shared_state() -> None:
    told = [signature(family.rule) for family in families()]
    assert all(told)
    assert len(set(told)) == len(told)


def ends(rule: Rule) -> list[object]:
    """What is done on each shared state, without the masks that `signature` works with."""
    return [
        ([(duty.ticket_id, duty.mails, sorted(duty.fields.items())) for duty in plan(rule, state)], rule.digest)
        for state in shared_states()
    ]


def test_what_a_signature_says_apart_is_apart_when_the_rules_are_followed() -> None:
    sample = families()[::11]
    for one, two in islice(combinations(sample, 2), 0, None, 3):
        assert ends(one.rule) != ends(two.rule), (one, two)


def test_conditions_over_many_rows_agree_with_one_row_at_a_time() -> None:
    rows = [(ticket, facts) for state in shared_states()[:3] for facts in [facts_of(state)] for ticket in state.tickets]
    for family in families()[::23]:
        masks = Rows(rows).outcomes(family.rule)
        for place, (ticket, facts) in enumerate(rows):
            tiers = [tier for tier, mask in enumerate(masks, start=-1) if mask >> place & 1]
            expected = outcome(family.rule, ticket, facts)
            assert tiers == ([] if expected is None else [expected])


def test_doing_what_the_rule_asks_for_breaks_nothing_and_doing_nothing_breaks_something() -> None:
    for family in families()[::17]:
        state = next(state for state in shared_states() if plan(family.rule, state))
        assert broken(family.rule, state, plan(family.rule, state)) == []
    assert any(broken(family.rule, state, ()) for family in families()[:5] for state in shared_states())


def test_every_level_has_more_families_than_the_one_below() -> None:
    sizes = [len(families_at(level)) for level in range(len(LEVELS))]
    assert sizes[0] >= 20
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(families())
