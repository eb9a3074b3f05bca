"""Does the only voter of a population have the advantage that its estimator declares?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._estimates import estimated, recorded, truth, without_estimate
from audit.update_checks._said import close, evidence, said, skipped


@answers("singleton_convention", explains=("adv_recompute",))
def singleton_convention(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """A population of one voter has no signal by one convention and its reward by another; which one holds is the estimator's to declare.

    Source: case B7 with fixture F6: siblings of rewards 100 (rejected) and 1 give 1 or 0, never -49.5.
    """
    if not subject.judged:
        return skipped("singleton_convention", "no reward shapes this update")
    voters = truth(subject)
    count = Counter((one.group, one.kind, one.fork, one.participant) for one in voters if one.votes)
    alone = [one.rollout_id for one in voters if one.votes and count[one.group, one.kind, one.fork, one.participant] == 1]
    if not alone:
        return said("singleton_convention", [], why="", remedy="", fault=None, singletons=0)
    why = without_estimate(subject)
    needed = None if why else estimated(subject, voters)
    if needed is None:
        return skipped("singleton_convention", why or "the estimator has no one number a rollout")
    told = recorded(subject)
    wrong = [name for name in alone if name in told and not close(told[name], needed[name], policy["advantage_relative"])]
    return said(
        "singleton_convention", [{"rollout": name, "advantage": told[name], "needed": needed[name]} for name in wrong],
        why="the only voter of its population has another advantage than the estimator declares",
        remedy="follow the declared convention for populations of one", fault="wrong_advantage", events=evidence(subject, wrong),
        singletons=len(alone),
    )  # fmt: skip
