"""Joins rewards to rollouts by id, never by position, and says whose sampling the trainer does not reproduce. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from ledger.errors import BatchRefused
from ledger.events import RewardDerived
from training.rewards import Scored


def joined_rewards(
    rollout_ids: Sequence[str], verdict_of: Mapping[str, str | None], derived: Iterable[RewardDerived], *, rule_id: str
) -> tuple[Scored, tuple[str | None, ...]]:
    """The reward of each rollout with its id: the one derived by the rule from the verdict that counts.

    Args:
        rollout_ids: along R.
        verdict_of: rollout id to the id of its counting verdict.
        derived: rewards in any order, of other rules and verdicts too.
        rule_id: the rule.
    Raises:
        BatchRefused: a rollout has no such reward, or two that differ.
    """
    found: dict[str, RewardDerived] = {}
    for body in derived:
        verdict_id = verdict_of.get(body.rollout_id)
        if body.rollout_id not in verdict_of or body.rule_id != rule_id or body.verdict_ids != ([] if verdict_id is None else [verdict_id]):
            continue
        first = found.setdefault(body.rollout_id, body)
        if first.value != body.value:
            raise BatchRefused(f"rollout {body.rollout_id} has rewards {first.value} and {body.value} of one rule; allowed: one value")
    missing = [rollout_id for rollout_id in rollout_ids if rollout_id not in found]
    if missing:
        raise BatchRefused(
            f"{len(missing)} of {len(rollout_ids)} rollouts have no reward yet, the first {missing[0]}; allowed: one each, or null"
        )
    bodies = [found[rollout_id] for rollout_id in rollout_ids]
    names = dict.fromkeys(name for body in bodies for name in body.terms)
    scored = Scored(
        tuple(body.value for body in bodies), tuple(body.reason for body in bodies),
        {name: tuple(body.terms.get(name) for body in bodies) for name in names},
    )  # fmt: skip
    return scored, tuple(body.reward_id for body in bodies)


def unreproduced(rollout_ids: Sequence[str], processed_R: Sequence[tuple[str, ...]], *, temperature: float) -> dict[str, str]:
    """Rollout id to how its tokens were sampled, for those that a trainer which divides by `temperature` alone does not reproduce.

    Args:
        rollout_ids, processed_R: along R: how the sampling of its trained calls differed from the plain distribution, with the mode of
            their log-probabilities.
        temperature: that the trainer's log-probabilities are taken at.
    """
    expected = () if temperature == 1 else (f"temperature {temperature} (processed_logprobs)",)
    return {
        rollout_id: ", ".join(processed) or "temperature 1"
        for rollout_id, processed in zip(rollout_ids, processed_R, strict=True)
        if processed != expected
    }
