"""How many advantages took a fallback path?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped


@answers("fallback_share")
def fallback_share(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Share of trained rollouts whose advantage is not by the native path of its estimator, by path; a remark that blames nobody.

    Source: survey AUD-37.
    """
    told = {name: row.path for name, (_, row) in subject.row_of.items() if row.trains and row.path is not None}
    if not told:
        return skipped("fallback_share", "the batch tells no path of an advantage")
    taken = Counter(path for path in told.values() if path != "native")
    share = sum(taken.values()) / len(told)
    return said(
        "fallback_share",
        [{"share": share, "most": policy["fallback_most"], "paths": dict(taken)}] if share > policy["fallback_most"] else [],
        why="many advantages took a fallback",
        remedy="look at what the estimator lacks",
        fault=None,
        events=evidence(subject, [name for name, path in told.items() if path != "native"]),
        share=share,
        rollouts=len(told),
        paths=dict(taken),
    )
