"""Rewards are joined by id, and sampling that the trainer does not reproduce is named."""

import pytest

from ledger.errors import BatchRefused
from ledger.events import RewardDerived
from training.optimise.joined import joined_rewards, unreproduced

RULE = "a" * 64


def derived(rollout_id: str, value: float | None, *, verdict: str | None = "v", rule: str = RULE, name: str = "") -> RewardDerived:
    return RewardDerived(
        reward_id=name or f"w-{rollout_id}-{verdict}", rollout_id=rollout_id, rule="r", rule_id=rule, verdict_ids=[] if verdict is None else [verdict],
        value=value, reason="", terms={"share": value},
    )  # fmt: skip


def test_rewards_are_joined_by_id_and_not_by_place() -> None:
    # B12: two samples in swapped order.
    scored, ids = joined_rewards(["a", "b"], {"a": "v", "b": "v"}, [derived("b", 0.0), derived("a", 1.0)], rule_id=RULE)
    assert scored.value_R == (1.0, 0.0) and ids == ("w-a-v", "w-b-v") and scored.terms == {"share": (1.0, 0.0)}


def test_only_the_reward_of_the_rule_and_of_the_verdict_that_counts_is_taken() -> None:
    given = [
        derived("a", 0.0, verdict="old"),
        derived("a", 0.25, rule="b" * 64),
        derived("a", 1.0, verdict="new"),
        derived("b", None, verdict=None),
    ]
    assert joined_rewards(["a", "b"], {"a": "new", "b": None}, given, rule_id=RULE)[0].value_R == (1.0, None)


def test_two_rewards_that_differ_for_one_rollout_are_refused() -> None:
    # F3 of the golden fixtures: sibling rewards 2 and 6.
    with pytest.raises(BatchRefused, match=r"rewards 2\.0 and 6\.0"):
        joined_rewards(["a"], {"a": "v"}, [derived("a", 2.0), derived("a", 6.0, name="other")], rule_id=RULE)


def test_a_rollout_without_a_reward_event_is_refused() -> None:
    with pytest.raises(BatchRefused, match="1 of 2 rollouts have no reward yet, the first b"):
        joined_rewards(["a", "b"], {"a": "v", "b": "v"}, [derived("a", 2.0)], rule_id=RULE)


@pytest.mark.parametrize(
    ("processed", "temperature", "how"),
    [
        ((), 1.0, None),
        (("temperature 0.7 (processed_logprobs)",), 0.7, None),
        (("temperature 0.7 (raw_logprobs)",), 0.7, "temperature 0.7 (raw_logprobs)"),
        (("temperature 0.7 (processed_logprobs)",), 1.0, "temperature 0.7 (processed_logprobs)"),
        ((), 0.7, "temperature 1"),
        (
            ("temperature 0.7 (processed_logprobs)", "top_p 0.9 (processed_logprobs)"),
            0.7,
            "temperature 0.7 (processed_logprobs), top_p 0.9 (processed_logprobs)",
        ),
    ],
)
def test_sampling_other_than_by_the_trainers_temperature_is_named(processed: tuple[str, ...], temperature: float, how: str | None) -> None:
    # F9: with a nucleus, exp(trainer - engine) is the kept mass for every token.
    assert unreproduced(["r"], [processed], temperature=temperature) == ({} if how is None else {"r": how})
