"""Is the reward of each row that of its own rollout?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped


@answers(
    "reward_rollout_id_join",
    explains=("adv_recompute", "weight_shares", "singleton_convention", "masked_row_votes", "reward_none_coerced", "group_one_task",
              "group_by_rollout", "baseline_shared_between_kinds"),
)  # fmt: skip
def reward_rollout_id_join(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """The reward event that a row names was derived for the row's rollout, and the row's value is that event's.

    A stage that permutes rewards on purpose, as a control, is skipped.

    Source: case B12 (two samples, swapped order).
    """
    named = [(event_id, row) for event_id, row in subject.batch_rows if row.reward_id is not None]
    if not named:
        return skipped("reward_rollout_id_join", "no row names a reward")
    if subject.shuffled:
        return skipped("reward_rollout_id_join", "the stage permutes rewards over its rollouts on purpose")
    faults: list[dict[str, Any]] = []
    compared, events = 0, []
    for _, row in named:
        held = subject.rewards.get(str(row.reward_id))
        if held is None:
            continue
        compared += 1
        event_id, body = held
        if body.rollout_id != row.rollout_id:
            faults.append({"rollout": row.rollout_id, "reward_of": body.rollout_id, "reward": row.reward})
            events += [event_id]
        elif row.reward is not None and body.value is not None and row.reward != body.value:
            faults.append({"rollout": row.rollout_id, "reward": row.reward, "needed": body.value})
            events += [event_id]
    weighed = {weight.rollout_id: weight.reward_id for _, weight in subject.weights}
    faults += [
        {"rollout": row.rollout_id, "batch_names": row.reward_id, "update_names": weighed[row.rollout_id]}
        for _, row in named
        if row.trains
        and row.rollout_id in weighed
        and weighed[row.rollout_id] not in {one.reward_id for _, one in named if one.rollout_id == row.rollout_id}
    ]
    if not compared and not faults:
        return skipped("reward_rollout_id_join", f"none of the {len(named)} rewards that the batch names is here")
    mine = evidence(subject, [fault["rollout"] for fault in faults])
    return said(
        "reward_rollout_id_join",
        faults,
        why="a row has the reward of another rollout",
        remedy="join rewards by rollout id, never by position",
        fault="swapped_rewards",
        events=[*mine[:2], *events, *mine[2:]],
        rewards=len(named),
        compared=compared,
    )
