"""A reward is written after the verdict on which it rests, and after the rollout. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped
from ledger.events import RewardDerived


@answers("reward_written_before_verify", explains=("reward_in_range",))
def reward_written_before_verify(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no reward stands before a verdict that it names in the order of recording, nor, by its clock, `clock_s` before the end.

    Source: case I1.
    """
    scored = [(n, event, body) for n, event in enumerate(subject.heard) if isinstance(body := event.body, RewardDerived)]
    scored = [item for item in scored if item[2].value is not None]
    if not scored:
        return skipped("reward_written_before_verify", "the rollout has no reward")
    place = {event.stream: (n, event.event_id) for n, event in enumerate(subject.heard)}
    ended = next((event for event in subject.own if event.kind == "RolloutEnded"), None)
    faults = []
    for n, event, body in scored:
        for verdict_id in body.verdict_ids:
            at, verdict_event = place.get(f"verdict-{verdict_id}", (-1, None))
            if at > n:
                faults.append(Fault({"value": body.value, "before": "verdict"}, (event.event_id, verdict_event)))
        if ended is not None and (ended.occurred_at - event.occurred_at).total_seconds() > float(policy["clock_s"]):
            faults.append(Fault({"value": body.value, "before": "end of the rollout"}, (event.event_id, ended.event_id)))
    return [
        found(
            "reward_written_before_verify", faults, why="a reward was written before it was verified", kind="reward_before_verification",
            remedy="delete what a policy can write before verifying, and derive rewards from verdicts alone",
            measured={"rewards": len(scored)},
        )
    ]  # fmt: skip
