"""How much of the batch says nothing, because all rewards of a group are the same?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._estimates import truth
from audit.update_checks._said import parts_of, said, skipped

TIED = 1e-9


@answers("zero_variance_saturation")
def zero_variance_saturation(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Share of groups with two or more voters whose rewards do not differ (`zero_std_fraction`); a remark that blames nobody.

    Source: case B16; survey AUD-09: such tasks are not worthless and never deleted.
    """
    groups: dict[tuple[str, str, str, str], list[float]] = {}
    for one in truth(subject) if subject.judged else ():
        if one.votes and one.reward is not None:
            groups.setdefault((one.group, one.kind, one.fork, one.participant), []).append(one.reward)
    several = [values for values in groups.values() if len(values) >= 2]
    if not several:
        return skipped("zero_variance_saturation", "no group has two voters")
    tied = [values for values in several if max(values) - min(values) <= TIED]
    share = len(tied) / len(several)
    faults = [{"zero_std_fraction": share, "most": policy["zero_variance_most"]}] if share > policy["zero_variance_most"] else []
    return said(
        "zero_variance_saturation",
        faults,
        why="most groups have no signal",
        remedy="choose tasks of middling difficulty, or more rollouts a group",
        fault=None,
        events=parts_of(subject),
        zero_std_fraction=share,
        groups=len(several),
        all_at=sorted({values[0] for values in tied})[:8],
    )
