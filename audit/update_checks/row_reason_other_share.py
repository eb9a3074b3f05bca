"""How many rows were opened for a reason that nobody knows?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped
from training.rows import OpenReason

KNOWN = frozenset(get_args(OpenReason))


@answers("row_reason_other_share")
def row_reason_other_share(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Share of the batch's rows whose reason is none of those that rows are opened for, such as `other`; a remark that blames nobody.

    Source: survey AUD-14.
    """
    if not subject.rows:
        return skipped("row_reason_other_share", "the batch tells no training rows")
    other = [row for row in subject.rows if row.told.open_reason not in KNOWN]
    share = len(other) / len(subject.rows)
    return said(
        "row_reason_other_share",
        [{"share": share, "most": policy["row_reason_other_most"]}] if share > policy["row_reason_other_most"] else [],
        why="many rows have no known reason",
        remedy="find out why rows are cut",
        fault=None,
        events=evidence(subject, [row.rollout_id for row in other]),
        share=share,
        rows=len(subject.rows),
        reasons=dict(Counter(row.told.open_reason for row in subject.rows)),
    )
