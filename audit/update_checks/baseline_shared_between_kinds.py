"""Are ordinary rollouts compared with ordinary ones alone?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._estimates import told_by, truth, with_changes, without_estimate
from audit.update_checks._said import evidence, said, skipped


@answers("baseline_shared_between_kinds", explains=("adv_recompute",))
def baseline_shared_between_kinds(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Recovery, hinted, branch, expert, dream and rehearsal rollouts share no baseline with ordinary ones, nor forks with their trunk.

    Source: survey AUD-25 and AUD-40.
    """
    if not subject.judged:
        return skipped("baseline_shared_between_kinds", "no reward shapes this update")
    voters = truth(subject)
    kinds: dict[str, set[tuple[str, str, str]]] = {}
    for one in voters:
        kinds.setdefault(one.group, set()).add((one.kind, one.fork, one.participant))
    mixed = [group for group, mine in kinds.items() if len(mine) > 1]
    if mixed and (why := without_estimate(subject)):
        return skipped("baseline_shared_between_kinds", why)
    shared = bool(mixed) and any(
        told_by(subject, with_changes(voters, **changes), policy)
        for changes in ({"kind": ""}, {"fork": ""}, {"participant": ""}, {"kind": "", "fork": "", "participant": ""})
    )
    return said(
        "baseline_shared_between_kinds", [{"group": group, "kinds": sorted(map(str, kinds[group]))} for group in mixed] if shared else [],
        why="rollouts of different kinds share a baseline", remedy="take the population as group x kind x fork x participant",
        fault="wrong_population", events=evidence(subject, [one.rollout_id for one in voters if one.group in mixed] if shared else []),
        mixed_groups=len(mixed),
    )  # fmt: skip
