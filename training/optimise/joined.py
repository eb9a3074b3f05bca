"""Joins rewards to rollouts by id, never by position, and says whose sampling the trainer does not reproduce. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from ledger.errors import BatchRefused
from ledger.events import ModelCalled, RewardDerived
from training.rewards import Scored

_UNUSED = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
"""Request fields that change the distribution, with the values at which they do not."""
_CONSTRAINTS = ("logit_bias", "bad_words", "response_format", "guided_json", "guided_regex", "guided_grammar", "structured_outputs")


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


def unreproduced(calls: Iterable[ModelCalled], *, temperature: float) -> dict[str, str]:
    """Rollout id to how its tokens were sampled, for those that a trainer which divides by `temperature` alone does not reproduce.

    Args:
        calls: answered calls whose tokens may be trained on.
        temperature: that the trainer's log-probabilities are taken at.
    """
    found: dict[str, str] = {}
    for call in calls:
        if call.rollout_id is None or call.sampled_ids is None:
            continue
        how = _departure(call, temperature)
        if how is not None:
            found.setdefault(call.rollout_id, how)
    return found


def _departure(call: ModelCalled, temperature: float) -> str | None:
    sampling = call.sampling
    own = sampling.get("temperature")
    own = 1.0 if own is None else own
    if own != temperature:
        return f"temperature {own} where the trainer has {temperature}"
    for name, plain in _UNUSED.items():
        if sampling.get(name) not in (None, plain, -1 if name == "top_k" else plain):
            return f"{name} {sampling[name]}"
    for name in _CONSTRAINTS:
        if sampling.get(name) is not None:
            return name
    if temperature != 1.0 and call.logprobs is not None and call.logprobs_mode != "processed_logprobs":
        return f"temperature {temperature} and logprobs_mode {call.logprobs_mode}"
    return None
