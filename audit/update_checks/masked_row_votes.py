"""Does nothing vote that is no evidence about the policy?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._estimates import Voter, told_by, truth
from audit.update_checks._said import evidence, said, skipped


@answers("masked_row_votes", explains=("adv_recompute", "weight_shares", "singleton_convention", "reward_none_coerced", "masks_consistent"))
def masked_row_votes(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """No rollout votes that something else failed, that has no verdict or that the stage excludes, and none that the batch left out.

    The second shows in the advantages: they are those of a baseline in which what was left out votes after all, with its reward or 0.

    Source: cases B1, B2, B3 and B7 with fixtures F1, F2 and F6; survey AUD-08.
    """
    if not subject.judged:
        return skipped("masked_row_votes", "no reward shapes this update")
    faults: list[dict[str, Any]] = [
        {"rollout": row.rollout_id, "outcome": known.outcome, "ended_by": known.ended_by, "reward": row.reward}
        for _, row in subject.batch_rows
        if row.votes and (known := subject.known.get(row.rollout_id)) is not None and not subject.may_vote(row.rollout_id)
    ]
    left = [*subject.excluded, *(name for name, (_, row) in subject.row_of.items() if not row.votes)]
    if not faults and left:
        for zero in (False, True):
            if told_by(subject, _all_voting(subject, zero=zero), policy):
                faults = [
                    {
                        "rollout": name,
                        "outcome": "left out of the loss, in the baseline all the same",
                        "voted_with": 0.0 if zero else "its reward",
                    }
                    for name in left
                ]
                break
    votes = sum(row.votes for _, row in subject.batch_rows)
    return said(
        "masked_row_votes",
        faults,
        why="a rollout that is no evidence votes in a baseline",
        remedy="leave it out of mean and deviation too",
        fault="masked_row_votes",
        events=evidence(subject, [fault["rollout"] for fault in faults]),
        votes=votes,
        left_out=len(left),
    )


def _all_voting(subject: UpdateSubject, *, zero: bool) -> list[Voter]:
    """The voters and everything that does not vote, with its own reward or with 0."""
    rows = [one if one.votes else replace(one, votes=True, reward=0.0 if zero else one.reward) for one in truth(subject)]
    for rollout_id in subject.excluded:
        known = subject.known.get(rollout_id)
        if known is not None:
            reward = 0.0 if zero else subject.true_reward(rollout_id)
            participant = rows[0].participant if rows else ""
            rows.append(Voter(rollout_id, known.group_id, known.kind, "", participant, reward, votes=True))
    return rows
